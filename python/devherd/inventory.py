"""What is known of the host's devices: the last scan, and what it must not forget.

A device keeps its resource while that is unknown (being reprogrammed, unreadable), stays in the list as
`gone` for a while after it vanished, and stays as it was while its card cannot be looked at; from then on it can only
get worse. A pure state machine: no I/O, and time is an argument.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from devherd._native import Device, Finding, NotExamined, Platform, Scan
    from devherd.proto import spool_pb2

DeviceKey = tuple[str, str, str]
"""Vendor, card and device id. Ids alone are not unique: two resources of one vendor may list the same paths."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A device as it was last seen, and its vendor's name for its resource."""

    device: "Device"
    resource_name: str
    unseen: "NotExamined | None" = None
    """Why the last scan has not looked at it, when it has not."""
    gone_since: float | None = None
    """Monotonic second of the first scan that did not find it any more."""

    @property
    def vendor(self) -> str:
        """Who found it."""
        return self.device.vendor

    @property
    def key(self) -> DeviceKey:
        """Under which the inventory knows it."""
        return self.device.vendor, self.device.card, self.device.id

    @property
    def is_found(self) -> bool:
        """Whether the last scan has found it."""
        return self.gone_since is None and self.unseen is None

    @property
    def findings(self) -> "list[Finding]":
        """What the last scan found wrong with it, none of it while it is gone."""
        if self.gone_since is not None:
            return []
        found = list(self.device.findings)
        if self.unseen is not None and self.unseen.finding is not None:
            found.append(self.unseen.finding)
        return found


class Inventory:
    """Every device known, and what the devices of a vendor have in common, by vendor."""

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self.entries: dict[DeviceKey, Entry] = {entry.key: entry for entry in entries}
        self.platforms: dict[str, Platform] = {}
        self.vendor_options: dict[str, str] = {}
        """By vendor, the options under which its devices were found."""
        self.version = 0
        """Raised by each observation: equal versions, equal entries."""

    def observe(
        self, scan: "Scan", now: float, forget_after: float, reconfigured: Collection[str] = frozenset()
    ) -> None:
        """Take in a scan made at monotonic second `now`.

        Devices absent from it are `gone` for `forget_after` seconds, except those of `reconfigured` vendors and of
        vendors that were not asked for: the configuration dropped them, so they are forgotten at once.
        """
        found = {}
        for device in scan.devices:
            entry = _entry_of(device, self.entries)
            if entry is not None:
                found[entry.key] = entry
        unseen = {(part.vendor, part.card): part for part in scan.unseen}
        for key, entry in self.entries.items():
            if key in found or entry.vendor not in scan.vendors:
                continue
            kept = _kept_unseen(entry, unseen)
            if kept is None and entry.vendor not in reconfigured:
                kept = _kept_gone(entry, now, forget_after)
            if kept is not None:
                found[key] = kept
        self.entries = found
        kept_vendors = set(scan.vendors) - set(reconfigured)
        known = {vendor: platform for vendor, platform in self.platforms.items() if vendor in kept_vendors}
        self.platforms = known | scan.platforms
        self.version += 1


def key_of(device: "spool_pb2.Device") -> DeviceKey:
    """Under which the inventory knows a device of an offer."""
    return device.vendor, device.card, device.id


def _entry_of(device: "Device", known: Mapping[DeviceKey, Entry]) -> Entry | None:
    """None for a device that nobody can name yet; the scan has a problem that says so."""
    name = device.resource_name
    if name is None:
        before = known.get((device.vendor, device.card, device.id))
        name = before.resource_name if before else device.first_sight_resource_name
    return Entry(device, name) if name else None


def _kept_unseen(entry: Entry, unseen: "Mapping[tuple[str, str | None], NotExamined]") -> Entry | None:
    """None for a device that a scan did not find before: that it is gone is known, and a scan has to find it again."""
    if entry.gone_since is None:
        for part in (entry.device.card, entry.device.id, None):
            if (entry.vendor, part) in unseen:
                return replace(entry, unseen=unseen[entry.vendor, part])
    return None


def _kept_gone(entry: Entry, now: float, forget_after: float) -> Entry | None:
    since = now if entry.gone_since is None else min(now, entry.gone_since)  # a boot since then starts the clock anew
    return replace(entry, unseen=None, gone_since=since) if now - since < forget_after else None
