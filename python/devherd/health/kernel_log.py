"""Findings from the kernel log. Pure: events and devices come in, findings come out."""

from collections import deque
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from devherd._native import Finding
from devherd.health.findings import Named
from devherd.health.held import NOTHING, Remembered, Seen
from devherd.proto import health_pb2
from devherd.reasons.registry import KERNEL_LOG

if TYPE_CHECKING:
    from devherd._native import KernelLogEvent
    from devherd.inventory import DeviceKey, Entry
    from devherd.reasons.kernel_log_rules import Rule

FILE = "/dev/kmsg"


class PrintedXid(NamedTuple):
    """An Xid that was printed so many times about a device."""

    key: "DeviceKey"
    code: str
    times: int
    monotonic: float
    """CLOCK_MONOTONIC second of the record."""
    text: str
    """The record, as people are shown it."""


@dataclass(slots=True)
class Matched:
    """The findings of some records."""

    seen: Seen = field(default_factory=Seen)
    xids: list[PrintedXid] = field(default_factory=list)
    to_look_at: set[str] = field(default_factory=set)
    """The addresses of PCI functions whose counters will say what has happened."""


MOST_WAITING = 128
"""Limit on the events kept for unknown devices: many may be about hardware that devherd does not serve."""


class KernelLogSource:
    """Matches events of the kernel log to devices.

    It remembers the UUID that the driver has printed for each address: a GPU may be known by that alone. Events of an
    unknown device are kept for it: a driver prints them while it starts a GPU, before a scan can find it.
    """

    def __init__(self, remembered: Remembered = NOTHING) -> None:
        """`remembered`: of an earlier scanner in this boot."""
        self._uuids: dict[str, str] = dict(remembered.uuids)
        self._named = Named(())
        self._named_for: object = None
        self._waiting: deque[KernelLogEvent] = deque(remembered.waiting, maxlen=MOST_WAITING)

    @property
    def waiting(self) -> list["KernelLogEvent"]:
        """The events of devices that are not known yet."""
        return list(self._waiting)

    @property
    def uuids(self) -> dict[str, str]:
        """The UUID of the GPU at each address, as the driver has printed it."""
        return dict(self._uuids)

    def match(
        self,
        events: Iterable["KernelLogEvent"],
        rules: Mapping[str, "Rule"],
        entries: Collection["Entry"],
        version: object,
    ) -> Matched:
        """The findings of these events, and of those that wait, on these devices.

        `rules`: by name. `version`: changes with `entries`.
        """
        matched = Matched()
        if version != self._named_for:
            self._named, self._named_for = Named(entries), version
        all_events = [*self._waiting, *events]
        self._waiting.clear()
        for event in all_events:
            if event.uuid and event.pci_address:
                self._uuids[event.pci_address] = event.uuid
            if (rule := rules.get(event.rule)) is None:
                continue  # the rule is no longer in the configuration
            if rule.looks:
                matched.to_look_at.add(event.pci_address)
                continue
            keys = self._devices(event, rule)
            for key in keys:
                _take_in(matched.seen, event, rule, key)
                if event.xid:
                    matched.xids.append(PrintedXid(key, event.xid, event.times, event.monotonic, event.text))
            if (not keys and rule.reason) or (self._waiting and (rule.evidence or rule.takes_back)):
                self._waiting.append(event)  # the end of an event must not be dropped before the event
        return matched

    def _devices(self, event: "KernelLogEvent", rule: "Rule") -> list["DeviceKey"]:
        named = self._named
        if rule.vendor:
            return named.targets(health_pb2.Target(vendor=rule.vendor))
        instance = {"gpu_instance": _text(event.gpu_instance), "compute_instance": _text(event.compute_instance)}
        if event.pci_address:
            at = health_pb2.Target(pci_address=event.pci_address, **instance)
            if found := named.targets(at):
                return found
        uuid = event.uuid or self._uuids.get(event.pci_address, "")
        return named.targets(health_pb2.Target(uuid=uuid, **instance)) if uuid else []


def _take_in(seen: Seen, event: "KernelLogEvent", rule: "Rule", key: "DeviceKey") -> None:
    if rule.reason:
        value = event.value or event.xid or rule.name
        finding = Finding(source=KERNEL_LOG, reason=rule.reason, detail=event.text, file=FILE, value=value)
        seen.happened(key, finding, event.monotonic, event.times)
    if rule.evidence:
        seen.evident(key, rule.evidence, event.monotonic)
    for reason in rule.takes_back:
        seen.cleared(key, KERNEL_LOG, reason, event.monotonic)


def _text(number: int | None) -> str:
    return "" if number is None else str(number)
