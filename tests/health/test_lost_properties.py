"""What holds of lost devices on any host: what is there is never missed, and what is lost is never forgotten."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count

from hypothesis import given
from hypothesis import strategies as st

from devherd._native import Device, Fact
from devherd.health.lost import Host, LostDevices, Vanished, renamed
from devherd.inventory import Inventory
from devherd.proto import health_pb2

GONE = health_pb2.Held(source="inventory", reason="gone")
FORGET_AFTER = 3.0
PLACES = ("0000:01:00.0", "0000:02:00.0", "1-1", "1-2")
"""Two slots of GPUs, whose ids the kernel counts, and two USB ports."""
RESOURCE = "example.com/a"


@dataclass(eq=False)
class Hardware:
    """A card or a stick; many have no serial number."""

    serial: str
    seen: tuple[str, int] | None = None
    """Place and name at the last scan of this boot that found it."""
    is_forgettable: bool = False
    """Whether something was put into that place since then that may be it, as far as anybody can tell."""


@dataclass
class Scan:
    """What a scan has found."""

    devices: list[Device]
    vendors: tuple[str, ...] = ("intel-gpu", "generic")
    unseen: tuple[()] = ()
    platforms: dict[str, object] = field(default_factory=dict)


def device(place: str, name: int, serial: str) -> Device:
    """The device of what is at a place, under the name that the kernel has counted."""
    is_card = place.startswith("0000")
    facts = {"pci_address": place, "pci_driver": "xe"} if is_card else {"usb_port": place, "path": f"/dev/usb{name}"}
    return Device(
        vendor="intel-gpu" if is_card else "generic",
        card=place if is_card else f"{RESOURCE} group 0",
        id=f"card{name}-0" if is_card else f"id{name}",
        resource_name=RESOURCE,
        facts={key: Fact("text", text, "") for key, text in (facts | ({"serial": serial} if serial else {})).items()},
    )


class Machine:
    """A host on which hardware is pulled out and put in, and which is scanned after some of these steps."""

    def __init__(self) -> None:
        self.names, self.clock = count(), 0.0
        self.slots: dict[str, tuple[Hardware, int]] = {}
        self.away: list[tuple[Hardware, str, int]] = []
        """What was pulled out, with its last place and name."""
        self.inventory, self.lost = Inventory(), LostDevices()

    def put(self, place: str, hardware: Hardware, name: int) -> None:
        """Put something in; what was there is pulled out."""
        self.pull(place)
        for other in {*(one for one, _, _ in self.away), *(one for one, _ in self.slots.values())} - {hardware}:
            if other.seen is not None and other.seen[0] == place:
                other.is_forgettable |= not (other.serial and hardware.serial) or other.seen[1] == name
        self.away = [one for one in self.away if one[0] is not hardware]
        self.slots[place] = hardware, name

    def pull(self, place: str) -> None:
        """Pull out what is there."""
        if place in self.slots:
            hardware, name = self.slots.pop(place)
            self.away.append((hardware, place, name))

    def do(self, step: str, place: str, serial: bool, again: bool) -> None:
        """One step; `again`: under the last name of that place where something was pulled out of it, else a new one."""
        last = [one for one in self.away if one[1] == place]
        name = last[-1][2] if last and again else next(self.names)
        if step == "new":
            self.put(place, Hardware(f"S{next(self.names)}" if serial else ""), name)
        elif step == "pull":
            self.pull(place)
        elif step == "back" and last:
            self.put(place, last[-1][0], name)
        elif step == "move" and self.away and self.away[-1][0].serial:
            kind = [one for one in PLACES if one.startswith("0000") == self.away[-1][1].startswith("0000")]
            self.put(kind[kind[0] == self.away[-1][1]], self.away[-1][0], next(self.names))
        elif step == "rename" and place in self.slots:
            self.slots[place] = self.slots[place][0], next(self.names)
        elif step == "wait":
            self.clock += FORGET_AFTER
        elif step == "boot":
            self.scan()
            self.inventory, self.lost = Inventory(), LostDevices(self.lost.message())
            for hardware, _ in self.slots.values():
                hardware.seen = None  # what was there before a boot is another file's: `present`

    def scan(self) -> None:
        """As the scanner does."""
        self.clock += 1.0
        for place, (hardware, name) in self.slots.items():
            hardware.seen, hardware.is_forgettable = (place, name), False
        devices = [device(place, name, hardware.serial) for place, (hardware, name) in self.slots.items()]
        self.inventory.observe(Scan(devices), self.clock, FORGET_AFTER, forgotten=self.lost.forgotten)
        entries = self.inventory.entries
        elsewhere = renamed(entries.values())
        gone = [entry for key, entry in entries.items() if entry.gone_since is not None and key not in elsewhere]
        vanished = [Vanished(entry, RESOURCE, self.clock, (), [GONE]) for entry in gone]
        self.lost.observe(vanished, Host(entries, ("intel-gpu", "generic"), (), lambda _: None, self.clock))

    def is_missed(self, place: str, serial: str) -> bool:
        """Whether something with this serial number is missed, or without one something at this place."""
        return any(
            one.serial == serial if serial else not one.serial and place in {one.pci_address, one.port[9:]}
            for one in self.lost.message().devices
        )


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["new", "pull", "back", "move", "rename", "wait", "boot"]),
        st.sampled_from(PLACES),
        st.booleans(),
        st.booleans(),
        st.booleans(),
    ),
    max_size=14,
)


def played(steps: list[tuple[str, str, bool, bool, bool]]) -> Iterator[Machine]:
    """The machine after each scan; there is none between some steps."""
    machine = Machine()
    for step, place, serial, again, is_scanned in steps:
        machine.do(step, place, serial, again)
        if is_scanned:
            machine.scan()
            yield machine


@given(STEPS)
def test_what_is_there_is_never_missed(steps):
    """Under whichever name, in whichever slot, after a boot as before it."""
    for machine in played(steps):
        for place, (hardware, name) in machine.slots.items():
            assert not machine.is_missed(place, hardware.serial), (place, hardware.serial, name)


@given(STEPS)
def test_what_is_lost_is_never_forgotten_while_nothing_like_it_has_come(steps):
    """Another card in its slot, other sticks, names that are given anew: none of these is it."""
    for machine in played(steps):
        for hardware, _, _ in machine.away:
            if hardware.seen is not None and not hardware.is_forgettable:
                assert machine.is_missed(hardware.seen[0], hardware.serial), (hardware.seen, hardware.serial)
