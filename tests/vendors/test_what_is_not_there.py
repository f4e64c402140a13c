"""What of any vendor's is there no more is never Healthy again, whatever else of the host cannot be read."""

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nvidia_host import vgpu
from remembered import earlier, remembered

from devherd.config.loader import resolve
from devherd.config.model import Config
from devherd.config.resolved import NVML_ANSWER
from devherd.health.policy import FINE
from devherd.inventory import DeviceKey
from devherd.scanner.observer import Observer
from devherd_sim.node.amd import AmdSpec
from devherd_sim.node.entry import Entry
from devherd_sim.node.intel_gpu import IntelGpuSpec
from devherd_sim.node.nvidia import NvidiaSpec
from devherd_sim.node.rdma import RdmaSpec
from devherd_sim.node.simulated_node import SimulatedNode
from devherd_sim.node.spec import FpgaSpec, NodeSpec
from devherd_sim.node.tree import write_tree
from devherd_sim.node.xilinx_fpga import XilinxFpgaSpec

ONE = {
    "amd": NodeSpec(amd=[AmdSpec(model="mi308x", compute_partition="CPX")]),
    "intel-fpga": NodeSpec(fpga=[FpgaSpec()]),
    "intel-gpu": NodeSpec(intel_gpu=[IntelGpuSpec()]),
    "nvidia": NodeSpec(nvidia=NvidiaSpec(gpus=1)),
    "rdma": NodeSpec(rdma=[RdmaSpec()]),
    "xilinx-fpga": NodeSpec(xilinx_fpga=[XilinxFpgaSpec()]),
}
TWO = {
    "amd": NodeSpec(amd=[AmdSpec(model="mi308x", compute_partition="CPX", cards=2)]),
    "intel-fpga": NodeSpec(fpga=[FpgaSpec(cards=2)]),
    "intel-gpu": NodeSpec(intel_gpu=[IntelGpuSpec(cards=2)]),
    "nvidia": NodeSpec(nvidia=NvidiaSpec(gpus=2)),
    "rdma": NodeSpec(rdma=[RdmaSpec(cards=2)]),
    "xilinx-fpga": NodeSpec(xilinx_fpga=[XilinxFpgaSpec(cards=2)]),
}
PLACES = ("sys/bus/mdev", "sys/bus/pci", "sys/class", "sys/devices", "sys/module", "proc/driver")
"""Where the vendors look; what is below /dev tells whether a node is there, and is not damaged."""


def config_of(root: Path, vendors: dict[str, Any] | None = None) -> Config:
    return resolve(Config.model_validate({"host_root": root, "vendors": vendors or {}}))


def scanned(node: SimulatedNode, vendors: dict[str, Any] | None = None) -> Observer:
    observer = Observer(config_of(node.root, vendors))
    observer.scan(0.0)
    observer.poll(periodic=True)
    return observer


@cache
def pulled(vendor: str) -> frozenset[DeviceKey]:
    """The devices that a host with two cards has and one with one has not."""
    with tempfile.TemporaryDirectory() as directory:
        known = [
            set(scanned(SimulatedNode.create(Path(directory) / name, spec)).inventory.entries)
            for name, spec in (("two", TWO[vendor]), ("one", ONE[vendor]))
        ]
    return frozenset(known[0] - known[1])


@cache
def left(vendor: str) -> tuple[str, ...]:
    """Every path at the places where vendors look, on a host with one card."""
    with tempfile.TemporaryDirectory() as directory:
        root = SimulatedNode.create(Path(directory) / "node", ONE[vendor]).root
        paths = (path for place in PLACES for path in [root / place, *(root / place).rglob("*")])
        return tuple(sorted(str(path.relative_to(root)) for path in paths if path.is_symlink() or path.exists()))


def damage(path: Path, how: str) -> None:
    """Make it unreadable: a link to itself for anything, a directory for a file."""
    if not path.is_symlink() and not path.exists():
        return  # below something that is damaged already
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
        path.symlink_to(path.name)
        return
    path.unlink()
    if how == "loop":
        path.symlink_to(path.name)
    else:
        path.mkdir()


@pytest.mark.parametrize("vendor", ONE)
def test_what_is_not_there_is_never_healthy_whatever_else_cannot_be_read(vendor: str):
    """Also by a scanner that starts anew, and knows of the card by what an earlier one left."""
    assert pulled(vendor)

    @settings(max_examples=25, deadline=None)
    @given(st.lists(st.tuples(st.sampled_from(left(vendor)), st.sampled_from(["loop", "directory"]))), st.booleans())
    def look(damaged: list[tuple[str, str]], restarts: bool) -> None:
        with tempfile.TemporaryDirectory() as directory:
            node = SimulatedNode.create(Path(directory) / "node", TWO[vendor])
            observer = scanned(node)
            node.change(TWO[vendor], ONE[vendor])
            for path, how in damaged:
                damage(node.root / path, how)
            if restarts:
                config = config_of(node.root)
                observer = Observer(config, inventory=remembered(observer), earlier=earlier(observer))
            for moment in range(1, 6):
                observer.scan(float(moment))
                observer.poll(periodic=True)
                healthy = {key for key in observer.inventory.entries if observer.policy.verdict(key) == FINE}
                assert not healthy & pulled(vendor)

    look()


def mig_devices_go(node: SimulatedNode) -> None:
    """One of two GPU instances is destroyed, whose nodes stay; NVML answers no more."""
    [address] = node.nvidia.addresses()
    node.nvidia.destroy_mig_device(address, 7)
    (node.root / NVML_ANSWER).unlink()


@dataclass(frozen=True)
class Parts:
    """A card whose parts go while it stays."""

    before: NodeSpec
    go: NodeSpec | Callable[[SimulatedNode], None]
    """The host without the parts, or how they go."""
    told_by: str = ""
    """The path that says which parts there are, and is not damaged where no node goes with them: a glob."""
    vendors: dict[str, Any] = field(default_factory=dict)
    also: Callable[[SimulatedNode], list[Entry]] = lambda _: []
    """What the host has besides."""

    def host(self, directory: str) -> SimulatedNode:
        """The host with the parts."""
        node = SimulatedNode.create(Path(directory) / "node", self.before)
        write_tree(self.also(node), node.root)
        return node

    def leave(self, node: SimulatedNode) -> None:
        """The parts go."""
        if isinstance(self.go, NodeSpec):
            node.change(self.before, self.go)
        else:
            self.go(node)


def amd_under(driver: str, vfs: int) -> NodeSpec:
    return NodeSpec.model_validate({"amd": [{"model": "mi300x", "driver": driver, "vfs": vfs}]})


def a_gpu_leaves_its_driver(node: SimulatedNode) -> None:
    """Its function is gone from the bus; its entry in procfs and its node are left behind."""
    node.functions.pull_out(node.nvidia.addresses()[0])


def two_vgpus(node: SimulatedNode) -> list[Entry]:
    """Two of the first GPU."""
    gpu = str((node.root / "sys/bus/pci/devices" / node.nvidia.addresses()[0]).resolve().relative_to(node.root))
    return [entry for number, uuid in enumerate(VGPUS, 21) for entry in vgpu(uuid, gpu, group=number)]


def a_vgpu_is_removed(node: SimulatedNode) -> None:
    """By its `remove`: the bus has it no more, nor does its GPU; another group has its number, and so its node."""
    of_bus = node.root / "sys/bus/mdev/devices" / VGPUS[1]
    shutil.rmtree(of_bus.resolve())
    of_bus.unlink()


VGPUS = ("aa618089-8b16-4d01-a136-25a0f3c73123", "bb618089-8b16-4d01-a136-25a0f3c73123")
PARTS = {
    "vGPUs": Parts(
        NodeSpec(nvidia=NvidiaSpec(gpus=1)),
        a_vgpu_is_removed,
        "sys/bus/mdev/devices",
        {"nvidia": {"passthrough": True}},
        also=two_vgpus,
    ),
    "GPUs that the driver still lists": Parts(
        NodeSpec(nvidia=NvidiaSpec(gpus=2)), a_gpu_leaves_its_driver, "sys/bus/pci/devices"
    ),
    "MIG devices": Parts(
        NodeSpec(nvidia=NvidiaSpec(nvml=True, mig=[["3g.40gb", "1g.10gb"]])),
        mig_devices_go,
        "proc/driver/nvidia/capabilities/gpu0/mig/gi1/ci0",
        {"nvidia": {"mig_strategy": "mixed"}},
    ),
    "partitions": Parts(
        NodeSpec(amd=[AmdSpec(model="mi300x", compute_partition="CPX")]),
        NodeSpec(amd=[AmdSpec(model="mi300x", compute_partition="SPX")]),
        "sys/devices/pci*/*/*/current_compute_partition",
        {"amd": {"naming": "mixed"}},
    ),
    "AMD virtual functions": Parts(amd_under("gim", 4), amd_under("gim", 2)),
    "Intel virtual functions": Parts(
        NodeSpec(intel_gpu=[IntelGpuSpec(vfs=3)]), NodeSpec(intel_gpu=[IntelGpuSpec(vfs=2)])
    ),
    "RDMA virtual functions": Parts(
        NodeSpec(rdma=[RdmaSpec(vfs=3)]), NodeSpec(rdma=[RdmaSpec(vfs=2)]), vendors={"rdma": {"mode": "sriov"}}
    ),
    "FPGA ports": Parts(NodeSpec(fpga=[FpgaSpec(ports=3)]), NodeSpec(fpga=[FpgaSpec(ports=2)])),
    "FPGA ports of virtual functions": Parts(NodeSpec(fpga=[FpgaSpec(vfs=3)]), NodeSpec(fpga=[FpgaSpec(vfs=2)])),
    "FPGA regions": Parts(
        NodeSpec(fpga=[FpgaSpec(cards=2)]), NodeSpec(fpga=[FpgaSpec()]), vendors={"intel_fpga": {"mode": "region"}}
    ),
    "OPAE's regions": Parts(
        NodeSpec(fpga=[FpgaSpec(driver="opae", cards=2)]),
        NodeSpec(fpga=[FpgaSpec(driver="opae")]),
        vendors={"intel_fpga": {"mode": "region"}},
    ),
}


@cache
def parts_that_go(kind: str) -> tuple[frozenset[DeviceKey], tuple[str, ...]]:
    """The devices that are there before and not after, and every path that may be damaged then."""
    parts = PARTS[kind]
    with tempfile.TemporaryDirectory() as directory:
        node = parts.host(directory)
        before = set(scanned(node, parts.vendors).inventory.entries)
        answer = node.root / NVML_ANSWER
        answered = answer.read_text() if answer.exists() else None
        parts.leave(node)
        telling = (
            {path for end in node.root.glob(parts.told_by) for path in (end, *end.parents)} if parts.told_by else {}
        )
        paths = (path for place in PLACES for path in [node.root / place, *(node.root / place).rglob("*")])
        damageable = sorted(
            str(path.relative_to(node.root))
            for path in paths
            if (path.is_symlink() or path.exists()) and path not in telling
        )
        if answered is not None:
            answer.write_text(answered)
        after = set(scanned(node, parts.vendors).inventory.entries)
    return frozenset(before - after), tuple(damageable)


@pytest.mark.parametrize("kind", PARTS)
def test_a_part_that_is_not_there_is_never_healthy_whatever_else_cannot_be_read(kind: str):
    """The card stays. What is told of it cannot be read, by NVML, KFD or in the tree: no part is kept for that."""
    parts = PARTS[kind]
    gone, damageable = parts_that_go(kind)
    assert gone

    @settings(max_examples=25, deadline=None)
    @given(st.lists(st.tuples(st.sampled_from(damageable), st.sampled_from(["loop", "directory"]))), st.booleans())
    def look(damaged: list[tuple[str, str]], restarts: bool) -> None:
        with tempfile.TemporaryDirectory() as directory:
            node = parts.host(directory)
            observer = scanned(node, parts.vendors)
            parts.leave(node)
            for path, how in damaged:
                damage(node.root / path, how)
            if restarts:
                config = config_of(node.root, parts.vendors)
                observer = Observer(config, inventory=remembered(observer), earlier=earlier(observer))
            for moment in range(1, 6):
                observer.scan(float(moment))
                observer.poll(periodic=True)
                healthy = {key for key in observer.inventory.entries if observer.policy.verdict(key) == FINE}
                assert not healthy & gone

    look()
