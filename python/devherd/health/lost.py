"""Lost devices: offered devices that have vanished. They are kept until they are back or an operator forgets them.

The kernel counts some names anew: `card1` comes back as `card2`, a USB stick under the next number. Such a device is
found by what stays: its UUID, its serial number, the address of its PCI function, its USB port, the directory above it.

A device is not lost if the configuration dropped it, if it was cordoned before, if its card is present but divided
differently (MIG devices, partitions, virtual functions), or if another driver has its PCI function, as for a virtual
machine. `LostDevices` is a pure state machine; `LostFile` keeps it in `<run-dir>/lost.pb` and, across boots, in the
state directory.
"""

import contextlib
import logging
import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from devherd import spool
from devherd._native import Finding, vendors
from devherd.health.places import GENERIC, kind_of, part_of, place_of, port_of, whole_of
from devherd.inventory import DeviceKey, Entry
from devherd.log import Once
from devherd.proto import health_pb2
from devherd.reasons.registry import CORDONED, GONE, INVENTORY, OPERATOR, RENAMED
from devherd.text import duration, place

log = logging.getLogger(__name__)

_USB_NODE = re.compile(r"/dev/bus/usb/0*(\d+)/0*(\d+)")
_ROWS = {row.name: row for row in vendors()}

DriverAt = Callable[[str], str | None]
"""Returns the driver of the PCI function at an address: empty without a driver, None without a function."""


@dataclass(frozen=True, slots=True)
class Vanished:
    """A device that is gone."""

    entry: Entry
    resource_name: str
    since: float
    """Unix second of the first scan without it."""
    pods: Sequence[str] = ()
    """Pods that hold it, as far as is known."""
    findings: Sequence[health_pb2.Held] = ()
    """The findings held against it, including the one that it is gone."""


@dataclass(frozen=True, slots=True)
class News:
    """A change of a lost device; `text` completes a sentence that begins with the device."""

    device: health_pb2.LostDevice
    text: str
    is_over: bool
    """True if it is no longer lost."""


@dataclass(frozen=True)
class Host:
    """The present state of the host."""

    entries: Mapping[DeviceKey, Entry]
    vendors: Collection[str]
    """The vendors that are scanned, and the device classes that are served."""
    dropped: Collection[str]
    """Vendors and classes whose options have changed: devices of theirs without a PCI function may be unwanted."""
    driver_at: DriverAt
    now: float
    """Unix second."""

    @cached_property
    def found(self) -> "_Found":
        """The present devices, indexed by the facts that identify a lost device."""
        return _Found(entry for entry in self.entries.values() if entry.is_found)


class _Found:
    """An index of present devices. Facts are read once per device: a node may lose a thousand and keep as many."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        self.cards: set[tuple[str, str]] = set()
        self.addresses: set[tuple[str, str]] = set()
        self.by_uuid: dict[tuple[str, str], tuple[Entry, Mapping[str, str]]] = {}
        self.by_serial: dict[tuple[str, str], list[tuple[Entry, Mapping[str, str]]]] = {}
        self.by_place: dict[tuple[str, str], list[tuple[Entry, Mapping[str, str]]]] = {}
        for entry in entries:
            kind, attribute = entry.configured_by, entry.device.attribute
            self.cards.add((entry.vendor, entry.device.card))
            self.addresses.add((kind, entry.pci_address or ""))
            if uuid := attribute("uuid"):
                self.by_uuid[kind, uuid] = entry, entry.device.attributes
            if serial := attribute("serial"):
                self.by_serial.setdefault((kind, serial), []).append((entry, entry.device.attributes))
            if (place := place_of(entry)) is not None:
                self.by_place.setdefault(place, []).append((entry, entry.device.attributes))

    def with_serial(self, device: health_pb2.LostDevice) -> list[tuple[Entry, Mapping[str, str]]]:
        """The devices with this one's serial number."""
        return self.by_serial.get((kind_of(device), device.serial), [])

    def at_place_of(self, device: health_pb2.LostDevice) -> list[tuple[Entry, Mapping[str, str]]]:
        """The devices at this one's place."""
        kind = kind_of(device)
        port = device.card if device.vendor == GENERIC else kind, device.port
        return self.by_place.get(port if device.port else (kind, f"{device.pci_address} {device.part}"), [])

    def there_before(self, device: health_pb2.LostDevice, gone_since: float) -> list[str]:
        """The ids of the devices with this one's serial number, or at its place, that were found before it was gone."""
        alike = [*self.with_serial(device), *self.at_place_of(device)]
        return sorted({entry.device.id for entry, _ in alike if entry.found_since < gone_since})

    def instead_of(self, device: health_pb2.LostDevice) -> list[Entry]:
        """The devices with this one's UUID, or that came to its place; none with another UUID or serial number."""
        if (kind_of(device), device.uuid) in self.by_uuid:
            return [self.by_uuid[kind_of(device), device.uuid][0]]
        identity = ("uuid", device.uuid), ("serial", device.serial)
        return [
            entry
            for entry, facts in self.at_place_of(device)
            if entry.device.id not in device.others
            and all(facts.get(name, known) == known for name, known in identity if known)
        ]


def renamed(entries: Iterable[Entry]) -> dict[DeviceKey, list[Entry]]:
    """The devices that are gone and present under other names, each with those; several where it is not clear which."""
    entries = list(entries)
    gone = [entry for entry in entries if entry.gone_since is not None]
    if not gone:
        return {}
    found = _Found(entry for entry in entries if entry.is_found)
    present = {entry.key: found.instead_of(_vanished(entry, entry.resource_name, found)) for entry in gone}
    return {key: there for key, there in present.items() if there}


def renaming(gone: Entry, there: Sequence[Entry]) -> Finding:
    """The finding against a device that is present under other names, for people who have a pod that holds it."""
    names = " or ".join(map(_name_of, there))
    before, now = (_nodes_of(entries) for entries in ([gone], there))
    if before and before <= now:
        effect = "its containers go on with the same nodes, and another pod may be given the device, too"
    else:
        effect = "its containers cannot start again with the old node"
    detail = f"now {names}: delete the pod that holds it; {effect}"
    return Finding(source=INVENTORY, reason=RENAMED, detail=detail, value=names)


def _name_of(entry: Entry) -> str:
    """What people call it: the id; of USB devices bus and number, of other generic devices the path."""
    if entry.vendor != GENERIC:
        return entry.device.id
    paths = [path.path for path in entry.device.paths]
    numbers = [_USB_NODE.fullmatch(path) for path in paths]
    named = (
        f"bus {number[1]} number {number[2]}" if number else path for path, number in zip(paths, numbers, strict=True)
    )
    return ", ".join(named)


def _nodes_of(entries: Iterable[Entry]) -> set[tuple[str, tuple[int, int] | None]]:
    return {(path.path, path.number) for entry in entries for path in entry.device.paths if path.is_node}


class LostDevices:
    """The devices that are missed, by vendor, card and id."""

    def __init__(self, known: health_pb2.Lost | None = None) -> None:
        known = known or health_pb2.Lost()
        self._lost = {key_of(device): device for device in known.devices}
        self.forgotten = {(one.vendor, one.card, one.device) for one in known.forgotten}
        """Devices that are gone and still listed, and that an operator has forgotten."""

        self._awaited: dict[DeviceKey, health_pb2.LostDevice] = {}
        """Devices that were present before this boot, and that no scan has found since."""

    def __bool__(self) -> bool:
        return bool(self._lost or self.forgotten or self._awaited)

    def await_all(self, devices: Iterable[health_pb2.LostDevice]) -> None:
        """Wait for these devices, which were present before this boot; those not found in time are lost."""
        self._awaited = {key_of(device): device for device in devices if key_of(device) not in self._lost}

    @property
    def is_waiting(self) -> bool:
        """Whether a device from before this boot is still awaited."""
        return bool(self._awaited)

    def end_of_waiting(self, host: Host) -> list[News]:
        """Stop waiting: the awaited devices that no scan has found are lost now."""
        awaited, self._awaited = self._awaited, {}
        news = []
        for key, device in awaited.items():
            if not _is_there(key, device, host):
                device.since_timestamp_seconds = host.now
                self._lost[key] = device
                news.append(News(device, f"is missing since the boot: {described(device)}", is_over=False))
        return news

    def message(self) -> health_pb2.Lost:
        """The content of the file."""
        message = health_pb2.Lost(devices=[self._lost[key] for key in sorted(self._lost)])
        for vendor, card, device in sorted(self.forgotten):
            message.forgotten.add(vendor=vendor, card=card, device=device)
        return message

    def observe(self, vanished: Iterable[Vanished], host: Host) -> list[News]:
        """Apply a scan; `vanished`: all devices that are gone, still listed, and Unhealthy because they are gone."""
        news = []
        for one in vanished:
            if (known := self._lost.get(one.entry.key)) is not None:
                _update(known, one)
            elif one.entry.key not in self.forgotten and not _is_cordoned(one.findings):
                self._lost[one.entry.key] = _lost_device(one, host.found)
        gone = {key for key, entry in host.entries.items() if entry.gone_since is not None}
        self.forgotten &= gone
        for key, device in list(self._lost.items()):
            if (text := _why_not_missed(key, device, host)) is not None:
                del self._lost[key]
                if not device.is_listed:  # otherwise its verdict says so
                    news.append(News(device, text, is_over=True))
            elif device.is_listed and key not in gone:
                device.is_listed = False
                news.append(News(device, f"is missing: {described(device)}", is_over=False))
        return news

    def forget(self, orders: Iterable[health_pb2.ForgetOrder]) -> None:
        """Stop missing these devices. An order is ignored if its device is back, or was lost again later."""
        for order in orders:
            key = order.vendor, order.card, order.device
            device = self._lost.get(key)
            if device is not None and device.since_timestamp_seconds == order.since_timestamp_seconds:
                del self._lost[key]
                if device.is_listed:
                    self.forgotten.add(key)


def _is_there(key: DeviceKey, device: health_pb2.LostDevice, host: Host) -> bool:
    """Whether a device from before the boot is present, or another at its address because the card was replaced."""
    if _why_not_missed(key, device, host) is not None:
        return True
    return (kind_of(device), device.pci_address) in host.found.addresses


def present(offered: Iterable[tuple[Entry, str]], cordoned: Collection[DeviceKey]) -> list[health_pb2.LostDevice]:
    """The whole PCI devices that are present and not cordoned, with their resources; the next boot expects them."""
    found = [
        _described_device(entry, name)
        for entry, name in offered
        if entry.gone_since is None and entry.key not in cordoned and _is_whole(entry)
    ]
    boards: dict[str, list[str]] = {}
    for device in found:
        boards.setdefault(device.serial, []).append(device.device)
    for device in found:
        device.others.extend(sorted(set(boards[device.serial] if device.serial else ()) - {device.device}))
    return sorted(found, key=key_of)


def _is_whole(entry: Entry) -> bool:
    """Whether it is one PCI function as a whole: parts do not outlive a boot, and pools have several functions."""
    address = entry.pci_address
    return address is not None and "," not in address and not part_of(entry, entry.device.attributes)


def key_of(device: health_pb2.LostDevice) -> DeviceKey:
    """The key of the device in the inventory."""
    return device.vendor, device.card, device.device


def described(device: health_pb2.LostDevice) -> str:
    """Where it was and who held it last: `was at 0000:83:00.0, slot 7, serial 15650230; last held by default/x`."""
    where = place(device.pci_address, device.slot, device.serial, device.port) or "an unknown place"
    held = f"; last held by {', '.join(device.pods)}" if device.pods else ""
    found = sorted({one.reason for one in device.findings})
    before = f"; found before: {', '.join(found)}" if found else ""
    return f"was at {where}{held}{before}"


def _described_device(entry: Entry, resource_name: str) -> health_pb2.LostDevice:
    device = entry.device
    facts = device.attributes
    row = _ROWS.get(device.vendor)
    return health_pb2.LostDevice(
        vendor=device.vendor,
        card=device.card,
        device=device.id,
        resource_name=resource_name,
        pci_address=facts.get("pci_address", ""),
        slot=facts.get("slot", ""),
        serial=facts.get("serial", ""),
        model=next((facts[name] for name in (row.model if row else ()) if name in facts), ""),
        uuid=facts.get("uuid", ""),
        driver=facts.get("pci_driver", ""),
        part=part_of(entry, facts),
        part_of=whole_of(entry, facts),
        is_of_pci="pci_address" in facts,
        port=port_of(entry),
        pci_path=_pci_path(entry),
        numa_nodes=device.numa_nodes,
    )


def _pci_path(entry: Entry) -> str:
    """The directory of its function; empty for several functions."""
    paths = (function.path for function in entry.device.functions)
    return next((path for path in paths if path.endswith(f"/{entry.pci_address}")), "")


def _lost_device(one: Vanished, found: _Found) -> health_pb2.LostDevice:
    lost = _vanished(one.entry, one.resource_name, found)
    lost.since_timestamp_seconds, lost.is_listed = one.since, True
    _update(lost, one)
    return lost


def _vanished(gone: Entry, resource_name: str, found: _Found) -> health_pb2.LostDevice:
    """The description of a device that is gone, with the others that are no replacement for it."""
    described = _described_device(gone, resource_name)
    if gone.gone_since is not None:
        described.others.extend(found.there_before(described, gone.gone_since))
    return described


def _update(lost: health_pb2.LostDevice, one: Vanished) -> None:
    """Update the holders and the findings, if they are known now and have changed."""
    if one.pods and list(lost.pods) != list(one.pods):
        del lost.pods[:]
        lost.pods.extend(one.pods)
    findings = [held for held in one.findings if held.reason not in {GONE, RENAMED} and not held.is_over]
    before = {(held.source, held.reason, held.file, held.value, held.count) for held in lost.findings}
    if findings and {(held.source, held.reason, held.file, held.value, held.count) for held in findings} != before:
        del lost.findings[:]
        lost.findings.extend(findings)


def _is_cordoned(findings: Iterable[health_pb2.Held]) -> bool:
    return any(held.reason == CORDONED for held in findings)


def _why_not_missed(key: DeviceKey, lost: health_pb2.LostDevice, host: Host) -> str | None:
    """Why a device is no longer lost; None if it still is."""
    there = _found(key, lost, host)
    away = duration(max(0.0, host.now - lost.since_timestamp_seconds))
    if there is not None:
        return f"is back after {away}{_what_differs(lost, there)}"
    by = kind_of(lost)
    if by not in host.vendors or (by in host.dropped and not lost.is_of_pci):
        return "is no longer lost: the configuration excludes it"
    if lost.part and _has_its_card(lost, host):
        return "is no longer lost: its card is there, divided otherwise"
    if not lost.part and lost.is_of_pci and lost.driver:
        driver = host.driver_at(lost.pci_address)
        if driver and driver != lost.driver:
            return f"is no longer lost: its PCI function {lost.pci_address} has the driver {driver} now"
    return None


def _found(key: DeviceKey, lost: health_pb2.LostDevice, host: Host) -> Entry | None:
    """The present entry of a lost device, found by its key, UUID, place or serial number; None if it is still lost."""
    own = host.entries.get(key)
    if own is not None and own.gone_since is None:
        return own
    if there := host.found.instead_of(lost):
        return there[0]
    for entry, facts in host.found.with_serial(lost):
        if entry.device.id not in lost.others and part_of(entry, facts) == lost.part:
            return entry
    return None


def _what_differs(lost: health_pb2.LostDevice, entry: Entry) -> str:
    facts = entry.device.attributes
    named = f" as {_name_of(entry)}" if entry.device.id != lost.device else ""
    address = facts.get("pci_address", "")
    at = f" at {address}" if address and address != lost.pci_address else ""
    serial = facts.get("serial", "")
    other = f", with another serial number: {serial}" if serial and lost.serial and serial != lost.serial else ""
    return f"{named}{at}{other}"


def _has_its_card(lost: health_pb2.LostDevice, host: Host) -> bool:
    """Whether its card is present: other parts of the card, or its physical function."""
    if (lost.vendor, lost.card) in host.found.cards:
        return True
    return bool(lost.part_of) and host.driver_at(lost.part_of) is not None


class LostFile:
    """The live file for readers, and its copy that outlives a boot; `kept`: None if there is no copy.

    A copy from another `machine` is ignored: somebody has copied the state directory, or the disk.
    """

    def __init__(self, live: Path, kept: Path | None, machine: str = "") -> None:
        self._live = live
        self._kept = kept
        self._machine = machine
        self._written: bytes | None = None
        self._complaint = Once(log.error)

    def read(self) -> health_pb2.Lost:
        """The lost devices: from the live file, or after a boot from the copy."""
        for file in (self._live, self._kept):
            try:
                if file is not None:
                    known = spool.read(file, health_pb2.Lost)
                    return health_pb2.Lost() if _is_of_another(known.machine, self._machine, file) else known
            except FileNotFoundError:
                continue
            except spool.SpoolError as error:
                log.error("cannot read which devices are lost: %s; they are forgotten", error)
        return health_pb2.Lost()

    def write(self, message: health_pb2.Lost) -> None:
        """Update both files. Raises OSError if the live file cannot be written; an error of the copy is only logged."""
        content = message.SerializeToString(deterministic=True)
        if content == self._written:
            return
        _put(self._live, content)
        if self._kept is not None:
            try:
                _put(self._kept, _content(message, self._machine), is_synced=True)
                self._complaint.over()
            except OSError as error:
                self._complaint.complain("cannot keep which devices are lost: %s; the next boot forgets them", error)
        self._written = content


class PresentFile:
    """The present devices, kept for the next boot; `path`: None if nothing is kept.

    Devices of another `machine` are not missed on this one.
    """

    def __init__(self, path: Path | None, boot_id: str, machine: str = "") -> None:
        self._path = path
        self._boot_id = boot_id
        self._machine = machine
        self._written: bytes | None = None
        self._written_at = -math.inf

    def of_another_boot(self) -> list[health_pb2.LostDevice]:
        """The devices that were present in an earlier boot; empty if the file is of this boot."""
        if self._path is None:
            return []
        known = spool.read_or_empty(self._path, health_pb2.Present)
        if known.boot_id == self._boot_id or _is_of_another(known.machine, self._machine, self._path):
            return []
        return list(known.devices)

    def write(self, devices: Sequence[health_pb2.LostDevice], monotonic: float) -> bool:
        """Update the file; False if the last write was less than PRESENT_SECONDS ago.

        A failed write is ignored here: `LostFile` logs such errors.
        """
        if self._path is None:
            return True
        if monotonic - self._written_at < PRESENT_SECONDS:
            return False
        message = health_pb2.Present(boot_id=self._boot_id, devices=devices, machine=self._machine)
        content = message.SerializeToString(deterministic=True)
        if content != self._written:
            with contextlib.suppress(OSError):
                _put(self._path, content, is_synced=True)
            self._written, self._written_at = content, monotonic
        return True


def _is_of_another(machine: str, this: str, file: Path) -> bool:
    """Whether a file was kept on another machine than this; False if either is not known."""
    if not machine or not this or machine == this:
        return False
    log.warning("%s is of another machine (%s, this is %s): its devices are not missed here", file, machine, this)
    return True


PRESENT_SECONDS = 10.0


def orders_file(findings_directory: Path) -> Path:
    """The file of `devherd forget`, in a directory that the scanner watches."""
    return spool.path_of(findings_directory, OPERATOR).with_name("forget.pb")


def order(findings_directory: Path, devices: Iterable[health_pb2.LostDevice]) -> None:
    """Have the scanner forget these devices. Raises OSError."""
    file = orders_file(findings_directory)
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    message = spool.read_or_empty(file, health_pb2.Forget)
    message.orders.extend(map(_order_for, devices))
    del message.orders[:-_MOST_ORDERS]
    spool.replace(file, message.SerializeToString(deterministic=True))


_MOST_ORDERS = 1000


def _order_for(device: health_pb2.LostDevice) -> health_pb2.ForgetOrder:
    return health_pb2.ForgetOrder(
        vendor=device.vendor,
        card=device.card,
        device=device.device,
        since_timestamp_seconds=device.since_timestamp_seconds,
    )


def forget_at_rest(live: Path, kept: Path | None, devices: Collection[health_pb2.LostDevice]) -> None:
    """Forget these devices while no scanner runs. Raises OSError."""
    for file in (live, kept):
        with contextlib.suppress(FileNotFoundError):
            if file is not None:
                known = spool.read(file, health_pb2.Lost)
                lost = LostDevices(known)
                lost.forget(map(_order_for, devices))
                _put(file, _content(lost.message(), known.machine), is_synced=file == kept)


def _content(message: health_pb2.Lost, machine: str) -> bytes:
    """The content of the copy in the state directory; empty without devices."""
    kept = health_pb2.Lost(devices=message.devices, forgotten=message.forgotten)
    if kept.devices or kept.forgotten:
        kept.machine = machine
    return kept.SerializeToString(deterministic=True)


def _put(file: Path, content: bytes, *, is_synced: bool = False) -> None:
    """Write the file; empty content removes it."""
    if content:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        spool.replace(file, content, mode=0o600, is_synced=is_synced)
    else:
        file.unlink(missing_ok=True)
