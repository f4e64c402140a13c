"""A card of any vendor that was pulled out is never Healthy again, whatever else of the host cannot be read."""

import shutil
import tempfile
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from remembered import earlier, remembered

from devherd.config.model import Config
from devherd.config.resolution import resolve
from devherd.health.policy import FINE
from devherd.inventory import DeviceKey
from devherd.scanner.pipeline import Pipeline
from devherd_sim.node.amd import AmdSpec
from devherd_sim.node.intel_gpu import IntelGpuSpec
from devherd_sim.node.nvidia import NvidiaSpec
from devherd_sim.node.rdma import RdmaSpec
from devherd_sim.node.simulated_node import SimulatedNode
from devherd_sim.node.spec import FpgaSpec, NodeSpec
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
PLACES = ("sys/bus/pci", "sys/class", "sys/devices", "sys/module", "proc/driver")
"""Where the vendors look; what is below /dev tells whether a node is there, and is not damaged."""


def config_of(root: Path) -> Config:
    return resolve(Config(host_root=root))


def scanned(node: SimulatedNode) -> Pipeline:
    pipeline = Pipeline(config_of(node.root))
    pipeline.scan(0.0)
    pipeline.poll(periodic=True)
    return pipeline


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
            pipeline = scanned(node)
            node.change(TWO[vendor], ONE[vendor])
            for path, how in damaged:
                damage(node.root / path, how)
            if restarts:
                config = config_of(node.root)
                pipeline = Pipeline(config, inventory=remembered(pipeline), earlier=earlier(pipeline))
            for moment in range(1, 6):
                pipeline.scan(float(moment))
                pipeline.poll(periodic=True)
                healthy = {key for key in pipeline.inventory.entries if pipeline.policy.verdict(key) == FINE}
                assert not healthy & pulled(vendor)

    look()
