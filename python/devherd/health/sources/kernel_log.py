"""What the kernel log says of which devices. Pure: events and devices come in, what the policy takes in comes out."""

from collections import deque
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from devherd._native import Finding
from devherd.health.clears import Evidence
from devherd.health.registry import KERNEL_LOG
from devherd.health.remembered import NOTHING, Remembered
from devherd.health.seen import Seen
from devherd.health.targets import Named
from devherd.proto import health_pb2

if TYPE_CHECKING:
    from devherd._native import KernelLogEvent
    from devherd.health.kernel_log_rules import Rule
    from devherd.inventory import DeviceKey, Entry

FILE = "/dev/kmsg"


@dataclass(slots=True)
class Told:
    """What some records come to."""

    seen: Seen = field(default_factory=Seen)
    xids: list[tuple["DeviceKey", str, int]] = field(default_factory=list)
    """Every Xid, by device: its code and how often it was printed."""


MOST_WAITING = 128
"""Events of devices that are not known: what else the node has may be sick, too."""


class KernelLogSource:
    """Remembers which UUID the driver said that an address has: a GPU may be known by that alone.

    What is said of a device that is not known waits for it: a driver speaks while it starts a GPU, and a scan finds it
    after that.
    """

    def __init__(self, remembered: Remembered = NOTHING) -> None:
        """`remembered` is what an earlier one knew in this boot."""
        self._uuids: dict[str, str] = dict(remembered.uuids)
        self._named = Named(())
        self._named_for: object = None
        self._waiting: deque[KernelLogEvent] = deque(remembered.waiting, maxlen=MOST_WAITING)

    @property
    def waiting(self) -> list["KernelLogEvent"]:
        """What is said of devices that may come."""
        return list(self._waiting)

    @property
    def uuids(self) -> dict[str, str]:
        """What the driver has called the GPU at each address."""
        return dict(self._uuids)

    def tell(
        self,
        events: Iterable["KernelLogEvent"],
        rules: Mapping[str, "Rule"],
        entries: Collection["Entry"],
        version: object,
    ) -> Told:
        """What events of these rules, and those that wait, say of these devices: of equal `version`, equal devices."""
        told = Told()
        if version != self._named_for:
            self._named, self._named_for = Named(entries), version
        all_events = [*self._waiting, *events]
        self._waiting.clear()
        for event in all_events:
            if event.uuid and event.pci_address:
                self._uuids[event.pci_address] = event.uuid
            if (rule := rules.get(event.rule)) is None:
                continue  # the configuration has no such rule any more
            keys = self._devices(event, rule)
            for key in keys:
                _take_in(told.seen, event, rule, key)
                if event.xid:
                    told.xids.append((key, event.xid, event.times))
            if (not keys and rule.reason) or (self._waiting and (rule.evidence or rule.takes_back)):
                self._waiting.append(event)  # what ends an event must not be forgotten before the event
        return told

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
        seen.evident(key, Evidence(rule.evidence), event.monotonic)
    if rule.takes_back:
        seen.cleared(key, KERNEL_LOG, rule.takes_back, event.monotonic)


def _text(number: int | None) -> str:
    return "" if number is None else str(number)
