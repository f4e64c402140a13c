"""A scan that asks NVML: a simulated node whose driver brings a stub library, and every kind of trouble."""

import json
import subprocess
import sys
from itertools import pairwise

import pytest
from answering import not_examined
from nvml_host import H100, Host, Looking, askers, until
from remembered import message_of

from devherd import spool
from devherd._native import Device, Scan, Scanner
from devherd.config.loader import resolve
from devherd.config.model import Config
from devherd.inventory import Inventory, inventory_of
from devherd.proto import health_pb2
from devherd.scanner.core import native_scanner
from devherd.scanner.once import scan_once
from devherd_sim.node import faults
from devherd_sim.node.nvidia import NvidiaSpec
from devherd_sim.node.simulated_node import SimulatedNode
from devherd_sim.node.spec import NodeSpec

PROBE_TIMEOUT = 5.0
HANGS = 0.3
"""Probe timeout where NVML hangs: an attempt is given up after ten of them."""


def config(made: Host, probe_timeout: float = PROBE_TIMEOUT, **options: object) -> Config:
    """A configuration for this host."""
    vendors = {"nvidia": {"mig_strategy": "mixed"} | options}
    return Config.model_validate(
        {"host_root": made.root, "scan": {"probe_timeout": f"{probe_timeout}s"}, "vendors": vendors}
    )


@pytest.fixture
def host(stub, tmp_path, monkeypatch):
    """`host(gpus=2)`: made of the stub."""
    monkeypatch.setenv("DEVHERD_NVML_STUB", str(stub.file))
    return lambda **spec: Host(SimulatedNode.create(tmp_path / "node", NodeSpec(nvidia=NvidiaSpec(**spec))), stub)


@pytest.fixture
def looking(tmp_path):
    """`looking(config)`: a scanner with the process that asks NVML beside it."""
    made = []

    def look(config: Config) -> Looking:
        made.append(Looking(config, tmp_path / "run"))
        return made[-1]

    yield look
    for each in made:
        each.end()


def ids(scan: Scan) -> dict[str, list[str]]:
    """Resource name → ids, without GPUs whose MIG devices are offered instead."""
    found: dict[str, list[str]] = {}
    for device in scan.devices:
        if device.attributes.get("mig_mode") == "enabled":
            continue
        found.setdefault(str(device.resource_name), []).append(device.id)
    return found


def complaints(scan: Scan) -> list[str]:
    """What NVML is blamed for."""
    return [problem.error for problem in scan.problems if problem.path == "libnvidia-ml.so.1"]


def test_a_scan_has_the_exact_names_and_uuids_of_mig_devices(host):
    """`devherd scan` of a node on which only NVML knows them: three kinds of MIG devices, and a whole GPU."""
    made = host(gpus=2, mig=[["3g.40gb", "1g.10gb", "1g.10gb"]])
    instances = [(1, 0), (7, 0), (8, 0)]
    uuids = [
        made.mig(0, 0, instances[0], 3, 40320, profile=2),
        made.mig(0, 1, instances[1], 1, 9728),
        made.mig(0, 2, instances[2], 1, 9728, profile=7),
    ]
    (made.root.parent / "config.yaml").write_text(json.dumps({"vendors": {"nvidia": {"mig_strategy": "mixed"}}}))
    options = ["--config", made.root.parent / "config.yaml", "--host-root", made.root, "--output", "json"]
    command = [sys.executable, "-m", "devherd", "scan", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    told = json.loads(done.stdout)
    assert told["problems"] == []
    assert {one["name"]: [device["id"] for device in one["devices"]] for one in told["resources"]} == {
        "nvidia.com/gpu": [made.uuid(made.addresses[1])],
        "nvidia.com/mig-1g.10gb": [uuids[1]],
        "nvidia.com/mig-1g.10gb.me": [uuids[2]],
        "nvidia.com/mig-3g.40gb": [uuids[0]],
    }
    (part,) = next(one["devices"] for one in told["resources"] if one["name"] == "nvidia.com/mig-3g.40gb")
    assert part["envs"] == {"NVIDIA_VISIBLE_DEVICES": uuids[0]}
    assert part["attributes"]["mig_profile"] == "3g.40gb"
    assert part["attributes"]["compute_capability"] == "9.0"


def test_gpus_with_nvlinks_between_them_are_closer(host, looking):
    """N3: read once, kept in the devices: 0-1 by four links, 2-3 by two, 1-2 by none."""
    made = host(gpus=4)
    for one, other, count in [(0, 1, 4), (2, 3, 2)]:
        for gpu, end in [(one, other), (other, one)]:
            made.stub.links(gpu, 0, count, type=0, pci=made.addresses[end])
    made.stub.write()
    scan = looking(config(made)).settled()
    assert complaints(scan) == []
    devices = {device.card: device for device in scan.devices}
    near = [devices[one].distances[other] for one, other in pairwise(made.addresses)]
    assert [distance // 100 for distance in near] == [14, 18, 16]
    linked = [devices[address].attributes.get("nvlink_gpus") for address in made.addresses]
    assert linked == [",".join([made.addresses[end]] * count) for end, count in [(1, 4), (0, 4), (3, 2), (2, 2)]]


def test_gpus_on_one_nvlink_fabric_are_equally_close(host, looking):
    """N4: all links lead to switches."""
    made = host(gpus=3)
    for gpu in range(3):
        made.stub.links(gpu, 0, 18, type=2)
    made.stub.write()
    scan = looking(config(made)).settled()
    (distances,) = {tuple(device.distances.values()) for device in scan.devices}
    assert len({distance // 100 for distance in distances}) == 1


def test_nvml_is_asked_once_and_again_when_mig_devices_change(host, looking):
    """N3, N25: the library fails after the first scan, which nobody notices until a MIG device is made."""
    made = host(gpus=1, mig=[["1g.10gb"]])
    made.mig(0, 0, (7, 0), 1, 9728)
    look = looking(config(made))
    assert ids(look.settled()) == {"nvidia.com/mig-1g.10gb": ["MIG-0-0"]}
    made.stub.say("fail", "nvmlInit_v2", 18).write()
    assert not look.settled().changed
    made.node.nvidia.create_mig_device(made.addresses[0], "1g.10gb")
    made.mig(0, 1, (8, 0), 1, 9728)
    scan = look.settled()
    assert ids(scan) == {"nvidia.com/mig-1g.10gb": ["MIG-0-0"]}
    assert [line.split(" — ")[0] for line in complaints(scan)] == ["driver/library version mismatch"]
    made.stub.forget("fail").write()
    until(lambda: len(ids(look.scan()).get("nvidia.com/mig-1g.10gb", [])) == 2, "the new MIG device is served")
    assert complaints(look.scan()) == []
    assert look.starts == 1


def test_a_new_mig_device_is_no_problem_before_nvml_was_asked_about_it(host, looking):
    """It waits for its name; the others are served, and nobody complains."""
    made = host(gpus=1, mig=[["1g.10gb"]])
    made.mig(0, 0, (7, 0), 1, 9728)
    look = looking(config(made))
    look.settled()
    made.stub.say("hang", "nvmlInit_v2").write()
    made.node.nvidia.create_mig_device(made.addresses[0], "1g.10gb")
    scan = look.scan()
    assert (ids(scan), scan.problems) == ({"nvidia.com/mig-1g.10gb": ["MIG-0-0"]}, [])


def test_another_mig_device_with_the_same_ids_is_another_one(host, looking):
    """A 3g instance gives way to a 4g instance, which gets its id: the first one's name is never the second's."""
    made = host(gpus=1, mig=[["3g.40gb"]])
    made.mig(0, 0, (1, 0), 3, 40320, profile=2, uuid="MIG-three")
    look = looking(config(made))
    assert ids(look.settled()) == {"nvidia.com/mig-3g.40gb": ["MIG-three"]}
    made.node.nvidia.destroy_mig_device(made.addresses[0], 1)
    made.node.nvidia.create_mig_device(made.addresses[0], "3g.40gb")
    made.stub.forget("mig")
    made.mig(0, 0, (1, 0), 4, 40320, profile=3, uuid="MIG-four")
    assert ids(look.scan()) == {}
    assert ids(look.settled()) == {"nvidia.com/mig-4g.40gb": ["MIG-four"]}


@pytest.mark.parametrize("function", ["nvmlInit_v2", "nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetMigMode"])
def test_no_scan_waits_for_nvml_that_hangs(host, looking, function):
    """N19: the GPUs are served as the driver shows them, the process ends, and a later one brings the rest."""
    made = host(gpus=1)
    made.stub.say("hang", function).write()
    look = looking(config(made, HANGS, mig_strategy="none"))
    first = look.scan()
    assert (ids(first), complaints(first)) == ({"nvidia.com/gpu": [made.uuid(made.addresses[0])]}, [])
    assert "memory_bytes" not in first.devices[0].attributes
    until(lambda: "NVML has not answered yet" in str(complaints(look.scan())), "that it is slow is reported")
    until(lambda: "did not answer within 3 s" in str(complaints(look.scan())), "the attempt is given up")
    until(lambda: look.scan() and look.starts > 1, "the process has ended")
    made.stub.forget("hang").write()
    until(lambda: "memory_bytes" in look.scan().devices[0].attributes, "NVML is asked again")
    assert complaints(look.scan()) == []


def test_a_hang_keeps_what_nvml_said_before(host, looking):
    """A new MIG device must wait; the one that NVML has named stays as it is."""
    made = host(gpus=1, mig=[["1g.10gb"]])
    made.mig(0, 0, (7, 0), 1, 9728)
    look = looking(config(made, HANGS))
    assert ids(look.settled()) == {"nvidia.com/mig-1g.10gb": ["MIG-0-0"]}
    made.stub.say("hang", "nvmlInit_v2").write()
    made.node.nvidia.create_mig_device(made.addresses[0], "1g.10gb")
    until(lambda: "did not answer" in str(complaints(look.scan())), "the attempt is given up")
    assert ids(look.scan()) == {"nvidia.com/mig-1g.10gb": ["MIG-0-0"]}


def test_facts_of_another_driver_are_none(host, looking):
    """The driver was updated while nobody scanned: its GPUs are as if NVML had not spoken."""
    made = host(gpus=1, mig=[["1g.10gb"]])
    made.mig(0, 0, (7, 0), 1, 9728)
    look = looking(config(made))
    assert ids(look.settled()) == {"nvidia.com/mig-1g.10gb": ["MIG-0-0"]}
    look.end()
    version = made.root / "proc/driver/nvidia/version"
    version.write_text(version.read_text().replace("580.95.05", "590.48.01"))
    scan = look.scanner.scan()
    assert (ids(scan), not_examined(scan)) == ({}, [(made.addresses[0], None)])


def test_until_nvml_has_answered_no_gpu_is_taken_for_what_it_may_not_be(host, looking):
    """An empty GPU in MIG mode looks whole to all but NVML: under `mixed` it is left as it was till NVML fails."""
    made = host(gpus=1)
    made.stub.say("hang", "nvmlInit_v2").write()
    look = looking(config(made, HANGS))
    first = look.scan()
    assert first.devices == []
    assert not_examined(first) == [(made.addresses[0], None)]
    until(lambda: ids(look.scan()) == {"nvidia.com/gpu": [made.uuid(made.addresses[0])]}, "it is served without NVML")


def test_a_gpu_is_not_offered_before_nvml_has_said_what_a_rule_goes_by(host, looking):
    """A rule by memory: without it the GPU would be in one resource first and in another a moment later."""
    made = host(gpus=1)
    made.stub.say("hang", "nvmlInit_v2").write()
    rules = [{"match": {"memory_bytes": str(H100)}, "name": "nvidia.com/big"}]
    chosen = Config.model_validate({**config(made, mig_strategy="none").model_dump(), "resources": rules})
    look = looking(chosen)
    assert look.scan().devices == []
    made.stub.forget("hang").write()
    assert look.settled().devices[0].attributes["memory_bytes"] == str(H100)


def test_a_crash_of_nvml_is_reported_and_the_gpus_are_served(host, looking):
    """SIGSEGV in the library: a problem with its cure."""
    made = host(gpus=1)
    made.stub.say("crash", "nvmlDeviceGetUUID").write()
    look = looking(config(made))
    until(lambda: "NVML crashed" in str(complaints(look.scan())), "the crash is reported")
    scan = look.scan()
    assert ids(scan) == {"nvidia.com/gpu": [made.uuid(made.addresses[0])]}
    assert complaints(scan)[0].endswith("reinstall the NVIDIA driver libraries")
    made.stub.forget("crash").write()
    until(lambda: complaints(look.scan()) == [], "a later attempt succeeds")


def test_what_nvml_cannot_tell_of_one_gpu_is_a_problem_and_no_more(host, looking):
    """N18: a GPU that is lost to NVML; both are served as far as they are known."""
    made = host(gpus=2)
    made.stub.say("fail", "nvmlDeviceGetHandleByIndex_v2", 15, gpu=0).write()
    scan = looking(config(made, mig_strategy="none")).settled()
    assert ids(scan) == {"nvidia.com/gpu": sorted(map(made.uuid, made.addresses))}
    assert complaints(scan) == ["GPU 0: nvmlDeviceGetHandleByIndex_v2: GPU is lost"]
    known = {device.card: "memory_bytes" in device.attributes for device in scan.devices}
    assert known == {made.addresses[0]: False, made.addresses[1]: True}


def test_a_lost_gpu_is_a_finding_until_nvml_finds_it_again(host, looking):
    """In `findings/nvml`, by PCI address; a failure of NVML itself takes nothing back."""
    made = host(gpus=2)
    look = looking(config(made))
    file = spool.path_of(look.settings.findings_directory, "nvml")

    def found() -> tuple[list[tuple[str, str]], bool]:
        findings = spool.read(file, health_pb2.Findings)
        return [(one.at.pci_address, one.reason) for one in findings.findings], bool(findings.failed)

    made.stub.say("fail", "nvmlDeviceGetFieldValues", 15, gpu=1).write()
    look.settled()
    lost = [(made.addresses[1], "gpu-lost")]
    assert found() == (lost, False)
    made.stub.say("fail", "nvmlInit_v2", 999).write()
    faults.inject(made.node, "unbind", made.addresses[0])
    look.settled()
    assert found() == (lost, True)
    made.stub.forget("fail").write()
    until(lambda: look.scan() and found() == ([], False), "it is taken back")


def test_a_driver_without_nvml_is_no_problem(host, looking):
    """Below this driver root there is none: the GPUs are served, nobody complains, and no process is needed."""
    made = host(gpus=1)
    scan = looking(config(made, driver_root="/run/nvidia/driver", mig_strategy="none")).scan()
    assert (list(ids(scan)), scan.problems, scan.requests) == (["nvidia.com/gpu"], [], {})


def test_a_library_that_was_replaced_is_loaded_anew(stub, libraries, host, looking):
    """A driver update in place, from a library that knows no MIG devices: the same process has their names."""
    new, stub.library = stub.library, libraries("OLD_DRIVER")
    made = host(gpus=1, mig=[["1g.10gb"]])
    made.mig(0, 0, (7, 0), 1, 9728)
    look = looking(config(made))
    assert ids(look.settled()) == {}
    installed = next(made.root.glob("usr/lib/*/libnvidia-ml.so.1"))
    installed.unlink()
    installed.write_bytes(new.read_bytes())
    version = made.root / "proc/driver/nvidia/version"
    version.write_text(version.read_text().replace("580.95.05", "590.48.01"))
    assert ids(look.settled()) == {"nvidia.com/mig-1g.10gb": ["MIG-0-0"]}
    assert look.starts == 1


def test_without_gpus_nvml_is_not_asked(host, looking):
    """A host whose driver shows none."""
    made = host(gpus=1)
    for address in made.addresses:
        faults.inject(made.node, "unbind", address)
    scan = looking(config(made)).scan()
    assert (scan.devices, complaints(scan), scan.requests) == ([], [], {})


def test_a_scan_without_an_instance_is_done_though_nvml_hangs(host):
    """`devherd scan`: the GPUs as the driver shows them, one line about NVML, and no process is left."""
    made = host(gpus=1)
    made.stub.say("hang", "nvmlInit_v2").write()
    report = scan_once(resolve(config(made, HANGS, mig_strategy="none")))
    assert [resource.name for resource in report.offers] == ["nvidia.com/gpu"]
    assert [problem.error.split(" — ")[0] for problem in report.problems] == ["NVML has not answered yet"]
    assert askers(made.stub) == []


def test_a_scan_without_an_instance_reports_a_crash_of_nvml(host):
    """`devherd scan` again: it names the signal."""
    made = host(gpus=1)
    made.stub.say("crash", "nvmlDeviceGetUUID").write()
    (problem,) = scan_once(resolve(config(made, mig_strategy="none"))).problems
    assert problem.error.startswith("NVML crashed — the process that asked it ended: SIGSEGV")


def of_nvml(device: Device) -> set[str]:
    """The facts that NVML has given."""
    return {name for name, source in device.sources.items() if source == "NVML"}


def test_what_nvml_has_not_said_yet_is_awaited_and_no_more_once_it_has(host, looking):
    """Each fact that its answer brings was awaited; what it does not bring cannot be known on this host."""
    made = host(gpus=2)
    cluster = "8f5c1e6a9d3b4c53a3f50f6b1c2d3e4f"
    made.stub.say("fabric", gpu=0, state=3, status=0, summary=1, cluster=cluster, clique=1)
    made.stub.links(0, 0, 2, type=0, pci=made.addresses[1])
    made.stub.say("link", gpu=0, link=3, type=2, pci="0000:07:00.0").field(0, 146, 41, link=3)
    made.stub.say("hang", "nvmlInit_v2").write()
    look = looking(config(made, mig_strategy="none"))
    before = {device.id: device for device in look.scan().devices}
    assert all({"brand", "architecture", "memory_bytes", "mig_mode"} <= device.awaited for device in before.values())
    assert not any(device.awaited & device.facts.keys() for device in before.values())
    made.stub.forget("hang").write()
    after = {device.id: device for device in look.settled().devices}
    assert before.keys() == after.keys()
    for key, device in after.items():
        assert device.awaited == set()
        assert of_nvml(device) <= before[key].awaited | before[key].facts.keys()
    linked, other = (after[made.uuid(address)] for address in made.addresses)
    assert {"fabric_clique", "nvlink_gpus", "nvswitch_ports", "brand", "architecture"} <= linked.facts.keys()
    assert not {"fabric_clique", "nvlink_gpus", "nvswitch_ports", "serial"} & other.facts.keys()


@pytest.mark.parametrize("ways", [("device-plugin",), ("cdi",), ("device-plugin", "cdi")])
@pytest.mark.parametrize("strategy", ["none", "single", "mixed"])
def test_a_gpu_that_may_be_in_mig_mode_is_kept_back_by_the_mig_strategy_alone(ways, strategy, host, tmp_path):
    """Defect: beside another way the device plugin lost its GPUs until NVML had answered. By CDI it is awaited."""
    made = host(gpus=2)
    settings = json.loads(config(made, mig_strategy=strategy).native_json(tmp_path / "answer"))
    scan = Scanner(str(made.root), json.dumps(settings | {"ways": ways})).scan()
    assert "nvml" in scan.requests
    assert (len(scan.devices), len(scan.unseen)) == ((2, 0) if strategy == "none" else (0, 2))
    assert all("mig_mode" in device.awaited for device in scan.devices)


def test_what_nvml_will_never_say_is_not_awaited(host, looking):
    """It has failed, it is switched off, or the driver came without it."""
    made = host(gpus=1)
    without = looking(config(made, driver_root="/run/nvidia/driver", mig_strategy="none")).scan()
    procfs = native_scanner(config(made, device_discovery_strategy="procfs")).scan()
    switched_off = json.loads(config(made).native_json()) | {"nvml": {"answers": [], "needed": False}}
    unasked = Scanner(str(made.root), json.dumps(switched_off)).scan()
    assert [device.awaited for scan in (without, procfs, unasked) for device in scan.devices] == [set()] * 3
    made.stub.say("fail", "nvmlInit_v2", 18).write()
    look = looking(config(made, mig_strategy="none"))
    assert all(device.awaited for device in look.scan().devices)
    [failed] = look.settled().devices
    assert (failed.awaited, "brand" in failed.facts) == (set(), False)


def test_a_mig_device_awaits_what_nvml_may_not_say_and_its_profile_id_is_that_of_nvidias_tools(host, looking):
    """Without the right to see GPU instances, NVML tells neither id nor placement of the one that it knows."""
    made = host(gpus=1, mig=[["1g.10gb"]])
    made.mig(0, 0, (7, 0), 1, 9728, name="1g.10gb", start=2, size=1)
    look = looking(config(made))
    [_, part] = look.settled().devices
    placed = {"mig_profile_id": "19", "mig_placement_start": "2", "mig_placement_size": "1"}
    assert placed.items() <= part.attributes.items()
    assert {part.facts[name].kind for name in placed} == {"number"}

    made.stub.say("fail", "nvmlDeviceGetGpuInstanceById", 4).write()
    made.node.nvidia.create_mig_device(made.addresses[0], "1g.10gb")
    made.mig(0, 1, (8, 0), 1, 9728, name="1g.10gb")
    between = {device.id: device for device in look.scan().devices}
    assert (between["MIG-0-0"].awaited & placed.keys(), between["MIG-0-0"].facts.keys() & placed.keys()) == (
        set(),
        placed.keys(),
    )
    for part in look.settled().devices[1:]:
        assert (part.awaited, part.facts.keys() & placed.keys()) == (set(), set())
    made.node.nvidia.create_mig_device(made.addresses[0], "1g.10gb")
    for part in look.scan().devices[1:]:
        assert placed.keys() <= part.awaited


def test_what_is_awaited_survives_the_scanner(host, looking):
    """As devices.pb has it; the next scanner finds NVML's answer, and awaits nothing."""
    made = host(gpus=1)
    made.stub.say("hang", "nvmlInit_v2").write()
    chosen = config(made, mig_strategy="none")
    look = looking(chosen)
    inventory = Inventory()
    inventory.observe(look.scan(), 0.0, 300.0)
    after = inventory_of(message_of(inventory))
    [entry] = after.entries.values()
    assert (after.entries, "brand" in entry.device.awaited) == (inventory.entries, True)
    made.stub.forget("hang").write()
    look.settled()
    after.observe(native_scanner(chosen, look.answer_file).scan(), 1.0, 300.0)
    [entry] = after.entries.values()
    assert (entry.device.awaited, entry.device.attributes["brand"]) == (set(), "Nvidia")
