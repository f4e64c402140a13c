"""A host with AMD GPUs, and what AMD's own plugin would make of it: for the tests beside it."""

import re
from pathlib import Path

from answering import Answered, AnsweredScan, AnsweringScanner, core_settings

from devherd_sim.node.amd import AmdSpec
from devherd_sim.node.simulated_node import SimulatedNode
from devherd_sim.node.spec import NodeSpec

DRIVER = "sys/module/amdgpu/drivers/pci:amdgpu"
TOPOLOGY = "sys/class/kfd/kfd/topology"


def host(root: Path, *groups: AmdSpec, tree: str = "") -> Path:
    """A node with these GPUs, and a tree put on top."""
    return SimulatedNode.create(root, NodeSpec(amd=[*groups], tree=tree)).root


def scanner(root: Path, **options: object) -> AnsweringScanner:
    """Looks for AMD GPUs and nothing else."""
    return AnsweringScanner(str(root), core_settings(root, amd=options))


def scanned(root: Path, **options: object) -> AnsweredScan:
    """One scan."""
    return scanner(root, **options).scan()


def by_id(scan: AnsweredScan) -> dict[str, Answered]:
    """The devices of a scan."""
    return {device.id: device for device in scan.devices}


def names(scan: AnsweredScan) -> dict[str, int]:
    """How many devices go by each resource name."""
    found = [str(device.resource_name) for device in scan.devices]
    return {name: found.count(name) for name in sorted(set(found))}


def function(root: Path, address: str) -> Path:
    """The directory of a PCI function."""
    return (root / "sys/bus/pci/devices" / address).resolve()


def advertised_by_the_vendors_plugin(root: Path) -> dict[str, list[str]]:
    """Device id → nodes that AMD's plugin would answer, read from the tree by its own rules (amd.md 1.1, 1.3, 1.6)."""
    in_use = {
        int(found[1])
        for properties in (root / TOPOLOGY / "nodes").glob("*/properties")
        if (found := re.search(r"^drm_render_minor (\d+)$", properties.read_text(), re.MULTILINE))
    }
    devices = {path.name: path for path in (root / DRIVER).iterdir() if re.fullmatch(r"[0-9a-f]{4}:.*", path.name)}
    devices |= {path.name: path for path in (root / "sys/devices/platform").glob("amdgpu_xcp_*")}
    answers = {}
    for name, path in devices.items():
        nodes = sorted(entry.name for entry in (path / "drm").iterdir())
        if any(node == f"renderD{minor}" for minor in in_use for node in nodes):
            answers[name] = ["/dev/kfd", *(f"/dev/dri/{node}" for node in nodes)]
    return answers
