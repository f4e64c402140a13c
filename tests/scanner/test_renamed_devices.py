"""Devices that the kernel or udev calls otherwise: under the new name they are offered, of the old one is told."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from devherd.config.loader import resolve
from devherd.config.model import Config
from devherd.health.verdicts import held_messages
from devherd.scanner.observer import Observer
from devherd_sim.node import faults
from devherd_sim.node.presets import preset
from devherd_sim.node.simulated_node import SimulatedNode


@dataclass(frozen=True)
class Case:
    """A device that gets another name."""

    node: str
    fault: str
    at: str
    value: str
    before: str
    """The old name as shown: id or path."""
    now: str
    effect: str
    config: dict[str, Any] = field(default_factory=dict)


CANNOT_START = "its containers cannot start again with the old node"
STICK = {"usb": [{"vendor": "1a86", "product": "7523"}, {"vendor": "18d1", "product": "9302"}], "separate": True}
CASES = {
    "an Intel GPU": Case("intel-gpu-2", "renamed", "card0", "card5", "card0-0", "card5-0", CANNOT_START),
    "an RDMA device": Case(
        "rdma-2",
        "renamed",
        "mlx5_0",
        "rocep1s0f1",
        "mlx5_0",
        "rocep1s0f1",
        "its containers go on with the same nodes, and another pod may be given the device, too",
    ),
    "a stick": Case(
        "generic",
        "replugged",
        "1-1",
        "18d1:9302",
        "/dev/bus/usb/001/002",
        "bus 1 number 7",
        CANNOT_START,
        {"generic": [{"name": "example.com/stick", "groups": [STICK]}]},
    ),
    "a serial adapter": Case(
        "generic",
        "renamed",
        "ttyUSB0",
        "ttyUSB9",
        "/dev/ttyUSB0",
        "/dev/ttyUSB9",
        CANNOT_START,
        {"generic": [{"name": "example.com/serial", "groups": [{"paths": [{"path": "/dev/ttyUSB*"}]}]}]},
    ),
    "a serial adapter of a class": Case(
        "generic",
        "renamed",
        "ttyUSB0",
        "ttyUSB9",
        "ttyUSB0",
        "ttyUSB9",
        CANNOT_START,
        {"classes": {"define": {"serial": {"find": {"class": "tty", "name": "ttyUSB{n}"}}}}},
    ),
}


class Looked:
    """An observer of the case's node, and what it has of a device by the name that people see."""

    def __init__(self, root: Path, case: Case) -> None:
        self.node = SimulatedNode.create(root, preset(case.node))
        self.observer = Observer(resolve(Config.model_validate({"host_root": root, **case.config})))
        self.look(0.0)

    def look(self, clock: float) -> None:
        """A scan and the poll after it."""
        self.observer.scan(clock)
        self.observer.poll(periodic=True)

    def reasons(self) -> dict[str, list[tuple[str, str]]]:
        """Name → reasons with detail, of all devices that are known."""
        found = {}
        for key, entry in self.observer.inventory.entries.items():
            name = entry.device.attributes.get("path", entry.device.id)
            held = held_messages(self.observer.policy, key, self.observer.now(), {})
            found[name] = [(one.reason, one.detail) for one in held]
        return found

    @property
    def lost(self) -> list[str]:
        """What is missed."""
        return [one.device for one in self.observer.gone.lost.message().devices]


@pytest.mark.parametrize("name", CASES)
def test_a_renamed_device_is_offered_and_its_old_name_is_told_what_it_is_now(name: str, tmp_path: Path) -> None:
    """Defect: the old name was lost for ever, and its pod was told to wait for polls that never come."""
    case = CASES[name]
    looked = Looked(tmp_path, case)
    number = len(looked.reasons())
    faults.inject(looked.node, case.fault, case.at, case.value)

    looked.look(1.0)

    told = looked.reasons()
    assert told.pop(case.before) == [("renamed", f"now {case.now}: delete the pod that holds it; {case.effect}")]
    assert (len(told), set(map(tuple, told.values()))) == (number, {()})
    assert (looked.lost, looked.observer.gone.news) == ([], [])
    looked.look(1000.0)
    assert case.before not in looked.reasons()
    assert (looked.lost, looked.observer.gone.news) == ([], [])


@pytest.mark.parametrize("name", CASES)
def test_a_device_that_takes_its_old_name_again_is_well(name: str, tmp_path: Path) -> None:
    """After as many good polls as after any trouble."""
    case = CASES[name]
    looked = Looked(tmp_path, case)
    before = looked.reasons().keys()
    faults.inject(looked.node, case.fault, case.at, case.value)
    looked.look(1.0)
    faults.clear(looked.node, case.fault, case.at, case.value)
    for clock in (2.0, 3.0, 4.0, 1000.0):
        looked.look(clock)
    assert looked.reasons() == {name: [] for name in before}
    assert looked.lost == []


def test_the_way_back_of_an_old_name_is_the_pod_not_a_poll(tmp_path: Path) -> None:
    """Three good polls of it never come."""
    case = CASES["an Intel GPU"]
    looked = Looked(tmp_path, case)
    faults.inject(looked.node, case.fault, case.at, case.value)
    looked.look(1.0)
    [key] = [key for key in looked.observer.inventory.entries if key[2] == case.before]
    [held] = held_messages(looked.observer.policy, key, looked.observer.now(), {})
    assert held.ends.startswith("by deleting the pod that holds it")
