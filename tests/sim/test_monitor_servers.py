"""`devherd sim monitor`: devherd's own clients hear of it what `devherd sim fault` has it say."""

import shutil
import signal
import subprocess
import sys
import time

import pytest
import scratch

from devherd.sources.monitors import AmdExporter, Xpumd
from devherd.sources.request import Order
from devherd_sim.node import faults
from devherd_sim.node.faults.services import MONITORS
from devherd_sim.node.presets import preset
from devherd_sim.node.simulated_node import SimulatedNode


@pytest.fixture
def node():
    """AMD's and Intel's GPUs, below a path short enough for sockets."""
    spec = preset("amd-8").model_copy(update={"intel_gpu": preset("intel-gpu-2").intel_gpu})
    directory = scratch.directory()
    yield SimulatedNode.create(directory / "node", spec)
    shutil.rmtree(directory)


def running(node, name):
    """The command, listening."""
    command = [sys.executable, "-m", "devherd", "sim", "monitor", node.root, name]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline().startswith(f"{name} listens on {node.root}")
    return process


def until_it_says(way, *values):
    """Listen until these are the values of what stands."""
    deadline = time.monotonic() + 30
    while sorted(finding.value for finding in way.report.findings.values()) != sorted(values):
        assert time.monotonic() < deadline, way.report.failed or way.report.findings
        way.listen(0.1)


@pytest.mark.parametrize(
    ("name", "way", "ill"), [("amd-exporter", AmdExporter, "unhealthy"), ("xpumd", Xpumd, "failed")]
)
def test_a_gpu_is_as_ill_as_the_fault_says_until_it_is_cleared(node, name, way, ill):
    """And the others are well; a signal ends the server, and its socket is gone."""
    socket = node.root / MONITORS[name].socket
    first = MONITORS[name].gpus(node.root)[0]
    process = running(node, name)
    try:
        order = Order(socket=str(socket), interval=0.1, timeout=5.0, max_age=60.0, on_silence="drop", boot_id="")
        asked = way(order)
        faults.inject(node, name, first, ill)
        until_it_says(asked, ill)
        assert [finding.at.pci_address.partition(".")[0] for finding in asked.report.findings.values()] == [
            first.partition(".")[0]
        ]
        faults.clear(node, name, first)
        until_it_says(asked)
        asked.close()
    finally:
        process.send_signal(signal.SIGTERM)
        code = process.wait(30)
        process.stdout.close()
    assert (code, socket.exists()) == (0, False)
