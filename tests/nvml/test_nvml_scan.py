"""A scan that asks NVML: a simulated node whose driver brings a stub library, and every kind of trouble."""

import json
import os
import subprocess
import sys
from itertools import pairwise

import pytest
from nvml_host import Host, probes, until

from devherd._native import Scan
from devherd.config import Config
from devherd.scanner.pipeline import native_scanner
from devherd.sim.node.nvidia import NvidiaSpec
from devherd.sim.node.simulated_node import SimulatedNode
from devherd.sim.node.spec import NodeSpec

PROBE_TIMEOUT = 10.0
HANGS = 0.3
"""Probe timeout where NVML hangs: an attempt is ended after ten of them."""


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
    yield lambda **spec: Host(SimulatedNode.create(tmp_path / "node", NodeSpec(nvidia=NvidiaSpec(**spec))), stub)
    until(lambda: probes(stub) == [], "no process that asks NVML is left")


def ids(scan: Scan) -> dict[str, list[str]]:
    """Resource name → ids."""
    found: dict[str, list[str]] = {}
    for device in scan.devices:
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


def test_gpus_with_nvlinks_between_them_are_closer(host):
    """N3: read once, kept in the devices: 0-1 by four links, 2-3 by two, 1-2 by none."""
    made = host(gpus=4)
    for one, other, count in [(0, 1, 4), (2, 3, 2)]:
        for gpu, end in [(one, other), (other, one)]:
            made.stub.links(gpu, 0, count, type=0, pci=made.addresses[end])
    made.stub.write()
    scan = native_scanner(config(made)).scan()
    assert complaints(scan) == []
    devices = {device.card: device for device in scan.devices}
    near = [devices[one].distances[other] for one, other in pairwise(made.addresses)]
    assert [distance // 100 for distance in near] == [14, 18, 16]


def test_gpus_on_one_nvlink_fabric_are_equally_close(host):
    """N4: all links lead to switches."""
    made = host(gpus=3)
    for gpu in range(3):
        made.stub.links(gpu, 0, 18, type=2)
    made.stub.write()
    (distances,) = {tuple(device.distances.values()) for device in native_scanner(config(made)).scan().devices}
    assert len({distance // 100 for distance in distances}) == 1


def test_nvml_is_asked_once_and_again_when_mig_devices_change(host):
    """N3, N25: the library is gone after the first scan, which nobody notices until a MIG device is made."""
    made = host(gpus=1, mig=[["1g.10gb"]])
    made.mig(0, 0, (7, 0), 1, 9728)
    scanner = native_scanner(config(made))
    assert ids(scanner.scan()) == {"nvidia.com/mig-1g.10gb": ["MIG-0-0"]}
    made.stub.say("fail", "nvmlInit_v2", 18).write()
    assert not scanner.scan().changed
    made.node.nvidia.create_mig_device(made.addresses[0], "1g.10gb")
    made.mig(0, 1, (8, 0), 1, 9728)
    scan = scanner.scan()
    assert ids(scan) == {"nvidia.com/mig-1g.10gb": ["MIG-0-0"]}
    assert [line.split(" — ")[0] for line in complaints(scan)] == ["driver/library version mismatch"]
    made.stub.forget("fail").write()
    until(lambda: len(ids(scanner.scan()).get("nvidia.com/mig-1g.10gb", [])) == 2, "the new MIG device is served")
    assert complaints(scanner.scan()) == []


def test_another_mig_device_with_the_same_ids_is_another_one(host):
    """A 3g instance gives way to a 4g instance, which gets its id: what the first was called is not kept."""
    made = host(gpus=1, mig=[["3g.40gb"]])
    made.mig(0, 0, (1, 0), 3, 40320, profile=2, uuid="MIG-three")
    scanner = native_scanner(config(made))
    assert ids(scanner.scan()) == {"nvidia.com/mig-3g.40gb": ["MIG-three"]}
    made.node.nvidia.destroy_mig_device(made.addresses[0], 1)
    made.node.nvidia.create_mig_device(made.addresses[0], "3g.40gb")
    made.stub.forget("mig")
    made.mig(0, 0, (1, 0), 4, 40320, profile=3, uuid="MIG-four")
    assert ids(scanner.scan()) == {"nvidia.com/mig-4g.40gb": ["MIG-four"]}


@pytest.mark.parametrize("function", ["nvmlInit_v2", "nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetMigMode"])
def test_a_hang_of_nvml_costs_no_scan_more_than_its_patience(host, function):
    """N19: the GPUs are served as the driver shows them, the attempt is ended, and a later one brings the rest."""
    made = host(gpus=1)
    made.stub.say("hang", function).write()
    scanner = native_scanner(config(made, HANGS, mig_strategy="none"))
    first = scanner.scan()
    assert ids(first) == {"nvidia.com/gpu": [made.uuid(made.addresses[0])]}
    assert [line.split(" — ")[0] for line in complaints(first)] == ["NVML has not answered yet"]
    assert "memory_bytes" not in first.devices[0].attributes
    (asker,) = probes(made.stub)
    durations = [scanner.scan().duration_seconds for _ in range(20)]
    assert sorted(durations)[10] < HANGS
    assert probes(made.stub) in ([asker], [])
    until(lambda: "did not answer within 3 s" in str(complaints(scanner.scan())), "the attempt is ended")
    made.stub.forget("hang").write()
    until(lambda: "memory_bytes" in scanner.scan().devices[0].attributes, "NVML is asked again")
    assert complaints(scanner.scan()) == []


def test_a_hang_keeps_what_nvml_said_before(host):
    """A new MIG device must wait; the one that NVML has told of stays as it is."""
    made = host(gpus=1, mig=[["1g.10gb"]])
    made.mig(0, 0, (7, 0), 1, 9728)
    scanner = native_scanner(config(made, HANGS))
    until(lambda: ids(scanner.scan()) == {"nvidia.com/mig-1g.10gb": ["MIG-0-0"]}, "NVML is heard")
    made.stub.say("hang", "nvmlInit_v2").write()
    made.node.nvidia.create_mig_device(made.addresses[0], "1g.10gb")
    for _ in range(3):
        assert ids(scanner.scan()) == {"nvidia.com/mig-1g.10gb": ["MIG-0-0"]}


def test_until_nvml_has_answered_no_gpu_is_taken_for_what_it_may_not_be(host):
    """An empty GPU in MIG mode looks whole to all but NVML: under `mixed` it is left as it was till NVML fails."""
    made = host(gpus=1)
    made.stub.say("hang", "nvmlInit_v2").write()
    scanner = native_scanner(config(made, HANGS))
    first = scanner.scan()
    assert first.devices == []
    assert [(unseen.card, unseen.reason) for unseen in first.unseen] == [(made.addresses[0], None)]
    until(
        lambda: ids(scanner.scan()) == {"nvidia.com/gpu": [made.uuid(made.addresses[0])]}, "it is served without NVML"
    )


def test_a_crash_of_nvml_is_told_and_the_gpus_are_served(host):
    """SIGSEGV in the library: a problem with its cure, and no core files."""
    made = host(gpus=1)
    made.stub.say("crash", "nvmlDeviceGetUUID").write()
    scanner = native_scanner(config(made))
    scan = scanner.scan()
    assert ids(scan) == {"nvidia.com/gpu": [made.uuid(made.addresses[0])]}
    assert [line.split(" — ")[0] for line in complaints(scan)] == ["NVML crashed"]
    made.stub.forget("crash").write()
    until(lambda: complaints(scanner.scan()) == [], "a later attempt succeeds")


def test_what_nvml_cannot_tell_of_one_gpu_is_a_problem_and_no_more(host):
    """N18: a GPU that is lost to NVML; both are served as far as they are known."""
    made = host(gpus=2)
    made.stub.say("fail", "nvmlDeviceGetHandleByIndex_v2", 15, gpu=0).write()
    scan = native_scanner(config(made)).scan()
    assert ids(scan) == {"nvidia.com/gpu": sorted(map(made.uuid, made.addresses))}
    assert complaints(scan) == ["GPU 0: nvmlDeviceGetHandleByIndex_v2: GPU is lost"]
    known = {device.card: "memory_bytes" in device.attributes for device in scan.devices}
    assert known == {made.addresses[0]: False, made.addresses[1]: True}


def test_a_driver_without_nvml_is_no_problem(host):
    """Below this driver root there is none: the GPUs are served, and nobody complains."""
    made = host(gpus=1)
    scan = native_scanner(config(made, driver_root="/run/nvidia/driver")).scan()
    assert (list(ids(scan)), scan.problems) == (["nvidia.com/gpu"], [])


def test_without_gpus_nvml_is_not_asked(host):
    """A host whose driver shows none."""
    made = host(gpus=1)
    made.stub.say("hang", "nvmlInit_v2").write()
    for address in made.addresses:
        made.node.nvidia.unbind(address)
    scan = native_scanner(config(made)).scan()
    assert (scan.devices, complaints(scan), probes(made.stub)) == ([], [], [])


def test_nothing_is_left_of_an_attempt_when_its_scanner_is_killed(host):
    """SIGKILL to the process that scans, while NVML hangs: the asking process dies with it."""
    made = host(gpus=1)
    made.stub.say("hang", "nvmlInit_v2").write()
    script = "import sys, time\nfrom devherd._native import Scanner\nScanner(*sys.argv[1:]).scan()\ntime.sleep(600)"
    command = [sys.executable, "-c", script, str(made.root), config(made, 60).native_json()]
    with subprocess.Popen(command, env=os.environ) as scanning:
        until(lambda: probes(made.stub), "NVML is asked")
        scanning.kill()
    until(lambda: probes(made.stub) == [], "nobody asks NVML any more")
