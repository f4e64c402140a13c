"""A card on the bus that no driver has: a scan finds no device there, and says why."""

import shutil
from pathlib import Path

import pytest
from answering import core_settings

from devherd._native import Scanner
from devherd.config.model import Config
from devherd.config.resolution import resolve
from devherd.proto import spool_pb2
from devherd.scanner.core import problem_messages
from devherd.scanner.once import scan_once
from devherd.scanner.pipeline import Pipeline
from devherd_sim.node.presets import PRESETS
from devherd_sim.node.simulated_node import SimulatedNode

CURES = {
    "fpga-8": ("intel-fpga", "load `dfl-pci`, or `intel-fpga-pci` of OPAE"),
    "fpga-opae-2": ("intel-fpga", "load `dfl-pci`, or `intel-fpga-pci` of OPAE"),
    "nvidia-1": ("nvidia", "load `nvidia`"),
    "amd-8": ("amd", "load `amdgpu`"),
    "intel-gpu-2": ("intel-gpu", "load `i915` or `xe`"),
    "xilinx-2": ("xilinx-fpga", "load `xocl` or `xclmgmt` of XRT"),
    "rdma-2": ("rdma", "load `mlx5_core`"),
}


def freshly_installed(root: Path, preset: str) -> Path:
    """The node before any driver is loaded: no function has one, and what drivers make is not there."""
    SimulatedNode.create(root, PRESETS[preset].spec)
    for driver in root.rglob("driver"):
        if driver.is_symlink():
            driver.unlink()
    for made in ("proc/driver", "sys/bus/pci/drivers", "sys/class", "dev"):
        shutil.rmtree(root / made, ignore_errors=True)
    return root


def problems(root: Path, **vendors: object) -> list[spool_pb2.Problem]:
    """Of a scan by `devherd scan`."""
    return scan_once(resolve(Config.model_validate({"host_root": root, "vendors": vendors}))).problems


@pytest.mark.parametrize("preset", CURES)
def test_each_card_without_a_driver_is_a_problem_with_its_cure(tmp_path, preset):
    """On a freshly installed node there was not one line: no device, no problem."""
    root = freshly_installed(tmp_path / "node", preset)
    vendor, cure = CURES[preset]
    said = [problem for problem in problems(root) if problem.error.endswith(f" has no driver: {cure}")]

    assert said
    for problem in said:
        assert (problem.vendor, problem.path) == (vendor, f"/sys/bus/pci/devices/{problem.device}")
    assert problems(root, **{vendor.replace("-", "_"): {"enabled": False}}) == []


@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_no_card_of_a_working_node_is_said_to_lack_its_driver(tmp_path, preset):
    """Nor a virtual function, which may be meant for a virtual machine, nor one that another driver has."""
    SimulatedNode.create(tmp_path / "node", PRESETS[preset].spec)

    assert Scanner(str(tmp_path / "node"), core_settings(tmp_path / "node")).scan().driverless == []


def test_a_driver_that_is_loaded_later_ends_the_problem(tmp_path):
    """The identifiers are known by then; the driver is looked at in each scan."""
    root = tmp_path / "node"
    SimulatedNode.create(root, PRESETS["nvidia-1"].spec)
    scanner = Scanner(str(root), core_settings(root))
    [gpu] = scanner.scan().devices
    link = root / "sys/bus/pci/devices" / gpu.attributes["pci_address"] / "driver"
    target = link.readlink()
    link.unlink()
    before = scanner.scan()
    link.symlink_to(target)

    assert [problem.device for problem in before.driverless] == [gpu.attributes["pci_address"]]
    assert scanner.scan().driverless == []


def test_a_device_that_is_known_has_its_driver_missing_held_against_it_and_is_no_problem_beside(tmp_path):
    """It is said once."""
    root = tmp_path / "node"
    SimulatedNode.create(root, PRESETS["nvidia-1"].spec)
    config = resolve(Config.model_validate({"host_root": root}))
    pipeline = Pipeline(config)
    pipeline.scan(0.0)
    [entry] = pipeline.inventory.entries.values()
    link = root / "sys/bus/pci/devices" / entry.device.attributes["pci_address"] / "driver"
    link.unlink()
    scan = pipeline.scan(1.0)

    assert len(scan.driverless) == 1
    assert problem_messages(scan, config, pipeline.inventory.entries.values()) == []
