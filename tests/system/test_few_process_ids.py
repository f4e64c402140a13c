"""devherd where process ids are short: in a pod with `podPidsLimit`, or beside a fork bomb."""

import asyncio
import subprocess
import sys

import pytest
from few_process_ids import few_process_ids

from devherd_sim.node.presets import preset
from devherd_sim.testbed import Testbed

GPU = "nvidia.com/gpu"


@pytest.fixture
def pids():
    """A cgroup with few process ids."""
    with few_process_ids() as pids:
        yield pids


@pytest.mark.timeout(180)
@pytest.mark.parametrize("limit", [6, 8])
async def test_a_resource_whose_process_starts_while_process_ids_are_short_is_registered_when_there_are_some(
    directory, pids, limit
):
    """Defect: its gRPC had no threads, so no deadline ended Register: for 58 minutes all was said to be well.

    How many threads are refused, and thereby what becomes of gRPC, differs with the limit.
    """
    testbed = Testbed(directory, preset("nvidia-1"))
    testbed.command = pids.within(*testbed.command)
    pids.limit(limit)
    async with testbed:
        await testbed.until(lambda: pids.refused, "a process or thread is refused")
        await asyncio.sleep(5)
        pids.lift()
        await asyncio.wait_for(testbed.kubelet.until_allocatable(GPU, 1), 90)
        await testbed.until(testbed.runs, "all processes run")


def test_a_scan_without_threads_blames_no_driver(directory, pids):
    """Defect: "all probe threads hang in the kernel" was said of every vendor, because a thread was refused."""
    testbed = Testbed(directory, preset("nvidia-1"))
    command = pids.within(sys.executable, "-m", "devherd", "scan", f"--host-root={testbed.settings.host_root}")
    pids.limit(1)
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    said = done.stdout + done.stderr
    assert "no thread: Resource temporarily unavailable" in said
    assert "raise the pod's pids limit" in said
    assert "hang" not in said
