"""Simulated AMD nodes have the shape of the machines that were captured (amd.md 4)."""

import re
from pathlib import Path

import pytest

from devherd_sim.node.presets import PRESETS
from devherd_sim.node.simulated_node import SimulatedNode
from devherd_sim.node.spec import NodeSpec

Links = dict[tuple[int, int], int]
"""(type, weight) → how many."""
NODES = "sys/class/kfd/kfd/topology/nodes"


def link_types(directory: Path) -> Links:
    """The links of a node, counted."""
    found: Links = {}
    for properties in directory.glob("*/properties"):
        facts = dict(line.split() for line in properties.read_text().splitlines())
        kind = (int(facts["type"]), int(facts["weight"]))
        found[kind] = found.get(kind, 0) + 1
    return found


@pytest.mark.parametrize(
    ("name", "gpu_nodes", "io_links", "p2p_links"),
    [
        ("amd-8", 8, {(11, 15): 3, (2, 20): 1}, {(2, 72): 4, (2, 52): 1}),
        ("amd-8-mi308", 32, {(11, 13): 3, (11, 41): 28, (2, 20): 1}, {(2, 41): 1}),
        ("amd-8-cpx", 63, {(11, 13): 7, (11, 41): 55, (2, 20): 1}, {}),
        ("amd-1", 1, {(2, 20): 1}, {}),
    ],
)
def test_the_first_gpu_has_the_links_of_the_real_machine(
    name: str,
    gpu_nodes: int,
    io_links: dict[tuple[int, int], int],
    p2p_links: dict[tuple[int, int], int],
    tmp_path: Path,
):
    """Nodes of processors first, then those of GPUs; links by type and weight."""
    SimulatedNode.create(tmp_path, PRESETS[name].spec)
    nodes = sorted((tmp_path / NODES).iterdir(), key=lambda path: int(path.name))
    gpus = [node for node in nodes if re.search("drm_render_minor [1-9]", (node / "properties").read_text())]
    assert gpus == nodes[-gpu_nodes:]
    assert link_types(gpus[0] / "io_links") == io_links
    assert link_types(gpus[0] / "p2p_links") == p2p_links


def test_spare_partitions_have_drm_devices_and_no_node(tmp_path: Path):
    """amd.md 4: 64 DRM directories for 32 devices."""
    SimulatedNode.create(tmp_path, PRESETS["amd-8-mi308"].spec)
    assert len(list((tmp_path / "sys/class/drm").glob("renderD*"))) == 64
    assert len(list((tmp_path / "sys/devices/platform").glob("amdgpu_xcp_*"))) == 56


def test_a_partition_without_a_drm_minor_is_lost(tmp_path: Path):
    """The management controller's display has one of the 64."""
    SimulatedNode.create(tmp_path, PRESETS["amd-8-cpx"].spec)
    cards = {int(path.name.removeprefix("card")) for path in (tmp_path / "sys/class/drm").glob("card*")}
    assert cards == set(range(64))
    assert len(list((tmp_path / "sys/devices/platform").glob("amdgpu_xcp_*"))) == 55


@pytest.mark.parametrize("address", ["0000:19:00", "19:00.0", "0000:19:20.0", "0000:19:00.8", "000G:19:00.0"])
def test_what_is_no_address_is_refused(address: str):
    """As any other slip in a spec."""
    with pytest.raises(ValueError, match=r"amd\.0\.addresses\.0"):
        NodeSpec.model_validate({"amd": {"addresses": [address]}})
