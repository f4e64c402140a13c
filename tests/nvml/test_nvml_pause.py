"""`devherd run` while NVIDIA's managers want the GPUs for themselves: nothing of NVML is left, and it comes back."""

import shutil
import time
from pathlib import Path

import pytest
import scratch
from nvml_host import Host, askers, put_below
from nvml_stub import Stub

from devherd import spool
from devherd.proto import health_pb2, spool_pb2
from devherd.settings import Settings
from devherd.sources.nvml import main as nvml
from devherd.sources.nvml import session as nvml_answer
from devherd_sim.node.nvidia import NvidiaSpec
from devherd_sim.node.spec import NodeSpec
from devherd_sim.testbed import Testbed

GPU = "nvidia.com/gpu"
CONFIG = {"scan": {"period": "500ms", "probe_timeout": "300ms"}}


@pytest.fixture
def directory():
    """A directory with a path short enough for sockets."""
    path = scratch.directory()
    yield path
    shutil.rmtree(path)


def pause(settings: Settings, value: str = "paused-for-driver-upgrade", seconds_ago: float = 0.0) -> None:
    """As process `kubernetes` writes it."""
    at = time.monotonic() - seconds_ago
    settings.kubernetes_directory.mkdir(exist_ok=True)
    spool.write(
        settings.nvidia_pause_file,
        spool_pb2.NvidiaPause(label="nvidia.com/gpu.deploy.client", value=value, monotonic_seconds=at),
    )


def problems(testbed: Testbed) -> list[str]:
    """What the last scan says of NVML."""
    summary = spool.read(testbed.settings.scan_file, spool_pb2.ScanSummary)
    return [problem.error for problem in summary.problems if problem.path == "libnvidia-ml.so.1"]


async def test_in_a_pause_no_process_has_the_library_and_the_gpus_keep_their_verdicts(
    directory: Path, stub: Stub, monkeypatch: pytest.MonkeyPatch
):
    """Two GPUs, one with an Xid that only a reset ends. Afterwards its events are received again, by a new process."""
    put_below(stub, directory / "node", monkeypatch)
    testbed = Testbed(directory, NodeSpec(nvidia=NvidiaSpec(gpus=3)), CONFIG)
    host = Host(testbed.node, stub)
    uuids = [host.uuid(address) for address in host.addresses]
    async with testbed:
        await testbed.kubelet.until_allocatable(GPU, 3, within=60)
        await testbed.until(lambda: askers(stub), "NVML is open", 60)
        stub.xid(0, 79)
        await testbed.kubelet.until_allocatable(GPU, 2, within=30)

        pause(testbed.settings)
        await testbed.until(lambda: not askers(stub), "no process has the library mapped", 30)
        await testbed.until(
            lambda: any("paused-for-driver-upgrade" in problem for problem in problems(testbed)), "status says why"
        )
        bus = host.addresses[1].rpartition(".")[0]
        testbed.node.kernel_log.write(f"NVRM: Xid (PCI:{bus}): 79, pid='<unknown>', GPU has fallen off the bus.")
        await testbed.kubelet.until_allocatable(GPU, 1, within=30)
        assert (await testbed.kubelet.allocate(GPU, 1)).device_ids == (uuids[2],)
        pause(testbed.settings, "paused-for-mig-change")
        await testbed.until(
            lambda: any("paused-for-mig-change" in problem for problem in problems(testbed)), "the pause goes on"
        )
        assert askers(stub) == []

        testbed.settings.nvidia_pause_file.unlink()
        await testbed.until(lambda: askers(stub), "NVML is open again", 30)
        await testbed.until(lambda: not problems(testbed), "nothing is left to complain about", 30)
        assert testbed.kubelet.allocatable(GPU) == 1
        stub.xid(2, 79)
        await testbed.kubelet.until_allocatable(GPU, 0, within=30)
        assert testbed.kubelet.registrations(GPU) == 1
        assert [name for name, child in testbed.children().items() if child.restarts] == ["source:nvml"]
    assert "Traceback" not in testbed.log


def test_a_pause_that_nobody_writes_any_more_is_over(tmp_path):
    """Its writer may have been switched off, or another boot have written it; what is no pause is none."""
    settings = Settings(run_dir=tmp_path)
    assert nvml.paused(settings.nvidia_pause_file) == ""
    pause(settings, seconds_ago=nvml.PAUSE_SECONDS - 60)
    assert "nvidia.com/gpu.deploy.client to paused-for-driver-upgrade" in nvml.paused(settings.nvidia_pause_file)
    for seconds_ago in (nvml.PAUSE_SECONDS + 1, -60):
        pause(settings, seconds_ago=seconds_ago)
        assert nvml.paused(settings.nvidia_pause_file) == ""
    settings.nvidia_pause_file.write_bytes(b"torn")
    assert nvml.paused(settings.nvidia_pause_file) == ""


def test_a_process_without_an_answer_yet_keeps_all_that_the_last_one_knew():
    """Defect: links that were up, and the evidence that ends findings, were forgotten if NVML did not answer it."""
    at = health_pb2.Target(vendor="nvidia", pci_address="0000:3b:00.0")
    earlier = health_pb2.Findings(
        source="nvml",
        boot_id="1",
        findings=[health_pb2.Finding(at=at, reason="xid", value="79")],
        evidence=[health_pb2.Evidence(at=at, evidence="recovery-none", monotonic_seconds=7)],
        memories=[health_pb2.Memory(card="0000:3b:00.0", variant="nvlinks", text="0 1")],
    )
    said = nvml_answer.Watcher(earlier).message("paused")
    assert said.failed == "paused"
    said.failed = ""
    assert said == earlier
