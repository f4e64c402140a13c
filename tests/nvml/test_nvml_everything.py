"""NVML that hangs on the node with everything: what it costs the other vendors' devices."""

import shutil
from pathlib import Path

import pytest
import scratch
from everything_node import CONFIG, GPU, NODE_OF, Absent, scanned
from nvml_host import Host, askers, put_below
from nvml_stub import Stub

from devherd import spool
from devherd.proto import spool_pb2
from devherd_sim.node.presets import preset
from devherd_sim.node.spec import NodeSpec
from devherd_sim.testbed import Testbed


@pytest.fixture
def directory():
    """A directory with a path short enough for sockets."""
    path = scratch.directory()
    yield path
    shutil.rmtree(path)


def without_nvml() -> NodeSpec:
    """The node with everything, whose NVML is a library and not a file with its answer."""
    everything = preset("everything")
    return everything.model_copy(
        update={"nvidia": everything.nvidia.model_copy(update={"nvml": False, "mig": [], "nvlink": "none"})}
    )


async def test_nvml_that_hangs_from_the_start_costs_the_other_vendors_nothing(
    directory: Path, stub: Stub, monkeypatch: pytest.MonkeyPatch
):
    """N19: all their devices register, a failing one of each is seen; NVIDIA's GPUs are those of the driver's files."""
    put_below(stub, directory / "node", monkeypatch)
    quick = {"scan": {"period": "500ms", "probe_timeout": "300ms"}, "health": {"poll": "100ms"}}
    testbed = Testbed(directory, without_nvml(), CONFIG | quick)
    without_asking = {**CONFIG, "vendors": {**CONFIG["vendors"], "nvidia": {"device_discovery_strategy": "procfs"}}}
    sizes = {name: len(devices) for name, devices in scanned(testbed.node.root, without_asking).items()}
    Host(testbed.node, stub)
    stub.say("hang", "nvmlInit_v2").write()

    def complaints() -> str:
        summary = spool.read(testbed.settings.scan_file, spool_pb2.ScanSummary)
        return " ".join(problem.error for problem in summary.problems)

    async with testbed:
        for name, size in sizes.items():
            await testbed.kubelet.until_allocatable(name, size, within=60)
        await testbed.until(lambda: "NVML" in complaints(), "the hang is told")
        for name, node in NODE_OF.items():
            if name in sizes:
                absent = Absent(testbed.node.root, node)
                await testbed.kubelet.until_allocatable(name, sizes[name] - 1, within=30)
                absent.put_back()
                await testbed.kubelet.until_allocatable(name, sizes[name], within=30)
        assert "NVML" in complaints()
        assert not any(child.restarts for name, child in testbed.children().items() if name != "source:nvml")

        stub.forget("hang").write()
        await testbed.until(lambda: complaints() == "", "nothing is left to complain about", 60)
        assert testbed.kubelet.allocatable(GPU) == 8
        assert all(testbed.kubelet.registrations(name) == 1 for name in sizes)
    assert askers(stub) == []
    assert "Traceback" not in testbed.log
