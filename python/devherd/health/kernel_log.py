"""Findings from the kernel log. Pure: events and devices come in, findings come out."""

import re
from collections import deque
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from devherd._native import Evidence, Finding
from devherd.health.findings import Named
from devherd.health.held import NOTHING, Remembered, Seen
from devherd.proto import health_pb2
from devherd.reasons.kernel_log_rules import QUOTED
from devherd.reasons.registry import KERNEL_LOG

if TYPE_CHECKING:
    from devherd._native import KernelLogEvent
    from devherd.inventory import DeviceKey, Entry
    from devherd.reasons.kernel_log_rules import Rule

FILE = "/dev/kmsg"


@dataclass(frozen=True, slots=True)
class PrintedXid:
    """An Xid about a device, with the number of times it was printed."""

    key: "DeviceKey"
    code: str
    times: int
    monotonic: float
    """CLOCK_MONOTONIC second of the record."""
    text: str
    """The record as shown to users."""


@dataclass(slots=True)
class Matched:
    """The findings of some records."""

    seen: Seen = field(default_factory=Seen)
    xids: list[PrintedXid] = field(default_factory=list)
    to_look_at: set[str] = field(default_factory=set)
    """The addresses of PCI functions to poll: their counters tell what has happened."""


MOST_WAITING = 128
"""Limit on the events kept for unknown devices: many may be about hardware that devherd does not serve. Also the limit
on events kept for unknown links: some links lead to no GPU."""


MOST_LAST_WORDS = 512
"""Limit on the kept last words: a function has few of them."""
MOST_QUOTED = 2
TRY_SECONDS = 60.0
"""Older records than this, at the time of the newest one, are of an earlier try of the driver, or of another driver."""


class LastWords:
    """The last record that each rule in `QUOTED` has matched about each function, or about a maker's functions."""

    def __init__(self, events: Iterable["KernelLogEvent"] = ()) -> None:
        """`events`: those of an earlier scanner in this boot."""
        self._events: dict[tuple[str, str], KernelLogEvent] = {}
        self.version = 0
        """Increases with each record that says something new."""
        for event in events:
            if event.rule in QUOTED:
                self._keep(event)

    @property
    def events(self) -> list["KernelLogEvent"]:
        """All of them, the oldest first."""
        return list(self._events.values())

    def take_in(self, events: Iterable["KernelLogEvent"], rules: Mapping[str, "Rule"]) -> None:
        """Keep the records that are quoted; a function that is added anew ends those of the one before it."""
        for event in events:
            if event.rule in rules:
                self._note(event, rules[event.rule])

    def _note(self, event: "KernelLogEvent", rule: "Rule") -> None:
        if rule.quoted:
            self._keep(event)
        elif rule.evidence == Evidence.READDED:
            for key in [key for key in self._events if key[0] == event.pci_address]:
                del self._events[key]
                self.version += 1

    def about(self, vendor: str, address: str, *, is_bound: bool) -> list[str]:
        """What the drivers last said of a function, in their last try: why before that. Empty if nothing is known."""
        places, when = (address, address.rpartition(".")[0], vendor), {"always", "bound" if is_bound else "unbound"}
        found = [
            event for (place, name), event in self._events.items() if place in places and QUOTED[name].quoted in when
        ]
        newest = max((event.monotonic for event in found), default=0.0)
        of_last_try = [event for event in found if newest - event.monotonic <= TRY_SECONDS]
        order = list(QUOTED)
        of_last_try.sort(key=lambda event: order.index(event.rule))
        return [_in_a_line(event.text) for event in of_last_try[:MOST_QUOTED]]

    def why(self, event: "KernelLogEvent") -> str:
        """What the driver said of the cause of this event in the same try; empty if nothing."""
        order = list(QUOTED)
        if event.rule not in QUOTED or not event.pci_address:
            return ""
        causes = (self._events.get((event.pci_address, name)) for name in order[: order.index(event.rule)])
        in_time = [one for one in causes if one and abs(one.monotonic - event.monotonic) <= TRY_SECONDS]
        return _in_a_line(in_time[0].text) if in_time else ""

    def _keep(self, event: "KernelLogEvent") -> None:
        key = event.pci_address or QUOTED[event.rule].vendor, event.rule
        before = self._events.pop(key, None)
        self._events[key] = event
        self.version += before is None or before.text != event.text
        if len(self._events) > MOST_LAST_WORDS:
            del self._events[next(iter(self._events))]


_INNER_SPACE = re.compile(r"\s+(?:NVRM:\s+)*")
"""Line ends of a record of several lines, each of which NVIDIA's driver begins with its name."""


def _in_a_line(text: str) -> str:
    return _INNER_SPACE.sub(" ", text.strip())


class KernelLogSource:
    """Matches events of the kernel log to devices.

    It remembers the UUID that the driver has printed for each address: a GPU may be known by its UUID alone. Events of
    an unknown device are kept until a scan finds it: a driver prints events while it starts a GPU. Events at a link of
    an NVSwitch are kept until NVML has told, after a scan, where the link leads. The last words about a function that
    is no device are kept for the problem that it is.
    """

    def __init__(self, remembered: Remembered = NOTHING) -> None:
        """`remembered`: the state of an earlier scanner in this boot."""
        self._uuids: dict[str, str] = dict(remembered.uuids)
        self._named = Named(())
        self._named_for: object = None
        self.last_words = LastWords(remembered.last_words)
        self._waiting: deque[KernelLogEvent] = deque(remembered.waiting, maxlen=MOST_WAITING)
        self._at_unknown_links: deque[KernelLogEvent] = deque(remembered.at_unknown_links, maxlen=MOST_WAITING)

    @property
    def is_waiting(self) -> bool:
        """Whether events are waiting for a device that a later scan may find."""
        return bool(self._waiting or self._at_unknown_links)

    @property
    def at_unknown_links(self) -> list["KernelLogEvent"]:
        """The events at NVSwitch links whose other end is not known yet."""
        return list(self._at_unknown_links)

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
        """The findings of these events and of the waiting events, for these devices.

        `rules`: by name. `version`: changes with `entries`.
        """
        matched = Matched()
        if version != self._named_for:
            self._named, self._named_for = Named(entries), version
        self._match_at_links(matched.seen, rules)
        new = list(events)
        self.last_words.take_in(new, rules)
        all_events = [*self._waiting, *new]
        self._waiting.clear()
        for event in all_events:
            self._note_uuid(event)
            if (rule := rules.get(event.rule)) is None:
                continue  # the rule is no longer in the configuration
            if rule.looks:
                matched.to_look_at.add(event.pci_address)
            if rule.takes_nothing_away:
                continue
            keys = self._devices(event, rule)
            text = self._text_with_cause(event) if rule.quoted else self._text_with_gpu(event)
            for key in keys:
                _take_in(matched.seen, event, rule, key, text)
                if event.xid:
                    matched.xids.append(PrintedXid(key, event.xid, event.times, event.monotonic, event.text))
            if self._is_kept(rule, keys):
                self._waiting.append(event)
            elif keys and rule.reason_at_link:
                self._match_at_link(matched.seen, event, rule)
        return matched

    def _note_uuid(self, event: "KernelLogEvent") -> None:
        if event.uuid and event.pci_address:
            self._uuids[event.pci_address] = event.uuid

    def _is_kept(self, rule: "Rule", keys: Collection["DeviceKey"]) -> bool:
        """Whether an event waits for a device. The end of an event must not be dropped before the event."""
        if rule.reason and not keys:
            return rule.is_kept
        return bool(self._waiting and (rule.evidence or rule.takes_back))

    def _match_at_links(self, seen: Seen, rules: Mapping[str, "Rule"]) -> None:
        """Add the findings of earlier link events, for the GPUs at those links."""
        events = [event for event in self._at_unknown_links if event.rule in rules]
        self._at_unknown_links.clear()
        for event in events:
            self._match_at_link(seen, event, rules[event.rule])

    def _match_at_link(self, seen: Seen, event: "KernelLogEvent", rule: "Rule") -> None:
        """Add the finding of a link event for the GPU at that link; keep the event while the GPU is unknown."""
        if event.link is None or not rule.reason_at_link:
            return
        keys = self._named.at_link(event.pci_address, event.link)
        for key in keys:
            seen.happened(key, _finding(event, rule.reason_at_link, rule, event.text), event.monotonic, event.times)
        if not keys:
            self._at_unknown_links.append(event)

    def _text_with_gpu(self, event: "KernelLogEvent") -> str:
        """The text, with the GPU that the link of a switch leads to."""
        keys = [] if event.link is None else self._named.at_link(event.pci_address, event.link)
        return f"{event.text} (this link leads to the GPU at {keys[0][1]})" if keys else event.text

    def _text_with_cause(self, event: "KernelLogEvent") -> str:
        """The text, with what the driver has said of its cause."""
        why = self.last_words.why(event)
        return f"{event.text} ({why})" if why else event.text

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


def _finding(event: "KernelLogEvent", reason: str, rule: "Rule", text: str) -> Finding:
    value = event.value or event.xid or rule.name
    return Finding(source=KERNEL_LOG, reason=reason, detail=text, file=FILE, value=value)


def _take_in(seen: Seen, event: "KernelLogEvent", rule: "Rule", key: "DeviceKey", text: str) -> None:
    if rule.reason:
        seen.happened(key, _finding(event, rule.reason, rule, text), event.monotonic, event.times)
    if rule.evidence:
        seen.evident(key, rule.evidence, event.monotonic)
    for reason in rule.takes_back:
        seen.cleared(key, KERNEL_LOG, reason, event.monotonic)


def _text(number: int | None) -> str:
    return "" if number is None else str(number)
