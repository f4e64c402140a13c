"""`devherd run` on a node whose NVML gets into trouble: what it costs, and what it does not."""

import os
import shutil
import signal
import tempfile
from pathlib import Path

import pytest
from everything_node import pid_of_scanner
from nvml_host import Host, probes
from nvml_stub import Stub

from devherd import spool
from devherd.proto import spool_pb2
from devherd.sim.node.nvidia import NvidiaSpec
from devherd.sim.node.spec import NodeSpec
from devherd.sim.stage import Stage

PARTS = "nvidia.com/mig-1g.10gb"
OTHERS = "example.com/tape"
SPEC = NodeSpec(nvidia=NvidiaSpec(gpus=1, mig=[["1g.10gb"]]))
CONFIG = {
    "scan": {"period": "500ms", "probe_timeout": "300ms"},
    "vendors": {"nvidia": {"mig_strategy": "mixed"}},
    "simulated": [{"name": OTHERS, "count": 2}],
}


@pytest.fixture
def directory():
    """A directory with a path short enough for sockets."""
    path = Path(tempfile.mkdtemp(prefix="dh", dir="/tmp"))
    yield path
    shutil.rmtree(path)


def complaints(stage: Stage) -> str:
    """The problems of the last scan."""
    summary = spool.read(stage.settings.scan_file, spool_pb2.ScanSummary)
    return " ".join(problem.error for problem in summary.problems if problem.path == "libnvidia-ml.so.1")


async def test_a_hang_of_nvml_costs_new_mig_devices_their_names_and_nothing_else(
    directory: Path, stub: Stub, monkeypatch: pytest.MonkeyPatch
):
    """N19: other vendors' devices, known MIG devices and the scanner go on; the new device comes when NVML is back."""
    monkeypatch.setenv("DEVHERD_NVML_STUB", str(stub.file))
    stage = Stage(directory, SPEC, CONFIG)
    host = Host(stage.node, stub)
    host.mig(0, 0, (7, 0), 1, 9728)
    async with stage:
        for name, count in [(PARTS, 1), (OTHERS, 2)]:
            await stage.kubelet.until_registered(name, since=0, within=60)
            await stage.kubelet.until_allocatable(name, count, within=60)
        allocation = await stage.kubelet.allocate(PARTS, 1)
        assert allocation.answer()["envs"] == {"NVIDIA_VISIBLE_DEVICES": "MIG-0-0"}
        registrations = [stage.kubelet.registrations(name) for name in (PARTS, OTHERS)]

        stub.say("hang", "nvmlDeviceGetMigMode").write()
        stage.node.nvidia.create_mig_device(host.addresses[0], "1g.10gb")
        host.mig(0, 1, (8, 0), 1, 9728)
        await stage.until(lambda: "NVML has not answered yet" in complaints(stage), "the hang is told")
        (asker,) = probes(stub)
        await stage.until(lambda: "did not answer within 3 s" in complaints(stage), "the attempt is ended")
        assert asker not in probes(stub)
        assert (await stage.kubelet.allocate(OTHERS, 1)).device_ids
        assert stage.kubelet.allocatable(PARTS) == 1

        stub.forget("hang").write()
        await stage.kubelet.until_allocatable(PARTS, 2, within=60)
        await stage.until(lambda: complaints(stage) == "", "nothing is left to complain about")
        assert not any(child.restarts for child in stage.children().values())
        assert [stage.kubelet.registrations(name) for name in (PARTS, OTHERS)] == registrations
    assert probes(stub) == []
    assert "Traceback" not in stage.log


async def test_a_scanner_killed_while_nvml_hangs_costs_no_known_mig_device(
    directory: Path, stub: Stub, monkeypatch: pytest.MonkeyPatch
):
    """The new scanner has not heard NVML yet: what the last one knew stays, and the kubelet hears nothing."""
    monkeypatch.setenv("DEVHERD_NVML_STUB", str(stub.file))
    stage = Stage(directory, SPEC, CONFIG)
    host = Host(stage.node, stub)
    host.mig(0, 0, (7, 0), 1, 9728)
    async with stage:
        for name, count in [(PARTS, 1), (OTHERS, 2)]:
            await stage.kubelet.until_allocatable(name, count, within=60)
        stub.say("hang", "nvmlInit_v2").write()
        mark = stage.kubelet.events.mark()
        await stage.until(lambda: pid_of_scanner(stage), "the supervisor tells of its scanner")
        os.kill(pid_of_scanner(stage), signal.SIGKILL)
        await stage.until(lambda: "NVML has not answered yet" in complaints(stage), "the hang is told")
        await stage.until(lambda: "did not answer within 3 s" in complaints(stage), "the attempt is ended")
        assert stage.kubelet.allocatable(PARTS) == 1
        assert [event.kind for event in stage.kubelet.events.since(mark)] == []
    assert "Traceback" not in stage.log
