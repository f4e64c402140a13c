"""NVIDIA's own nvml.h against devherd: a C compiler compares layouts, numbers and functions.

The header is that of NVIDIA's Go module (header/go.mod), as the module proxy gives it. What devherd uses comes from the
built Rust code and from the Python module itself, what the stub has from its own file: nothing is listed twice.
"""

import json
import re
import subprocess
from pathlib import Path

import pytest

from devherd._native import nvml_interface
from devherd.sources.nvml import counts, findings

HERE = Path(__file__).parent
CALLERS = [HERE.parents[1] / f"rust/src/nvml/{name}.rs" for name in ("library", "gather", "gpu_health", "watch")]

INTERFACE = json.loads(nvml_interface())

OF_STUB = {
    "pci_t": (
        "nvmlPciInfo_t",
        (
            "legacy=busIdLegacy domain=domain bus=bus device=device device_id=pciDeviceId subsystem_id=pciSubSystemId "
            "bus_id=busId"
        ),
    ),
    "memory_t": ("nvmlMemory_t", "total=total free=free used=used"),
    "addressing_t": ("nvmlDeviceAddressingMode_v1_t", "version=version value=value"),
    "attributes_t": (
        "nvmlDeviceAttributes_t",
        (
            "multiprocessors=multiprocessorCount copies=sharedCopyEngineCount decoders=sharedDecoderCount "
            "encoders=sharedEncoderCount jpegs=sharedJpegCount flows=sharedOfaCount gpu_slices=gpuInstanceSliceCount "
            "compute_slices=computeInstanceSliceCount mebibytes=memorySizeMB"
        ),
    ),
    "instance_t": (
        "nvmlGpuInstanceInfo_t",
        "device=device id=id profile_id=profileId start=placement size=placement.size",
    ),
    "profile_t": ("nvmlGpuInstanceProfileInfo_t", "id=id mebibytes=memorySizeMB"),
    "event_t": (
        "nvmlEventData_t",
        "device=device kind=eventType data=eventData gpu_instance=gpuInstanceId compute_instance=computeInstanceId",
    ),
    "field_t": (
        "nvmlFieldValue_t",
        (
            "id=fieldId scope=scopeId timestamp=timestamp latency=latencyUsec type=valueType returned=nvmlReturn "
            "value=value"
        ),
    ),
    "fabric_t": (
        "nvmlGpuFabricInfo_v3_t",
        (
            "version=version cluster=clusterUuid status=status clique=cliqueId state=state mask=healthMask "
            "summary=healthSummary"
        ),
    ),
    "sram_t": ("nvmlEccSramErrorStatus_v1_t", "version=version counts=aggregateUncParity exceeded=bThresholdExceeded"),
    "repair_t": ("nvmlRepairStatus_v1_t", "version=version channel=bChannelRepairPending cluster=bTpcRepairPending"),
    "unrepairable_t": ("nvmlUnrepairableMemoryStatus_v1_t", "flag=bUnrepairableMemory"),
}
"""The stub's layouts: NVIDIA's name, and that of each field."""

ARGUMENTS = {
    "act": "",
    "value": "P",
    "text": "PU",
    "at": "UP",
    "value_of": "HP",
    "pair_of": "HPP",
    "text_of": "HPU",
    "below": "HUP",
    "named": "PP",
    "act_on": "H",
    "filled_of": "HP",
    "filled": "HP",
}
"""The arguments of a function that each method of rust/src/nvml/library.rs calls: a handle, a pointer, a number."""
CALL = re.compile(rf"\.({'|'.join(ARGUMENTS)})(?:::<[^()]*>)?\(\s*(?:library, )?(?:&\[([^\]]*)\]|(\w+))")
OF_THEIR_OWN = {
    "nvmlDeviceRegisterEvents": "HUE",
    "nvmlEventSetWait_v2": "EPU",
    "nvmlDeviceGetFieldValues": "HUP",
    "nvmlErrorString": "U",
}
"""Functions with a method of their own."""


@pytest.fixture(scope="module")
def header(tool):
    """NVIDIA's header, in Go's cache of modules."""
    command = [tool("go"), "mod", "download", "-json", "github.com/NVIDIA/go-nvml"]
    done = subprocess.run(command, cwd=HERE / "header", check=True, capture_output=True, text=True)
    return Path(json.loads(done.stdout)["Dir"]) / "pkg/nvml/nvml.h"


@pytest.fixture
def compare(tool, header):
    """What the compiler says about lines of C after the header; empty where it agrees."""

    def compare(*lines, definitions=()):
        text = "\n".join([f'#include "{header}"', "#include <stddef.h>", *lines, ""])
        options = [*(f"-D{definition}" for definition in definitions), "-std=gnu11", "-Wall", "-Werror", "-Wno-unused"]
        options.append("-Wno-deprecated-declarations")
        command = [tool("cc"), "-fsyntax-only", *options, f"-I{HERE / 'stub'}", "-x", "c", "-"]
        return subprocess.run(command, input=text, capture_output=True, text=True, check=False).stderr

    return compare


def equal(ours, theirs):
    """A line of C that compiles where an expression has this value."""
    return f'_Static_assert({theirs} == {ours}, "{theirs}: ours is {ours}");'


def layout(name, size, fields):
    """The lines that compile where a struct has this size, and each field this offset and size."""
    yield equal(size, f"sizeof({name})")
    for field, (offset, field_size) in fields.items():
        yield equal(offset, f"offsetof({name}, {field})")
        yield equal(field_size, f"sizeof((({name} *)0)->{field})")


def layouts(structs):
    """The lines about all of these structs."""
    return [line for name, struct in structs.items() for line in layout(name, struct["size"], struct["fields"])]


def test_layouts_that_devherd_passes_to_nvml_are_nvidias(compare):
    """Every struct with every field, the union of values, and handles, which are pointers."""
    assert len(INTERFACE["structs"]) > 10
    handles = [equal("sizeof(void *)", f"sizeof({name})") for name in ("nvmlDevice_t", "nvmlEventSet_t")]
    handles.append(equal("sizeof(void *)", "sizeof(nvmlGpuInstance_t)"))
    lines = [*layouts(INTERFACE["structs"]), equal(INTERFACE["value"], "sizeof(nvmlValue_t)"), *handles]
    lines += [equal(number, name) for name, number in INTERFACE["versions"].items()]
    assert compare(*lines) == ""


@pytest.mark.parametrize("invented", ["larger", "later"])
def test_a_layout_that_is_invented_does_not_compile(compare, invented):
    """Defect: the flag of unrepairable memory was taken for a struct with a version before it, and was never read."""
    name, one = "nvmlUnrepairableMemoryStatus_v1_t", INTERFACE["structs"]["nvmlUnrepairableMemoryStatus_v1_t"]
    assert one == {"size": 4, "fields": {"bUnrepairableMemory": [0, 4]}}
    other = (
        {"size": 8, "fields": {}} if invented == "larger" else {"size": 4, "fields": {"bUnrepairableMemory": [4, 4]}}
    )
    assert f"{name}" in compare(*layouts({name: other}))


def test_numbers_that_devherd_has_are_nvidias(compare):
    """Results, events, fields, types of values, states, profiles: each by NVIDIA's name."""
    assert {"NVML_ERROR_NOT_SUPPORTED", "NVML_FI_DEV_GET_GPU_RECOVERY_ACTION"} <= INTERFACE["numbers"].keys()
    assert compare(*(equal(number, name) for name, number in INTERFACE["numbers"].items())) == ""


OF_FINDINGS = {
    "nvmlEventTypeXidCriticalError": findings._XID_EVENT,
    "nvmlEventTypeSingleBitEccErrorStorm": findings._STORM_EVENT,
    "nvmlEventTypeNonFatalPoisonError": findings._POISON_EVENT,
    "nvmlEventTypeGpuUnavailableError": findings._UNAVAILABLE_EVENT,
    "nvmlClocksThrottleReasonHwThermalSlowdown": findings._TOO_HOT,
    "nvmlClocksThrottleReasonHwPowerBrakeSlowdown": findings._POWER_BRAKE,
    "NVML_GPU_FABRIC_STATE_COMPLETED": findings._FABRIC_DONE,
}
OF_WORDS = {
    "nvmlClocksEventReasonSwPowerCap": "power-cap",
    "nvmlClocksThrottleReasonHwSlowdown": "hardware",
    "nvmlClocksEventReasonSyncBoost": "sync-boost",
    "nvmlClocksEventReasonSwThermalSlowdown": "heat",
    "nvmlClocksThrottleReasonHwThermalSlowdown": "hardware-heat",
    "nvmlClocksThrottleReasonHwPowerBrakeSlowdown": "power-brake",
    "NVML_GPU_FABRIC_STATE_NOT_STARTED": "not started",
    "NVML_GPU_FABRIC_STATE_IN_PROGRESS": "in progress",
    "NVML_GPU_FABRIC_HEALTH_SUMMARY_UNHEALTHY": "unhealthy",
    "NVML_GPU_FABRIC_HEALTH_SUMMARY_LIMITED_CAPACITY": "limited capacity",
}


def test_numbers_of_findings_are_nvidias(compare):
    """Those that Python reads in an event or a reading: each word, result and kind by NVIDIA's name."""
    by_word = dict(counts._CLOCK_REASONS)
    for words in (findings._FABRIC_STATES, findings._FABRIC_SUMMARIES):
        by_word |= {word: number for number, word in words.items()}
    assert by_word.keys() == set(OF_WORDS.values())
    numbers = {name: code for code, (_, name) in findings._RESULTS.items()} | OF_FINDINGS
    numbers |= {name: by_word[word] for name, word in OF_WORDS.items()}
    assert compare(*(equal(number, name) for name, number in numbers.items())) == ""


def test_every_recovery_action_of_nvidias_header_has_words(header):
    """A newer one is told by its number."""
    actions = dict(re.findall(r"NVML_GPU_RECOVERY_ACTION_(\w+) *= *(\d+)", header.read_text()))
    assert actions.pop("NONE") == "0"
    assert {int(number) for number in actions.values()} == findings._ACTIONS.keys()


def test_nothing_of_the_bindings_is_used_but_what_is_compared():
    """A layout that is passed to NVML beside them would be compared with nothing."""
    rust = HERE.parents[1] / "rust"
    users = [file.name for file in rust.rglob("*.rs") if "nvml_wrapper_sys" in file.read_text()]
    assert users == ["interface.rs"]


def calls():
    """Each function of NVML that the Rust code names, with its arguments."""
    found = dict(OF_THEIR_OWN)
    for file in CALLERS:
        text = file.read_text().partition("#[cfg(test)]")[0]
        for call in CALL.finditer(text):
            method, names, variable = call.groups()
            if names is None:
                before = re.findall(rf"{variable}\b[^=;]*= *&\[([^\]]*)\]", text[: call.start()])
                names = before[-1] if before else ""
            found |= dict.fromkeys(re.findall(r'"(nvml\w+)"', names), ARGUMENTS[method])
    return found


def test_functions_that_devherd_calls_are_nvidias(compare):
    """Every name is declared, with as many arguments, each a handle, a pointer or a number as here."""
    text = "".join(file.read_text().partition("#[cfg(test)]")[0] for file in CALLERS)
    assert calls().keys() == set(re.findall(r'"(nvml[A-Z]\w+)"', text))
    handles = {"nvmlGpuInstance": "nvmlGpuInstance_t", "nvmlEventSetF": "nvmlEventSet_t"}
    lines = []
    for name, arguments in calls().items():
        handle = next((kind for begin, kind in handles.items() if name.startswith(begin)), "nvmlDevice_t")
        values = {"H": f"({handle}){{0}}", "E": "(nvmlEventSet_t){0}", "P": "(void *)0", "U": "1u"}
        lines.append(f"void use_{name}(void) {{ {name}({', '.join(values[one] for one in arguments)}); }}")
    assert compare(*lines, definitions=["NVML_NO_UNVERSIONED_FUNC_DEFS"]) == ""


def test_layouts_of_the_stub_are_nvidias(compare):
    """What a test shows with it is true of the library only then."""
    lines = ['#include "layouts.h"']
    for ours, (theirs, fields) in OF_STUB.items():
        lines.append(equal(f"sizeof({ours})", f"sizeof({theirs})"))
        for field in fields.split():
            mine, name = field.split("=")
            lines.append(equal(f"offsetof({ours}, {mine})", f"offsetof({theirs}, {name})"))
    written = set(re.findall(r"\} (\w+_t);", (HERE / "stub/layouts.h").read_text()))
    assert written - {"device_t"} == OF_STUB.keys()
    assert compare(*lines) == ""
