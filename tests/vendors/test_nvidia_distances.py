"""How far GPUs are from each other: NVIDIA's pair scores turned round, nvidia.md 3.8."""

from itertools import combinations
from pathlib import Path

import pytest
from nvidia_host import by_index, scanned, simulated

from devherd._native import Scan
from devherd_sim.node.presets import preset
from devherd_sim.node.simulated_node import SimulatedNode

BEST = 1860
SYSTEM, NODE, HOST_BRIDGE, MULTIPLE, SINGLE = 10, 20, 30, 40, 50


def scores(scan: Scan) -> dict[tuple[int, int], int]:
    """NVIDIA's score of every pair, by index; both say the same."""
    devices = by_index(scan)
    made = {}
    for one, other in combinations(sorted(devices, key=int), 2):
        distance = devices[one].distances[devices[other].card]
        assert devices[other].distances[devices[one].card] == distance
        made[int(one), int(other)] = BEST - distance
    return made


def of_preset(name: str, root: Path) -> dict[tuple[int, int], int]:
    """Scores on a preset's node."""
    return scores(scanned(SimulatedNode.create(root / "node", preset(name)).root))


def test_pairs_rank_by_switch_then_host_bridge_then_numa_node(tmp_path: Path):
    """8 GPUs, two below each switch, two switches below each of two host bridges, without NVML."""
    expected = {
        (one, other): SINGLE if one // 2 == other // 2 else HOST_BRIDGE if one // 4 == other // 4 else SYSTEM
        for one, other in combinations(range(8), 2)
    }
    assert of_preset("nvidia-8", tmp_path) == expected


def test_direct_links_count_a_hundred_each(tmp_path: Path):
    """The cube mesh of a DGX-1: two links beat one, one beats the best place in the PCI tree."""
    made = of_preset("nvidia-8-nvlink", tmp_path)
    assert made[0, 3] == HOST_BRIDGE + 200
    assert made[0, 1] == SINGLE + 100
    assert made[0, 4] == SYSTEM + 200
    assert made[0, 5] == SYSTEM
    assert sum(score // 100 for score in made.values()) == 8 * 6 // 2


@pytest.mark.parametrize(("name", "below_a_switch"), [("nvidia-8-nvswitch", 2), ("nvidia-16-nvswitch", 4)])
def test_all_gpus_of_a_fabric_are_linked_alike_and_pci_decides_among_them(
    name: str, below_a_switch: int, tmp_path: Path
):
    """N4: links to NVLink switches count, where the peer sees only PCI."""
    made = of_preset(name, tmp_path)
    assert {score // 100 for score in made.values()} == {18}
    near = {pair for pair, score in made.items() if score == 1800 + SINGLE}
    assert near == {(one, other) for one, other in made if one // below_a_switch == other // below_a_switch}


def test_devices_of_one_gpu_are_closest_to_each_other(tmp_path: Path):
    """N6: MIG devices say so of their own card; whole GPUs have nothing to say."""
    node = simulated(tmp_path, gpus=2, nvml=True, mig=[["3g.40gb", "3g.40gb"], None])
    devices = by_index(scanned(node.root, mig_strategy="mixed"))
    assert devices["0:0"].distances == devices["0:1"].distances
    assert devices["0:0"].distances == {devices["0:0"].card: 0, devices["1"].card: BEST - HOST_BRIDGE}
    assert devices["1"].card not in devices["1"].distances


def test_a_gpu_that_cannot_be_read_keeps_its_place(tmp_path: Path):
    """Its distance is told all the same: the others' answers do not change while it is away."""
    node = simulated(tmp_path, gpus=2)
    before = scanned(node.root).devices[0]
    gone = next(one for one in node.nvidia.addresses() if one != before.card)
    information = node.root / f"proc/driver/nvidia/gpus/{gone}/information"
    information.unlink()
    information.mkdir()
    (left,) = scanned(node.root).devices
    assert left == before
