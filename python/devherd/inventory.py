"""Known devices of the host: found by the last scan, gone, or impossible to examine now.

A device keeps its resource while that is unknown (reprogrammed, unreadable), is listed as `gone` for a while after it
has vanished, with the facts that it had when it was last whole, and keeps its facts while its card cannot be examined;
meanwhile its health can only get worse.
`Inventory` is a pure state machine: no I/O, time is an argument. `DevicesFile` keeps it in `<run-dir>/devices.pb`.
"""

import functools
import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from devherd import spool
from devherd._native import Device, Fact, HostPath, PciFunction, Platform
from devherd.proto import devices_pb2

if TYPE_CHECKING:
    from google.protobuf.internal.containers import MessageMap

    from devherd._native import Finding, NotExamined, Scan
    from devherd.proto import spool_pb2

DeviceKey = tuple[str, str, str]
"""Vendor, card and device id. Ids alone are not unique: two resources of a vendor may list the same paths."""

CLASSES = "classes"
"""The vendor of the devices of all device classes."""


def class_key(name: str) -> str:
    """Stands for a device class where others are vendors: each class is configured by itself."""
    return f"{CLASSES}/{name}"


Holder = Mapping[str, str]
"""The container that holds a device: `namespace`, `pod`, `container`."""

DEVICE_PLUGIN = "device-plugin"
"""The way in which the device plugin hands devices over: the kubelet's API."""
CDI = "cdi"
"""The way in which DRA hands devices over: names in CDI specs."""

Allocations = Mapping[tuple[str, str], list[Holder]]
"""Holders by resource name and device id."""


OFFERED_BY_ALL: Mapping[str, str] = {}
"""No way leaves the device out."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A device as last seen, and its vendor's name for its resource."""

    device: Device
    resource_name: str
    unseen: "NotExamined | None" = None
    """Why the last scan did not examine it; None if it did."""
    gone_since: float | None = None
    """Monotonic second of the first scan that did not find it; None while it is found."""
    found_since: float = field(default=0.0, compare=False)
    """Monotonic second of the first scan that found it, since it was gone last."""
    left_out: Mapping[str, str] = field(default_factory=lambda: OFFERED_BY_ALL)
    """By way: why it is not offered, regardless of the configuration's rules; empty if all ways may offer it."""
    whole: Device | None = field(default=None, compare=False)
    """With the facts that it has lost, which it has again once it is gone: a scan during the removal of a card reads
    half of it, but a pod that holds the device knows it by all of them. None while it has lost none."""

    __hash__ = None  # type: ignore[assignment]

    @property
    def key(self) -> DeviceKey:
        """Its key in the inventory."""
        return self.device.key

    @property
    def pci_address(self) -> str | None:
        """The PCI address, or several if the device has several functions; None without one."""
        return self.device.attribute("pci_address")

    @property
    def vendor(self) -> str:
        """The vendor that found it."""
        return self.key[0]

    @property
    def configured_by(self) -> str:
        """Whose options find it: its vendor's, or those of its device class, `class_key`."""
        return class_key(self.device.attribute("class") or "") if self.vendor == CLASSES else self.vendor

    @property
    def is_found(self) -> bool:
        """True if the last scan found it."""
        return self.gone_since is None and self.unseen is None

    @property
    def findings(self) -> "list[Finding]":
        """The findings of the last scan; none while it is gone."""
        if self.gone_since is not None:
            return []
        found = list(self.device.findings)
        if self.unseen is not None and self.unseen.finding is not None:
            found.append(self.unseen.finding)
        return found


class Inventory:
    """All known devices, and the facts that the devices of each vendor share."""

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self.entries: dict[DeviceKey, Entry] = {entry.key: entry for entry in entries}
        self.platforms: dict[str, Platform] = {}
        self.vendor_options: dict[str, str] = {}
        """The options under which devices were found, by vendor; those of a device class by `class_key`."""
        self.version = 0
        """Increased by each observation that changes something: equal versions have equal entries."""
        self.has_gone = any(entry.gone_since is not None for entry in self.entries.values())
        """Whether a device is gone."""

    def observe(
        self,
        scan: "Scan",
        now: float,
        forget_after: float,
        reconfigured: Collection[str] = frozenset(),
        *,
        left_out: "Callable[[Device], Mapping[str, str]]" = lambda _: OFFERED_BY_ALL,
        gone: Collection[DeviceKey] = frozenset(),
        held: Collection[DeviceKey] = frozenset(),
        forgotten: Collection[DeviceKey] = frozenset(),
    ) -> None:
        """Apply a scan of monotonic second `now`; `left_out` returns why a vendor does not offer a device, by way.

        The entry of a device that has not changed stays the same object.

        `gone` are devices that the scan could not examine, but that are known to be gone.

        A device absent from the scan stays as gone for `forget_after` seconds; if it is in `held`, as long as a pod
        holds it; if it is in `forgotten` and not held, it is forgotten at once. Devices of `reconfigured` vendors and
        of vendors that were not scanned are always forgotten at once, because the configuration dropped them.
        """
        found = {}
        for device in scan.devices:
            key = device.key
            entry = _entry_of(device, self.entries.get(key), now)
            if entry is not None:
                found[key] = entry
        unseen = {(_kind_of(part), part.card): part for part in scan.unseen}
        for key, entry in self.entries.items():
            if key in found or entry.vendor not in scan.vendors:
                continue
            kept = None if key in gone else _kept_unseen(entry, unseen)
            is_dropped = entry.configured_by in reconfigured
            if kept is None and not (is_dropped and entry.vendor != CLASSES):
                is_settled = key in forgotten or (is_dropped and entry.gone_since is not None)
                kept = _kept_gone(entry, now, math.inf if key in held else 0 if is_settled else forget_after)
            if kept is not None:
                found[key] = kept
        entries = {key: _with_left_out(entry, left_out(entry.device)) for key, entry in found.items()}
        kept_vendors = set(scan.vendors) - set(reconfigured)
        known = {vendor: platform for vendor, platform in self.platforms.items() if vendor in kept_vendors}
        platforms = known | scan.platforms
        if platforms != self.platforms or [*entries.values()] != [*self.entries.values()]:
            self.entries, self.platforms = entries, platforms
            self.has_gone = any(entry.gone_since is not None for entry in entries.values())
            self.version += 1

    def use_options(self, vendor_options: Mapping[str, str], changed: Collection[str] = frozenset()) -> set[str]:
        """Record the options under which the devices were found, by vendor and class; `changed`: those that are new.

        Returns the changed classes with devices that are gone, which pods may hold: their earlier options stay, so that
        a later scanner knows of the change, too.
        """
        gone = {entry.configured_by for entry in self.entries.values() if entry.gone_since is not None}
        unsettled = {one for one in changed if one in gone and one.startswith(class_key(""))}
        before = {one: options for one, options in self.vendor_options.items() if one in unsettled}
        options = {one: told for one, told in vendor_options.items() if one not in unsettled} | before
        if options != self.vendor_options:
            self.vendor_options = options
            self.version += 1
        return unsettled


def not_examined(scan: "Scan", known: Mapping[DeviceKey, Entry]) -> list[Entry]:
    """The known devices that stay as they were because the scan could not examine them, and found nothing wrong."""
    unseen = {(_kind_of(part), part.card): part for part in scan.unseen if part.finding is None}
    if not unseen:
        return []
    found = {device.key for device in scan.devices}
    return [entry for key, entry in known.items() if key not in found and _kept_unseen(entry, unseen) is not None]


def key_of(device: "spool_pb2.Device") -> DeviceKey:
    """The inventory's key of a device in an offer."""
    return device.vendor, device.card, device.id


def _entry_of(device: "Device", before: Entry | None, now: float) -> Entry | None:
    """The entry; None for a device without a resource name yet, which the scan reports as a problem."""
    is_known = before is not None and before.gone_since is None
    since = min(before.found_since, now) if before is not None and is_known else now  # `now` is smaller after a boot
    if before is not None and before.is_found and before.device == device and before.found_since == since:
        return before
    name = device.resource_name
    if name is None:
        name = before.resource_name if before else device.first_sight_resource_name
    return Entry(device, name, found_since=since, whole=_whole(device, before)) if name else None


def _whole(device: Device, before: Entry | None) -> Device | None:
    """The device with the facts that it had before and has lost; None if it has lost none.

    Another card may have come where one was gone: of that it has nothing, if any fact differs.
    """
    if before is None:
        return None
    earlier = before.whole or before.device
    known, now = earlier.attributes, device.attributes
    has_only_lost = now.items() <= known.items()
    if known.keys() <= now.keys() or (before.gone_since is not None and not has_only_lost):
        return None
    facts = earlier.facts | device.facts
    # Nodes have the numbers of either all or none: a number of earlier may be another device's by now.
    is_part = {path.path for path in device.paths} <= {path.path for path in earlier.paths}
    return Device(
        vendor=device.vendor,
        card=device.card,
        id=device.id,
        resource_name=_resource_name(before) if has_only_lost else device.resource_name,
        first_sight_resource_name=device.first_sight_resource_name,
        shares=device.shares or earlier.shares,
        numa_nodes=device.numa_nodes or earlier.numa_nodes,
        numa_source=device.numa_source or earlier.numa_source,
        paths=earlier.paths if is_part else device.paths,
        facts=facts,
        awaited=device.awaited - facts.keys(),
        distances=earlier.distances | device.distances,
        functions=device.functions or earlier.functions,
    )


def _resource_name(entry: Entry) -> str:
    """That of the device when it was last whole."""
    return (entry.whole and entry.whole.resource_name) or entry.resource_name


def _with_left_out(entry: Entry, why: Mapping[str, str]) -> Entry:
    return entry if entry.left_out == why else replace(entry, left_out=why)


def _kept_unseen(entry: Entry, unseen: "Mapping[tuple[str, str | None], NotExamined]") -> Entry | None:
    """The entry of a device on an unexamined part; None for other devices, and for one that is known to be gone."""
    vendor, card, device_id = entry.key
    if entry.gone_since is None and unseen:
        for part in (card, device_id, None):
            why = unseen.get((vendor, part)) or unseen.get((entry.configured_by, part))
            if why is not None:
                return entry if entry.unseen == why else replace(entry, unseen=why)
    return None


def _kind_of(part: "NotExamined") -> str:
    """Whose devices it is about: `Entry.configured_by`, or the vendor with all its classes."""
    return part.vendor if part.class_name is None else class_key(part.class_name)


def _kept_gone(entry: Entry, now: float, forget_after: float) -> Entry | None:
    since = now if entry.gone_since is None else min(now, entry.gone_since)  # `now` is smaller after a boot
    if now - since >= forget_after:
        return None
    if entry.unseen is None and entry.gone_since == since:
        return entry
    device = entry.whole or entry.device
    return Entry(
        device, _resource_name(entry), gone_since=since, found_since=entry.found_since, left_out=entry.left_out
    )


class DevicesFile:
    """Writes the file, and reads it at the start. A device's part is encoded again only if the device has changed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._written: int | None = None
        self._parts: dict[DeviceKey, tuple[Entry, bytes]] = {}

    def read(self) -> Inventory:
        """The inventory of an earlier scanner; empty if the file cannot be read."""
        try:
            message = spool.read(self._path, devices_pb2.Inventory)
        except (FileNotFoundError, spool.SpoolError):
            return Inventory()
        return inventory_of(message)

    def write(self, inventory: Inventory) -> None:
        """Write the inventory, if it has changed. Raises OSError."""
        if self._written != inventory.version:
            spool.update(self._path, self._content(inventory))
            self._written = inventory.version

    def _content(self, inventory: Inventory) -> bytes:
        """The message of the whole inventory: the encoded parts of each device and of the rest, concatenated."""
        before, self._parts = self._parts, {}
        for key, entry in inventory.entries.items():
            kept = before.get(key)
            if kept is None or (kept[0] is not entry and kept[0] != entry):
                kept = entry, _part_of(entry)
            self._parts[key] = kept
        return b"".join([*(part for _, part in self._parts.values()), _rest_of(inventory)])


def _part_of(entry: Entry) -> bytes:
    """An inventory with this device alone."""
    left_out = tuple(sorted(entry.left_out.items()))
    return entry.device.in_inventory(_known(entry.resource_name, entry.gone_since, entry.found_since, left_out))


@functools.lru_cache(maxsize=64)
def _known(
    resource_name: str, gone_since: float | None, found_since: float, left_out: tuple[tuple[str, str], ...]
) -> bytes:
    """The encoded fields of an entry besides its device's facts; usually the same for thousands of devices."""
    return spool.encoded(
        devices_pb2.KnownDevice(
            resource_name=resource_name,
            gone_since_seconds=gone_since,
            found_since_seconds=found_since,
            left_out=dict(left_out),
        )
    )


def _rest_of(inventory: Inventory) -> bytes:
    """The encoded fields of an inventory without its devices."""
    platforms = [platform.in_inventory(vendor) for vendor, platform in sorted(inventory.platforms.items())]
    return b"".join([*platforms, spool.encoded(devices_pb2.Inventory(vendor_options=inventory.vendor_options))])


def inventory_of(message: devices_pb2.Inventory) -> Inventory:
    """The inventory in a message."""
    inventory = Inventory(_known_entry(known) for known in message.devices)
    for vendor, platform in message.platforms.items():
        inventory.platforms[vendor] = Platform(
            facts=_facts_of(platform.attributes), paths=list(map(_path_of, platform.paths))
        )
    inventory.vendor_options.update(message.vendor_options)
    return inventory


def _known_entry(known: devices_pb2.KnownDevice) -> Entry:
    device = known.device
    return Entry(
        Device(
            vendor=device.vendor,
            card=device.card,
            id=device.id,
            resource_name=device.resource_name or None,
            first_sight_resource_name=device.first_sight_resource_name or None,
            shares=device.shares,
            numa_nodes=device.numa_nodes,
            numa_source=device.numa_source,
            paths=list(map(_path_of, device.paths)),
            facts=_facts_of(device.attributes),
            awaited=set(device.awaited),
            distances=dict(device.distances),
            functions=list(map(_function_of, device.functions)),
        ),
        known.resource_name,
        gone_since=known.gone_since_seconds if known.HasField("gone_since_seconds") else None,
        found_since=known.found_since_seconds,
        left_out=dict(known.left_out),
    )


def _facts_of(attributes: "MessageMap[str, devices_pb2.Fact]") -> dict[str, Fact]:
    facts = {}
    for name, message in attributes.items():
        kind = message.WhichOneof("value") or "text"
        value = getattr(message, kind)
        facts[name] = Fact(kind, str(value).lower() if kind == "boolean" else str(value), message.source)
    return facts


def _function_of(message: devices_pb2.PciFunction) -> PciFunction:
    driver = message.driver if message.HasField("driver") else None
    return PciFunction(message.path, driver, message.physical if message.HasField("physical") else None)


def _path_of(message: devices_pb2.HostPath) -> HostPath:
    number = (message.number.major, message.number.minor) if message.HasField("number") else None
    access = (message.access.group, message.access.mode) if message.HasField("access") else None
    return HostPath(message.path, message.role, message.is_node, number, message.is_required, message.target, access)
