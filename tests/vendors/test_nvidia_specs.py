"""Any node with NVIDIA GPUs: what is served follows from what is there."""

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as some
from nvidia_host import by_index, scanned

from devherd_sim.node.nvidia import NvidiaSpec
from devherd_sim.node.simulated_node import SimulatedNode
from devherd_sim.node.spec import NodeSpec

NUMBERS = some.lists(some.integers(0, 11), max_size=4, unique=True)


SPECS = some.builds(
    NvidiaSpec,
    gpus=some.integers(1, 12),
    numa_nodes=some.integers(0, 4),
    gpus_a_switch=some.integers(1, 4),
    nvml=some.booleans(),
    excluded=NUMBERS,
    uninitialised=NUMBERS,
)


@settings(max_examples=30, deadline=None)
@given(SPECS)
def test_every_gpu_that_users_may_have_is_served_under_its_index(spec: NvidiaSpec):
    """Excluded ones are not counted; one without a UUID is counted and waits, unless NVML tells it."""
    with tempfile.TemporaryDirectory() as directory:
        scan = scanned(SimulatedNode.create(Path(directory) / "node", NodeSpec(nvidia=spec)).root)
    countable = [number for number in range(spec.gpus) if number not in spec.excluded]
    waiting = set() if spec.nvml else {number for number in countable if number in spec.uninitialised}
    served = {str(index): number for index, number in enumerate(countable) if number not in waiting}
    devices = by_index(scan)
    assert {index: int(device.attributes["minor"]) for index, device in devices.items()} == served
    assert len(scan.problems) == len(waiting)
    assert all(len(device.distances) == spec.gpus - 1 for device in devices.values())
    assert all(device.reasons == [] for device in devices.values())
