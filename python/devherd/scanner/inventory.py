"""What is known of the host's devices: the last scan, and what it must not forget.

A device keeps its resource while it cannot be told what it is (being reprogrammed, unreadable), stays in the list as
`gone` for a while after it vanished, and stays as it was while its card cannot be looked at. A pure state machine:
no I/O, time is an argument, and the spool is enough to restore it.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from devherd.proto import spool_pb2

if TYPE_CHECKING:
    from devherd._native import Device, Scan

DeviceKey = tuple[str, str, str]
"""Vendor, card and device id. Ids alone are not unique: two resources of one vendor may list the same paths."""

GONE = "gone"


@dataclass(frozen=True, slots=True)
class Entry:
    """A device as it is advertised: its resource's default name, its facts, and what the scan holds against it."""

    vendor: str
    device: spool_pb2.Device
    resource_name: str
    reasons: frozenset[str] = frozenset()
    gone_since: float | None = None

    @property
    def key(self) -> DeviceKey:
        """Under which the inventory knows it."""
        return key_of(self.device)


class Inventory:
    """Every device known."""

    def __init__(self, entries: Mapping[DeviceKey, Entry] | None = None) -> None:
        self.entries: dict[DeviceKey, Entry] = dict(entries or {})
        self.version = 0
        """Raised by each observation: equal versions, equal entries."""

    def faulty(self) -> list[Entry]:
        """The entries that the scan holds something against."""
        return [entry for entry in self.entries.values() if entry.reasons]

    @classmethod
    def restored(cls, resources: Iterable[spool_pb2.Resource]) -> "Inventory":
        """The inventory that wrote these spool files, so that a restarted scanner forgets nothing."""
        entries = {}
        for resource in resources:
            for device in resource.devices:
                known = spool_pb2.Device()
                known.CopyFrom(device)
                known.id = device.physical_id
                del known.reasons[:]
                entries[key_of(known)] = Entry(
                    known.vendor, known, known.default_resource_name, frozenset(device.reasons)
                )
        return cls(entries)

    def observe(
        self, scan: "Scan", now: float, forget_after: float, reconfigured: Collection[str] = frozenset()
    ) -> None:
        """Take in a scan made at monotonic second `now`.

        Devices absent from it are `gone` for `forget_after` seconds, except those of `reconfigured` vendors and of
        vendors that were not asked for: the configuration dropped them, so they are forgotten at once.
        """
        found = {}
        for device in scan.devices:
            key = (device.vendor, device.card, device.id)
            entry = _entry_of(device, self.entries.get(key))
            if entry is not None:
                found[key] = entry
        unseen = {(part.vendor, part.card): part.reason for part in scan.unseen}
        for key, entry in self.entries.items():
            if key in found or entry.vendor not in scan.vendors:
                continue
            kept = _kept_unseen(entry, unseen)
            if kept is None and entry.vendor not in reconfigured:
                kept = _kept_gone(entry, now, forget_after)
            if kept is not None:
                found[key] = kept
        self.entries = found
        self.version += 1


def key_of(device: spool_pb2.Device) -> DeviceKey:
    """Under which the inventory knows a device of the spool; replicas share it."""
    return device.vendor, device.card, device.physical_id


def _entry_of(device: "Device", known: Entry | None) -> Entry | None:
    """None for a device that nobody can name yet; the scan has a problem that says so."""
    name = device.resource_name or (known.resource_name if known else None) or device.first_sight_resource_name
    return Entry(device.vendor, message_of(device, name), name, frozenset(device.reasons)) if name else None


def _kept_unseen(entry: Entry, unseen: Mapping[tuple[str, str | None], str | None]) -> Entry | None:
    for part in ((entry.vendor, entry.device.card), (entry.vendor, None)):
        if part in unseen:
            reason = unseen[part]
            return entry if reason is None else replace(entry, reasons=entry.reasons | {reason})
    return None


def _kept_gone(entry: Entry, now: float, forget_after: float) -> Entry | None:
    since = now if entry.gone_since is None else entry.gone_since
    return replace(entry, reasons=frozenset({GONE}), gone_since=since) if now - since < forget_after else None


def message_of(device: "Device", default_resource_name: str) -> spool_pb2.Device:
    """The device as the spool holds it, without health."""
    return spool_pb2.Device(
        id=device.id,
        numa_nodes=device.numa_nodes,
        nodes=[
            spool_pb2.Node(host_path=node.host_path, container_path=node.container_path, permissions=node.permissions)
            for node in device.nodes
        ],
        mounts=[
            spool_pb2.Mount(host_path=mount.host_path, container_path=mount.container_path, read_only=mount.read_only)
            for mount in device.mounts
        ],
        envs=device.envs,
        annotations=device.annotations,
        cdi_devices=device.cdi_devices,
        attributes=device.attributes,
        physical_id=device.id,
        card=device.card,
        cdi_edits=device.cdi_edits,
        distances=device.distances,
        default_resource_name=default_resource_name,
        vendor=device.vendor,
    )
