"""The library kept initialised: events and looks, before a stub of NVML."""

import json
import subprocess
import sys
from contextlib import contextmanager

import pytest
from nvml_readings import NOTHING
from nvml_stub import address

WATCHER = """
import json, sys
from devherd._native import NvmlWatch
watch = NvmlWatch(None, sys.argv[1], sys.argv[2:])
print("open", flush=True)
for line in sys.stdin:
    name, *values = json.loads(line)
    print(getattr(watch, name)(*values) or "null", flush=True)
"""


@contextmanager
def watching(stub, *gpus):
    """A process that has opened these GPUs, which does what it is told."""
    command = [sys.executable, "-P", "-c", WATCHER, str(stub.library), *map(address, gpus)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "env": stub.environment}
    with subprocess.Popen(command, **pipes) as process:

        def do(name, *values):
            process.stdin.write(json.dumps([name, *values]) + "\n")
            process.stdin.flush()
            return json.loads(process.stdout.readline())

        assert process.stdout.readline() == "open\n"
        yield do
        process.stdin.close()
        assert process.wait(60) == 0


def reading(number, **values):
    """A look at a GPU, of which nothing is known but this."""
    return {"pci_address": address(number), **NOTHING} | values


def failed(function, code, meaning):
    """A call that was answered with an error."""
    return {"function": function, "code": code, "meaning": meaning}


def event(number, kind, data=0, gi=None, ci=None):
    """An event of a GPU."""
    told = {"pci_address": address(number), "kind": kind, "data": data}
    return told | {"gpu_instance": gi, "compute_instance": ci}


def test_a_gpu_of_which_nothing_is_supported_is_no_trouble(stub):
    """No fields, no fabric, no reasons of clocks: nothing is said."""
    stub.gpu(0).write()
    with watching(stub, 0) as do:
        assert do("look", [address(0)]) == [reading(0)]


@pytest.mark.parametrize("version", [1, 2])
def test_a_driver_that_knows_an_older_version_of_the_fabric_is_asked_for_that(stub, version):
    """Its health is unknown then, and that is no failure."""
    stub.gpu(0).say("fabric", gpu=0, state=2, status=27, summary=3, version=version).write()
    with watching(stub, 0) as do:
        [told] = do("look", [address(0)])
    assert (told["fabric"], told["failures"]) == ({"state": 2, "status": 27, "summary": 0}, [])


def test_a_look_tells_every_field_by_its_name(stub):
    """Each by a value of its own, in several types; only of the GPU that has it."""
    stub.gpu(0).gpu(1).say("fabric", gpu=1, state=2, status=27, summary=3).say("clocks", gpu=1, reasons=0x41)
    told = {230: 2, 145: 1, 144: 0, 31: 1, 29: 40, 30: 23, 142: 11, 143: 12, 3: 13, 6: 14, 5: 15, 94: 16}
    told |= {301: 17, 302: 18, 83: 19}
    for number, value in told.items():
        stub.field(1, number, value)
    stub.field(1, 4, 5_000_000_000, type=3)
    stub.say("sram", gpu=1, exceeded=1).say("repair", gpu=1, channel=0, cluster=1).say("unrepairable", gpu=1, flag=1)
    stub.say("persistence", gpu=1, mode=1).say("mode", gpu=1, mig=1)
    stub.write()
    fabric = {"state": 2, "status": 27, "summary": 3}
    with watching(stub, 0, 1) as do:
        assert do("look", [address(0), address(1)]) == [
            reading(0),
            reading(
                1, recovery_action=2, remap_failed=True, remap_pending=False, retirement_pending=True,
                retired_pages=63, remapped_corrected=11, remapped_uncorrected=12,
                inactive_remapped_corrected=17, inactive_remapped_uncorrected=18, uncorrected_errors=5_000_000_000,
                corrected_errors=13, lifetime_uncorrected_errors=14, lifetime_corrected_errors=15, pcie_replays=16,
                sram_threshold_exceeded=True, repair_pending=True, unrepairable_memory=True, fabric=fabric,
                clock_reasons=0x41, mig_mode=True, mig_mode_pending=False, is_persistent=True, energy=19,
            ),
        ]  # fmt: skip


def test_of_nvlinks_it_tells_which_are_up_and_what_all_of_them_have_counted(stub):
    """One that sleeps is up; each kind is the sum of what the links say, whatever its fields are called."""
    stub.gpu(0).field(0, 91, 3)
    for link, state in enumerate((1, 2, 0)):
        stub.field(0, 165, state, link=link).field(0, 163, 10 + link, link=link)
    stub.field(0, 162, 2, link=0).field(0, 213, 5, link=1).field(0, 214, 1, link=2)
    errors = {"crc": 33, "recovery": 7, "recovery-failed": 1}
    with watching(stub, 0) as do:
        links = {"0": True, "1": True, "2": False}
        assert do("look", [address(0)]) == [reading(0, links=links, link_errors=errors)]


def test_what_a_gpu_does_not_support_is_asked_again(stub):
    """Defect: what it refused while there were MIG devices was not read any more when there were none."""
    stub.gpu(0).write()
    with watching(stub, 0) as do:
        assert do("look", [address(0)]) == [reading(0)]
        stub.field(0, 230, 0).say("sram", gpu=0, exceeded=1).write()
        assert do("look", [address(0)]) == [reading(0, recovery_action=0, sram_threshold_exceeded=True)]


def test_a_field_that_is_newer_than_the_driver_is_no_trouble(stub):
    """To it the number is an invalid argument."""
    stub.gpu(0).field(0, 230, 0).field(0, 143, 0, **{"return": 2})
    with watching(stub, 0) as do:
        assert do("look", [address(0)]) == [reading(0, recovery_action=0)]


def test_a_field_that_cannot_be_read_costs_no_other(stub):
    """Every value has a result of its own, which is looked at."""
    stub.gpu(0)
    stub.field(0, 230, 7).field(0, 145, 1, **{"return": 16}).field(0, 144, 1, **{"return": 999})
    failures = [failed("nvmlDeviceGetFieldValues", code, "Unknown Error") for code in (16, 999)]
    with watching(stub, 0) as do:
        assert do("look", [address(0)]) == [reading(0, recovery_action=7, failures=failures)]


def test_events_are_told_with_the_gpu_and_the_mig_device_that_they_concern(stub):
    """One of all of a GPU, one of a GPU instance, one of a compute instance; those before it are lost."""
    stub.gpu(0).gpu(1).xid(0, 13)
    with watching(stub, 0, 1) as do:
        assert do("wait", 0) == {"events": [], "failure": None}
        stub.xid(1, 79).xid(0, 94, gi=7, ci=0).xid(0, 94, gi=8).event(0, 0x8000).event(1, 0x200)
        told = [event(1, 8, 79), event(0, 8, 94, 7, 0), event(0, 8, 94, 8), event(0, 0x8000), event(1, 0x200)]
        heard = []
        while len(heard) < len(told):
            waited = do("wait", 60_000)
            assert waited["failure"] is None
            heard += waited["events"]
        assert heard == told


def test_only_events_that_a_gpu_has_are_asked_for(stub):
    """One without any is looked at; the other is heard."""
    stub.gpu(0).gpu(1).say("events", gpu=0, types=0).say("events", gpu=1, types=0x8).write()
    with watching(stub, 0, 1) as do:
        stub.event(1, 0x8000).xid(1, 31)
        assert do("wait", 60_000)["events"] == [event(1, 8, 31)]
        assert do("look", [address(0)]) == [reading(0)]


def test_a_gpu_that_spoils_the_set_of_events_costs_the_others_none(stub):
    """After the error "unknown" the set has to be made anew; why one GPU is not heard is told."""
    stub.gpu(0).gpu(1).say("fail", "nvmlDeviceRegisterEvents", 999, gpu=0).write()
    with watching(stub, 0, 1) as do:
        stub.xid(1, 48)
        assert do("wait", 60_000)["events"] == [event(1, 8, 48)]
        failure = failed("nvmlDeviceRegisterEvents", 999, "Unknown Error")
        assert do("look", [address(0)]) == [reading(0, failures=[failure])]


def test_a_driver_without_events_is_waited_for_in_vain(stub):
    """And without a failure: looks go on."""
    stub.gpu(0).say("fail", "nvmlEventSetCreate", 3).write()
    with watching(stub, 0) as do:
        assert do("wait", 1) == {"events": [], "failure": None}


def test_a_wait_that_fails_says_why(stub):
    """The library lost its driver."""
    stub.gpu(0).write()
    with watching(stub, 0) as do:
        stub.say("fail", "nvmlEventSetWait_v2", 999).write()
        assert do("wait", 60_000)["failure"] == failed("nvmlEventSetWait_v2", 999, "Unknown Error")


def test_a_lost_gpu_says_so_at_each_call_and_others_are_well(stub):
    """By each call that it was asked with."""
    stub.gpu(0).gpu(1).field(1, 230, 0).say("lost", gpu=0).write()
    with watching(stub, 0, 1) as do:
        lost, well = do("look", [address(0), address(1)])
        assert {failure["code"] for failure in lost["failures"]} == {15}
        assert lost["refusal"] == failed("nvmlDeviceGetHandleByPciBusId_v2", 15, "GPU is lost")
        assert lost | {"failures": [], "refusal": None} == reading(0)
        assert well == reading(1, recovery_action=0)


@pytest.mark.parametrize(
    ("code", "meaning"), [(3, "Not Supported"), (4, "Insufficient Permissions"), (999, "Unknown Error")]
)
def test_a_gpu_that_nvml_does_not_open_says_why_whatever_the_reason(stub, code, meaning):
    """Also where no such call is supported: elsewhere that is no failure."""
    stub.gpu(0).gpu(1).field(1, 230, 0).say("fail", "nvmlDeviceGetHandleByPciBusId_v2", code, gpu=0).write()
    refusal = failed("nvmlDeviceGetHandleByPciBusId_v2", code, meaning)
    with watching(stub, 0, 1) as do:
        refused, well = do("look", [address(0), address(1)])
    assert (refused["refusal"], well) == (refusal, reading(1, recovery_action=0))
    assert refused["failures"] == ([] if code == 3 else [refusal])


def test_only_the_gpus_named_are_opened(stub):
    """Another may be asleep: neither its handle nor its events are asked for."""
    stub.gpu(0).gpu(1).say("hang", "nvmlDeviceGetHandleByIndex_v2").write()
    with watching(stub, 1) as do:
        stub.xid(0, 79).xid(1, 13)
        assert do("wait", 60_000)["events"] == [event(1, 8, 13)]
        assert do("look", [address(0), address(1)]) == [reading(1)]


def test_an_old_library_has_nothing_to_say(stub, libraries):
    """Before driver 450: not even a handle by address."""
    stub.library = libraries("OLD_DRIVER")
    stub.gpu(0).write()
    with watching(stub, 0) as do:
        assert do("wait", 1) == {"events": [], "failure": None}
        assert do("look", [address(0)]) == [reading(0)]


def test_after_close_the_library_is_shut_down_and_says_nothing(stub):
    """The stub refuses to be shut down twice, and the watch does not try."""
    stub.gpu(0).write()
    with watching(stub, 0) as do:
        assert do("close") is None
        assert do("close") is None
        assert (do("wait", 60_000), do("look", [address(0)])) == ({"events": [], "failure": None}, [])
