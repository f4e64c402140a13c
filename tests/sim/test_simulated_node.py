"""A simulated node that changes while it is looked at."""

from dataclasses import replace
from pathlib import Path

import pytest

from devherd.errors import UsageError
from devherd_sim.node import faults
from devherd_sim.node.intel_fpga import CardPlan
from devherd_sim.node.presets import PRESETS
from devherd_sim.node.simulated_node import SimulatedNode


@pytest.fixture
def node(tmp_path: Path) -> SimulatedNode:
    """Two cards, one for each NUMA node."""
    return SimulatedNode.create(tmp_path / "host", PRESETS["fpga-opae-2"].spec)


def test_an_open_attribute_shows_errors_that_come_and_go(node: SimulatedNode):
    """A poller keeps its files open and sees each change."""
    with (node.path_of("intel-fpga-port.0") / "errors/errors").open() as held:
        for change, text in ((faults.inject, "0x1\n"), (faults.clear, "0x0\n")):
            change(node, "fpga-errors", "intel-fpga-port.0")
            held.seek(0)
            assert held.read() == text


def test_a_port_is_reprogrammed_in_place(node: SimulatedNode):
    """The function's id changes; the port, its node and its number stay."""
    faults.inject(node, "afu", "intel-fpga-port.1", "f" * 32)
    assert (node.path_of("intel-fpga-port.1") / "afu_id").read_text() == "f" * 32 + "\n"


def test_a_device_node_goes_and_comes_back(node: SimulatedNode):
    """Its sysfs directory stays, as when udev has removed a node."""
    place = node.root / "dev/intel-fpga-port.0"
    faults.inject(node, "node", "intel-fpga-port.0")
    assert not place.exists()
    faults.clear(node, "node", "intel-fpga-port.0")
    assert place.exists()


def test_a_card_plugged_in_gets_the_next_numbers(node: SimulatedNode):
    """Also beside cards of the other driver."""
    assert node.add_card() == ["dfl-port.0"]
    assert node.add_card() == ["dfl-port.1"]
    plan = CardPlan(driver="opae", path="sys/devices/pci0000:f0/0000:f0:01.0/0000:f1:00.0", ports=2)
    assert node.add_card(plan) == ["intel-fpga-port.2", "intel-fpga-port.3"]
    assert (node.path_of("dfl-port.1").parents[1] / "region2").exists()


def test_a_card_pulled_out_leaves_nothing_behind(node: SimulatedNode):
    """No node, no directory, no dangling link; the other card stays."""
    node.remove_card("intel-fpga-port.0")
    assert node.ports() == ["intel-fpga-port.1"]
    assert not list(node.root.rglob("*port.0"))
    assert not [path for path in node.root.rglob("*") if path.is_symlink() and not path.exists()]


def test_a_link_degrades_and_errors_are_counted(node: SimulatedNode):
    """Health has something to find on the PCI function."""
    function = node.pci_function_of("intel-fpga-port.0")
    faults.inject(node, "link", function.name)
    faults.inject(node, "aer", function.name, "fatal 3")
    assert (function / "current_link_width").read_text() == "1\n"
    assert "TOTAL_ERR_FATAL 3\n" in (function / "aer_dev_fatal").read_text()


def test_a_device_that_is_not_there_is_named(node: SimulatedNode):
    """A slip in a demo or test is one readable line."""
    with pytest.raises(UsageError, match=r"dfl-port\.7"):
        faults.inject(node, "fpga-errors", "dfl-port.7")


def test_a_fault_that_ends_leaves_what_devherd_has_written_meanwhile(node: SimulatedNode, monkeypatch):
    """It had removed a CDI spec that was written while the fault was injected, and brought one back."""
    specs = node.root / "var/run/cdi"
    specs.mkdir(parents=True)
    (specs / "old.json").write_text("{}")
    fault = faults.FAULTS["remove"]

    def inject(*at):
        fault.inject(*at)
        (specs / "old.json").rename(specs / "new.json")

    monkeypatch.setattr(faults, "FAULTS", {"remove": replace(fault, inject=inject)})
    faults.inject(node, "remove", "0000:81:00.0")
    faults.clear(node, "remove", "0000:81:00.0")
    assert [each.name for each in specs.iterdir()] == ["new.json"]
