"""`devherd run` on a node whose NVML gets into trouble: what it costs, and what it does not."""

import asyncio
import json
import os
import shutil
import signal
from pathlib import Path

import pytest
import scratch
from everything_node import pid_of_scanner
from hurried import hurried
from nvml_host import Host, askers, put_below
from nvml_stub import Stub

from devherd import spool
from devherd.proto import health_pb2, spool_pb2
from devherd.sources.nvml import session as nvml_answer
from devherd_sim.node import faults
from devherd_sim.node.nvidia import NvidiaSpec
from devherd_sim.node.spec import NodeSpec
from devherd_sim.testbed import Testbed

PARTS = "nvidia.com/mig-1g.10gb"
OTHERS = "example.com/tape"
SPEC = NodeSpec(nvidia=NvidiaSpec(gpus=1, mig=[["1g.10gb"]]))
CONFIG = {
    "scan": {"period": "500ms", "probe_timeout": "300ms"},
    "health": {"poll": "100ms"},
    "vendors": {"nvidia": {"mig_strategy": "mixed"}},
    "simulated": [{"name": OTHERS, "count": 2}],
}


@pytest.fixture
def directory():
    """A directory with a path short enough for sockets."""
    path = scratch.directory()
    yield path
    shutil.rmtree(path)


def complaints(testbed: Testbed) -> str:
    """The problems of the last scan."""
    summary = spool.read(testbed.settings.scan_file, spool_pb2.ScanSummary)
    return " ".join(problem.error for problem in summary.problems if problem.path == "libnvidia-ml.so.1")


async def test_a_hang_of_nvml_costs_new_mig_devices_their_names_and_nothing_else(
    directory: Path, stub: Stub, monkeypatch: pytest.MonkeyPatch
):
    """N19: other vendors' devices, known MIG devices and the scanner go on; the new device comes when NVML is back."""
    put_below(stub, directory / "node", monkeypatch)
    testbed = Testbed(directory, SPEC, CONFIG)
    host = Host(testbed.node, stub)
    host.mig(0, 0, (7, 0), 1, 9728)
    async with testbed:
        for name, count in [(PARTS, 1), (OTHERS, 2)]:
            await testbed.kubelet.until_registered(name, since=0, within=60)
            await testbed.kubelet.until_allocatable(name, count, within=60)
        allocation = await testbed.kubelet.allocate(PARTS, 1)
        assert allocation.answer()["envs"] == {"NVIDIA_VISIBLE_DEVICES": "MIG-0-0"}
        registrations = [testbed.kubelet.registrations(name) for name in (PARTS, OTHERS)]

        stub.say("hang", "nvmlDeviceGetMigMode").write()
        testbed.node.nvidia.create_mig_device(host.addresses[0], "1g.10gb")
        host.mig(0, 1, (8, 0), 1, 9728)
        await testbed.until(lambda: "NVML has not answered yet" in complaints(testbed), "the hang is told")
        (asker,) = askers(stub)
        await testbed.until(lambda: "did not answer within 3 s" in complaints(testbed), "the attempt is ended")
        await testbed.until(lambda: asker not in askers(stub), "its process has ended")
        assert (await testbed.kubelet.allocate(OTHERS, 1)).device_ids
        assert testbed.kubelet.allocatable(PARTS) == 1

        stub.forget("hang").write()
        await testbed.kubelet.until_allocatable(PARTS, 2, within=60)
        await testbed.until(lambda: complaints(testbed) == "", "nothing is left to complain about")
        restarted = {name for name, child in testbed.children().items() if child.restarts}
        assert restarted == {"source:nvml"}
        assert [testbed.kubelet.registrations(name) for name in (PARTS, OTHERS)] == registrations
    assert askers(stub) == []
    assert "Traceback" not in testbed.log


async def test_a_scanner_killed_while_nvml_hangs_costs_no_known_mig_device(
    directory: Path, stub: Stub, monkeypatch: pytest.MonkeyPatch
):
    """The new scanner reads what NVML said last; the kubelet hears nothing."""
    put_below(stub, directory / "node", monkeypatch)
    testbed = Testbed(directory, SPEC, CONFIG)
    host = Host(testbed.node, stub)
    host.mig(0, 0, (7, 0), 1, 9728)
    async with testbed:
        for name, count in [(PARTS, 1), (OTHERS, 2)]:
            await testbed.kubelet.until_allocatable(name, count, within=60)
        stub.say("hang", "nvmlInit_v2").write()
        os.kill((await testbed.child("source:nvml")).pid, signal.SIGKILL)
        mark = testbed.kubelet.events.mark()
        await testbed.until(lambda: pid_of_scanner(testbed), "the supervisor tells of its scanner")
        os.kill(pid_of_scanner(testbed), signal.SIGKILL)
        await testbed.until(lambda: "NVML has not answered yet" in complaints(testbed), "the hang is told")
        await testbed.until(lambda: "did not answer within 3 s" in complaints(testbed), "the attempt is ended")
        assert testbed.kubelet.allocatable(PARTS) == 1
        assert [event.kind for event in testbed.kubelet.events.since(mark)] == []
    assert "Traceback" not in testbed.log


async def test_a_gpu_with_an_xid_is_not_given_out_until_its_driver_has_started_it_anew(
    directory: Path, stub: Stub, monkeypatch: pytest.MonkeyPatch
):
    """79, fallen off the bus: Unhealthy at once, Healthy when it is bound again; nothing is restarted."""
    put_below(stub, directory / "node", monkeypatch)
    testbed = Testbed(directory, NodeSpec(nvidia=NvidiaSpec(gpus=2)), CONFIG)
    host = Host(testbed.node, stub)
    async with testbed:
        await testbed.kubelet.until_allocatable("nvidia.com/gpu", 2, within=60)
        await testbed.until(lambda: answer(testbed).facts, "NVML has answered", 60)
        stub.xid(0, 13)
        await testbed.until(lambda: found(testbed) == [(host.addresses[0], "xid", "13")], "an application's own fault")
        stub.xid(1, 79)
        await testbed.kubelet.until_allocatable("nvidia.com/gpu", 1, within=30)
        assert (await testbed.kubelet.allocate("nvidia.com/gpu", 1)).device_ids == (host.uuid(host.addresses[0]),)
        faults.inject(testbed.node, "unbind", host.addresses[1])
        await testbed.until(lambda: (host.addresses[1], "driver-unbound") in reasons(testbed), "it is seen unbound")
        faults.clear(testbed.node, "unbind", host.addresses[1])
        await testbed.kubelet.until_allocatable("nvidia.com/gpu", 2, within=60)
        assert testbed.kubelet.registrations("nvidia.com/gpu") == 1
        assert [name for name, child in testbed.children().items() if child.restarts] == []


async def test_what_the_driver_wants_done_decides_after_an_xid(
    directory: Path, stub: Stub, monkeypatch: pytest.MonkeyPatch
):
    """Nothing: the GPU is back within moments, whoever told of the Xid. A reset: Unhealthy until none is wanted."""
    put_below(stub, directory / "node", monkeypatch)
    testbed = Testbed(directory, NodeSpec(nvidia=NvidiaSpec(gpus=2)), CONFIG)
    testbed.command = hurried(nvml_look=1.0)
    host = Host(testbed.node, stub)
    stub.field(1, 230, 0)
    async with testbed:
        await testbed.kubelet.until_allocatable("nvidia.com/gpu", 2, within=60)
        await testbed.until(lambda: answer(testbed).facts, "NVML has answered", 60)
        bus = host.addresses[0].rpartition(".")[0]
        testbed.node.kernel_log.write(
            f"NVRM: Xid (PCI:{bus}): 48, An uncorrectable double bit error (DBE) was detected"
        )
        await testbed.kubelet.until_allocatable("nvidia.com/gpu", 1, within=30)
        stub.field(0, 230, 0).xid(0, 48)
        await testbed.kubelet.until_allocatable("nvidia.com/gpu", 2, within=30)
        stub.field(1, 230, 1).xid(1, 119)
        await testbed.until(
            lambda: {(host.addresses[1], "recovery-action"), (host.addresses[1], "xid")} <= reasons(testbed), "both"
        )
        await testbed.kubelet.until_allocatable("nvidia.com/gpu", 1, within=30)
        stub.field(1, 230, 0)
        await testbed.kubelet.until_allocatable("nvidia.com/gpu", 2, within=60)


async def test_an_xid_of_a_mig_device_costs_that_device_alone(
    directory: Path, stub: Stub, monkeypatch: pytest.MonkeyPatch
):
    """By the ids of its instances; one that concerns the whole GPU costs all of its devices."""
    put_below(stub, directory / "node", monkeypatch)
    testbed = Testbed(directory, NodeSpec(nvidia=NvidiaSpec(gpus=1, mig=[["1g.10gb", "1g.10gb"]])), CONFIG)
    host = Host(testbed.node, stub)
    for slot, instance in enumerate([7, 8]):
        host.mig(0, slot, (instance, 0), 1, 9728)
    async with testbed:
        await testbed.kubelet.until_allocatable(PARTS, 2, within=60)
        stub.xid(0, 46, gi=8, ci=0)
        await testbed.kubelet.until_allocatable(PARTS, 1, within=30)
        assert (await testbed.kubelet.allocate(PARTS, 1)).device_ids == ("MIG-0-0",)
        stub.xid(0, 46)
        await testbed.kubelet.until_allocatable(PARTS, 0, within=30)


MIG_CONFIG_CHANGE = 0x100
HANDLES = ("nvmlDeviceGetHandleByPciBusId_v2", "nvmlDeviceGetHandleByIndex_v2")


@pytest.mark.parametrize("is_counted", [True, False])
async def test_a_gpu_that_nvml_cannot_open_is_given_to_no_pod_until_it_can(
    directory: Path, stub: Stub, monkeypatch: pytest.MonkeyPatch, is_counted: bool
):
    """Defect: it stayed Healthy, without a warning. Or NVML does not count it, though the driver has it."""
    put_below(stub, directory / "node", monkeypatch)
    testbed = Testbed(directory, NodeSpec(nvidia=NvidiaSpec(gpus=2)), CONFIG)
    testbed.command = hurried(nvml_look=1.0, nvml_second_look=0.5)
    host = Host(testbed.node, stub)
    lines = list(stub.lines)
    if is_counted:
        for function in HANDLES:
            stub.say("fail", function, 999, gpu=1)
    else:
        stub.lines.pop()
    stub.write()
    async with testbed:
        await testbed.kubelet.until_registered("nvidia.com/gpu", since=0, within=60)
        await testbed.until(lambda: reasons(testbed) == {(host.addresses[1], "gpu-lost")}, "it is lost", 60)
        await testbed.kubelet.until_allocatable("nvidia.com/gpu", 1, within=30)
        assert (await testbed.kubelet.allocate("nvidia.com/gpu", 1)).device_ids == (host.uuid(host.addresses[0]),)
        stub.lines = lines
        stub.write()
        await testbed.kubelet.until_allocatable("nvidia.com/gpu", 2, within=60)
        assert [name for name, child in testbed.children().items() if child.restarts] == []


async def test_a_gpu_that_nvml_may_not_open_is_a_warning(directory: Path, stub: Stub, monkeypatch: pytest.MonkeyPatch):
    """No permission, or no node in the container: that says nothing of the GPU."""
    put_below(stub, directory / "node", monkeypatch)
    testbed = Testbed(directory, NodeSpec(nvidia=NvidiaSpec(gpus=3)), CONFIG)
    testbed.command = hurried(nvml_look=1.0)
    host = Host(testbed.node, stub)
    stub.say("fail", HANDLES[0], 4, gpu=1).say("fail", HANDLES[0], 6, gpu=2).write()
    async with testbed:
        await testbed.kubelet.until_allocatable("nvidia.com/gpu", 3, within=60)
        faults.inject(testbed.node, "node", "nvidia2")
        both = {(address, "not-examined") for address in host.addresses[1:]}
        await testbed.until(lambda: both <= reasons(testbed), "both are warned of", 60)
        await testbed.kubelet.until_allocatable("nvidia.com/gpu", 2, within=30)


async def test_an_xid_that_a_reset_ends_is_over_when_nvml_shows_that_the_gpu_was_started_again(
    directory: Path, stub: Stub, monkeypatch: pytest.MonkeyPatch
):
    """Defect: after `nvidia-smi -r` it was held for ever. The GPU is let go of before, or it could not be reset."""
    put_below(stub, directory / "node", monkeypatch)
    testbed = Testbed(directory, NodeSpec(nvidia=NvidiaSpec(gpus=2)), CONFIG)
    testbed.command = hurried(nvml_look=1.0)
    host = Host(testbed.node, stub)
    for gpu in (0, 1):
        stub.say("persistence", gpu=gpu, mode=1).field(gpu, 230, 0).field(gpu, 83, 7_000_000, type=3)
    async with testbed:
        await testbed.kubelet.until_allocatable("nvidia.com/gpu", 2, within=60)
        await testbed.until(lambda: answer(testbed).facts, "NVML has answered", 60)
        stub.xid(1, 119)
        await testbed.kubelet.until_allocatable("nvidia.com/gpu", 1, within=30)
        await testbed.until(lambda: at_last(testbed, host.addresses[1]) > xid_at(testbed), "it is looked at", 60)
        stub.field(1, 83, 1_000, type=3)
        await testbed.kubelet.until_allocatable("nvidia.com/gpu", 2, within=60)


def at_last(testbed: Testbed, address: str) -> float:
    """When the counters of a GPU were read last."""
    file = spool.path_of(testbed.settings.findings_directory, "nvml")
    memories = spool.read_or_empty(file, health_pb2.Findings).memories
    return max([0.0, *(json.loads(one.text)["monotonic"] for one in memories if one.variant == "counters")])


def xid_at(testbed: Testbed) -> float:
    """When the last Xid happened."""
    file = spool.path_of(testbed.settings.findings_directory, "nvml")
    return max(one.last_monotonic_seconds for one in spool.read_or_empty(file, health_pb2.Findings).findings)


@pytest.mark.parametrize("is_event_first", [False, True])
async def test_a_mig_device_that_is_gone_is_given_to_no_pod_as_soon_as_nvml_tells_of_a_change(
    directory: Path, stub: Stub, monkeypatch: pytest.MonkeyPatch, is_event_first: bool
):
    """The periodic scan is minutes away: an event is looked after at once and, as it may be early, a second later."""
    put_below(stub, directory / "node", monkeypatch)
    testbed = Testbed(directory, SPEC, {**CONFIG, "scan": {"period": "10m", "probe_timeout": "3s"}})
    host = Host(testbed.node, stub)
    host.mig(0, 0, (7, 0), 1, 9728)
    async with testbed:
        await testbed.kubelet.until_allocatable(PARTS, 1, within=60)
        scanned = scanned_at(testbed)
        stub.forget("mig")
        if is_event_first:
            stub.event(0, MIG_CONFIG_CHANGE)
            await testbed.until(lambda: scanned_at(testbed) > scanned, "the event has started a scan")
        testbed.node.nvidia.destroy_mig_device(host.addresses[0], 7)
        if not is_event_first:
            stub.event(0, MIG_CONFIG_CHANGE)
        await testbed.kubelet.until_allocatable(PARTS, 0, within=30)


def scanned_at(testbed: Testbed) -> float:
    """The wall-clock second of the last scan."""
    return spool.read_or_empty(testbed.settings.scan_file, spool_pb2.ScanSummary).timestamp_seconds


def found(testbed: Testbed) -> list[tuple[str, str, str]]:
    """What process `source:nvml` holds against which GPU."""
    file = spool.path_of(testbed.settings.findings_directory, "nvml")
    findings = spool.read_or_empty(file, health_pb2.Findings).findings
    return [(finding.at.pci_address, finding.reason, finding.value) for finding in findings]


def reasons(testbed: Testbed) -> set[tuple[str, str]]:
    """What is held against which card, by the policy."""
    verdicts = spool.read_or_empty(testbed.settings.verdicts_file, health_pb2.Verdicts).verdicts
    return {(verdict.card, held.reason) for verdict in verdicts for held in verdict.held}


def answer(testbed: Testbed) -> nvml_answer.Answer:
    """What process `source:nvml` has written."""
    return nvml_answer.read_answer(testbed.settings.nvml_answer_file)


async def test_a_first_registration_is_not_delayed_by_nvml_that_hangs(
    directory: Path, stub: Stub, monkeypatch: pytest.MonkeyPatch
):
    """All that needs no NVML is registered long before NVML is given up: GPUs, and what is not NVIDIA's."""
    put_below(stub, directory / "node", monkeypatch)
    config = {**CONFIG, "scan": {"probe_timeout": "4s"}, "vendors": {}}
    testbed = Testbed(directory, NodeSpec(nvidia=NvidiaSpec(gpus=1)), config)
    Host(testbed.node, stub)
    stub.say("hang", "nvmlInit_v2").write()
    async with testbed:
        for name in ("nvidia.com/gpu", OTHERS):
            await testbed.kubelet.until_registered(name, since=0, within=60)
        assert answer(testbed).failures == 0
        await testbed.until(lambda: askers(stub), "NVML is asked", 60)
        assert answer(testbed).facts is None
    assert askers(stub) == []


async def test_a_restarted_instance_knows_at_once_what_nvml_said_before(
    directory: Path, stub: Stub, monkeypatch: pytest.MonkeyPatch
):
    """Same boot, same driver, and NVML hangs now: the MIG device is registered as before."""
    put_below(stub, directory / "node", monkeypatch)
    testbed = Testbed(directory, SPEC, CONFIG)
    host = Host(testbed.node, stub)
    host.mig(0, 0, (7, 0), 1, 9728)
    async with testbed:
        await testbed.kubelet.until_allocatable(PARTS, 1, within=60)
        stub.say("hang", "nvmlInit_v2").write()
        await testbed.stop_herd()
        before = testbed.kubelet.registrations(PARTS)
        await testbed.start_herd()
        await testbed.until(lambda: testbed.kubelet.registrations(PARTS) > before, "it is registered again", 60)
        await testbed.kubelet.until_allocatable(PARTS, 1, within=60)


async def test_a_container_is_ended_for_a_newer_driver_and_its_next_start_has_nvml(
    directory: Path, stub: Stub, monkeypatch: pytest.MonkeyPatch
):
    """Defect: after an upgrade of the driver nothing brought NVML back. Code 0, the GPUs allocatable until then."""
    put_below(stub, directory / "node", monkeypatch)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
    stub.driver = "570.86.15"
    testbed = Testbed(directory, NodeSpec(nvidia=NvidiaSpec(gpus=1)), CONFIG)
    testbed.command = hurried(newer_driver=1.0)
    Host(testbed.node, stub)
    stub.say("fail", "nvmlInit_v2", 18).write()
    await testbed.kubelet.start()
    await testbed.start_herd("--restart-for-driver")
    assert testbed.herd is not None
    await testbed.kubelet.until_allocatable("nvidia.com/gpu", 1, within=60)
    assert await asyncio.wait_for(testbed.herd.wait(), 60) == 0
    words = "the NVIDIA driver 580.95.05 is newer than the library 570.86.15 of this container: devherd ends"
    assert words in testbed.log

    stub.driver = "580.95.05"
    (directory / "node/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1").unlink()
    stub.put_below(directory / "node")
    stub.forget("fail").write()
    await testbed.start_herd("--restart-for-driver")
    await testbed.until(lambda: answer(testbed).facts, "NVML has answered", 60)
    assert await testbed.stop_herd() == 0
    await testbed.kubelet.stop(clean=True)
    assert "Traceback" not in testbed.log


def is_running(testbed: Testbed, name: str) -> bool:
    child = testbed.children().get(name)
    return child is not None and child.state == "RUNNING"


async def test_nvml_has_a_process_only_while_the_driver_has_gpus(
    directory: Path, stub: Stub, monkeypatch: pytest.MonkeyPatch
):
    """None on a node without NVIDIA GPUs, one when the driver is loaded late, none when the GPUs are gone."""
    put_below(stub, directory / "node", monkeypatch)
    testbed = Testbed(directory, NodeSpec(nvidia=NvidiaSpec(gpus=1)), CONFIG)
    (address,) = testbed.node.nvidia.addresses()
    Host(testbed.node, stub)
    faults.inject(testbed.node, "unbind", address)
    async with testbed:
        await testbed.kubelet.until_registered(OTHERS, since=0, within=60)
        assert "source:nvml" not in testbed.children()
        faults.clear(testbed.node, "unbind", address)
        await testbed.until(lambda: answer(testbed).facts, "NVML has answered", 60)
        await testbed.until(lambda: is_running(testbed, "source:nvml"), "it is seen to run", 60)
        faults.inject(testbed.node, "unbind", address)
        await testbed.until(lambda: "source:nvml" not in testbed.children(), "its process is gone", 60)
    assert askers(stub) == []
