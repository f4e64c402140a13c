"""A driver that has dumped its device's state: a warning for as long as the kernel has the dump."""

import os
from pathlib import Path

import pytest

from devherd.config.loader import resolve
from devherd.config.model import Config
from devherd.errors import UsageError
from devherd.health.policy import FINE, Verdict
from devherd.scanner.observer import Observer
from devherd_sim.node import faults
from devherd_sim.node.amd import AmdSpec
from devherd_sim.node.simulated_node import SimulatedNode
from devherd_sim.node.spec import NodeSpec

DUMPED = Verdict(warnings=("device-dump",))


class Host:
    """A host with cards, and what is held against each."""

    def __init__(self, directory: Path) -> None:
        self.node = SimulatedNode.create(directory / "host", NodeSpec(amd=[AmdSpec(cards=3)]))
        self.observer = Observer(resolve(Config.model_validate({"host_root": self.node.root})))
        self.observer.scan(0.0)
        self.poll()
        by_function = {entry.device.functions[0].path: key for key, entry in self.observer.inventory.entries.items()}
        self.functions = sorted(by_function)
        self._keys = [by_function[function] for function in self.functions]
        assert self.verdicts() == [FINE] * 3

    def address(self, number: int) -> str:
        return Path(self.functions[number]).name

    def poll(self, *, periodic: bool = True) -> None:
        self.observer.poll(periodic=periodic)

    def verdicts(self) -> list[Verdict]:
        return [self.observer.policy.verdict(key) for key in self._keys]


@pytest.fixture
def host(tmp_path):
    return Host(tmp_path)


def test_a_dump_is_a_warning_of_its_device_alone_until_the_kernel_has_removed_it(host):
    """With the driver and the place, for those who want to keep it."""
    faults.inject(host.node, "device-dump", host.address(1))
    host.poll(periodic=False)
    assert host.verdicts() == [FINE, DUMPED, FINE]
    [(_, [held])] = host.observer.policy.all_held()
    driver = (host.node.root / host.functions[1].lstrip("/") / "driver").readlink().name
    place = "/sys/class/devcoredump/devcd1"
    assert (held.finding.file, held.finding.value) == (place, driver)
    assert (
        held.finding.detail == f"{driver} has dumped the device's state; copy {place}/data before the kernel removes it"
    )
    faults.clear(host.node, "device-dump", host.address(1))
    for expected in (DUMPED, DUMPED, FINE):  # three good looks
        host.poll()
        assert host.verdicts()[1] == expected


def test_dumps_of_several_devices_are_told_apart(host):
    """They are numbered in their order, and one that goes leaves the others."""
    for number in (2, 0):
        faults.inject(host.node, "device-dump", host.address(number))
    host.poll()
    assert host.verdicts() == [DUMPED, FINE, DUMPED]
    faults.clear(host.node, "device-dump", host.address(2))
    for _ in range(3):
        host.poll()
    assert host.verdicts() == [DUMPED, FINE, FINE]


def test_the_dump_of_a_part_of_a_card_is_the_card_s_and_that_of_another_device_is_nobody_s(host):
    """Drivers name the device that they drive, which may be one below the PCI function."""
    own, other = (host.node.root / place.lstrip("/") for place in (host.functions[0], host.functions[0] + "0"))
    for number, failing in enumerate((own / "part.0", other), 1):
        failing.mkdir(parents=True)
        dump = host.node.root / f"sys/devices/virtual/devcoredump/devcd{number}"
        listed = host.node.root / "sys/class/devcoredump" / dump.name
        dump.mkdir(parents=True)
        listed.parent.mkdir(exist_ok=True)
        listed.symlink_to(f"../../devices/virtual/devcoredump/{dump.name}")
        (dump / "failing_device").symlink_to(os.path.relpath(failing, dump))
    host.poll()
    assert host.verdicts() == [DUMPED, FINE, FINE]
    [(_, [held])] = host.observer.policy.all_held()
    assert held.finding.value == "", "nothing drives it"


def test_what_is_no_dump_and_one_that_goes_at_this_moment_say_nothing(host):
    """The class has an attribute `disabled`; a dump's link is there a moment later than the dump."""
    place = host.node.root / "sys/class/devcoredump"
    (place / "devcd1").mkdir(parents=True)
    (place / "disabled").write_text("0\n")
    (place / "devcd2").symlink_to("../../devices/virtual/devcoredump/devcd2")
    (place / "devcd3").mkdir()
    (place / "devcd3/failing_device").symlink_to("/")  # no device of this host's
    host.poll()
    assert host.verdicts() == [FINE] * 3


def test_a_class_that_cannot_be_listed_fails_the_source_and_changes_no_device(host):
    """As any source that fails."""
    faults.inject(host.node, "device-dump", host.address(0))
    host.poll()
    place = host.node.root / "sys/class/devcoredump"
    place.rename(place.with_name("away"))
    place.touch()
    for _ in range(4):
        host.poll()
    assert host.verdicts() == [DUMPED, FINE, FINE]
    assert host.observer.policy.seen.failed == {"device-dump": "/sys/class/devcoredump: Not a directory (os error 20)"}


def test_a_second_dump_of_a_device_is_refused_as_by_the_kernel(host):
    """It keeps the first one and drops others."""
    faults.inject(host.node, "device-dump", host.address(0))
    with pytest.raises(UsageError, match=r"there is a dump of .* already"):
        faults.inject(host.node, "device-dump", host.address(0))
