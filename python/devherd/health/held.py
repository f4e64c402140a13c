"""Held findings, and the other state and input of the policy.

A finding that comes and goes is held longer each time: for ten minutes after its third raise within an hour, then for
twice as long with each further raise.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from devherd._native import Evidence
from devherd.inventory import DeviceKey
from devherd.reasons.registry import HANGING, MEANINGS, Action, Meaning

if TYPE_CHECKING:
    from devherd._native import Finding, KernelLogEvent

MISSED_SECONDS = 600.0
"""An event that may be over ends if it does not happen again for this time."""
ANY_SOURCE = ""
"""In `Seen.not_looked`: no source has looked at the device."""


@dataclass(frozen=True, slots=True)
class Now:
    """A moment: wall-clock seconds for display, CLOCK_MONOTONIC seconds for arithmetic, and the boot id of both."""

    wall: float
    monotonic: float
    boot_id: str = ""

    def wall_at(self, monotonic: float) -> float:
        """The wall clock at another moment of this boot, as far as it is known."""
        return self.wall - (self.monotonic - monotonic)


@dataclass(frozen=True, slots=True)
class DeviceEvent:
    """An event of a device."""

    key: DeviceKey
    finding: "Finding"
    monotonic: float
    times: int


@dataclass(frozen=True, slots=True, order=True)
class Statement:
    """A statement that ends earlier events; an empty source or reason means every one."""

    evidence: str
    source: str = ""
    reason: str = ""


@dataclass(slots=True)
class Seen:
    """One look at all devices, with the events since the previous look."""

    findings: dict[DeviceKey, list["Finding"]] = field(default_factory=dict)
    """Level findings, and events that their source counts: an equal count is the same event."""
    not_looked: dict[DeviceKey, dict[str, str]] = field(default_factory=dict)
    """By device and source: why the source has not looked."""
    failed: dict[str, str] = field(default_factory=dict)
    """By source: why it can look at no device."""
    reported: dict[str, float] = field(default_factory=dict)
    """By source that runs as a separate process: wall-clock second of its last look."""
    let_go: set[str] = field(default_factory=set)
    """Failed sources whose findings no longer count: nothing waits for them to look again."""
    lets_go_after: dict[str, float] = field(default_factory=dict)
    """By failed source: after how many seconds without a report its findings will no longer count."""
    report_errors: dict[str, list[str]] = field(default_factory=dict)
    """By source: what is wrong with its reports; they still count."""
    looks: dict[str, float] = field(default_factory=dict)
    """By source whose looks are rarer than polls: CLOCK_MONOTONIC second of the last one."""
    events: list[DeviceEvent] = field(default_factory=list)
    stated: list[tuple[DeviceKey, Statement, float]] = field(default_factory=list)
    last_at: dict[tuple[DeviceKey, "Finding"], float] = field(default_factory=dict)
    """CLOCK_MONOTONIC second of the latest counted event, where its source knows it."""

    def add(self, key: DeviceKey, findings: Iterable["Finding"]) -> None:
        """Add the findings of a source on a device."""
        self.findings.setdefault(key, []).extend(findings)

    def happened(self, key: DeviceKey, finding: "Finding", monotonic: float, times: int = 1) -> None:
        """Add an event of that CLOCK_MONOTONIC second."""
        self.events.append(DeviceEvent(key, finding, monotonic, times))

    def evident(self, key: DeviceKey, evidence: str, monotonic: float) -> None:
        """Add evidence. It ends the events of the device that it clears, if they were raised before that second."""
        self.stated.append((key, Statement(evidence), monotonic))

    def cleared(self, key: DeviceKey, source: str, reason: str, monotonic: float) -> None:
        """Add a source's statement that its own event has ended, if the event was raised before that second."""
        self.stated.append((key, Statement(Evidence.SOURCE_CLEARED, source, reason), monotonic))

    def cleared_by_operator(self, key: DeviceKey, reason: str, monotonic: float) -> None:
        """Add an operator's statement that ends every event of a reason that was raised before that second."""
        self.stated.append((key, Statement(Evidence.OPERATOR, reason=reason), monotonic))

    def why_not_looked(self, key: DeviceKey, source: str) -> str:
        """Why a source has not looked at a device; empty when it has."""
        not_looked = self.not_looked.get(key, {})
        failed = "" if source in self.let_go else self.failed.get(source)
        return failed or not_looked.get(source) or not_looked.get(ANY_SOURCE) or ""

    def unseen(self, keys: Iterable[DeviceKey], sources: Collection[str]) -> set[DeviceKey]:
        """The devices in `keys` that at least one of the sources has not looked at."""
        is_any_failed = any(self.failed.get(source) for source in sources)
        asked = keys if is_any_failed else filter(self.not_looked.get, keys)
        return {key for key in asked if any(self.why_not_looked(key, source) for source in sources)}


Place = tuple[str, str, str, str]
"""The key of a held finding: source, reason, file and, if the meaning depends on it, value."""


@dataclass(slots=True)
class Held:
    """A held finding: since when, and how near its end is."""

    finding: "Finding"
    """Its latest form."""
    meaning: Meaning
    """What it means for this device."""
    first: float
    """Wall-clock second at which it was raised."""
    last: float
    """Wall-clock second at which it was last seen; for an event, at which it last happened."""
    since: float
    """CLOCK_MONOTONIC second at which it was raised."""
    last_monotonic: float
    boot_id: str
    count: int = 1
    """How often it was raised."""
    is_waiting: bool = False
    """True while it has not been present for long enough to count."""
    good_looks: int = 0
    """Good looks since it was last seen."""
    good_look: float = 0.0
    """The latest good look, if `Seen.looks` has the source: the same look does not count twice."""
    seen_count: int = 0
    """For an event: the source's own count when it was last seen. The same count again is the same event."""
    is_taken_back: bool = False
    """True for an event that has ended, but is kept by its minimum hold."""
    is_over: bool = False
    """True for an event that has ended; remembered while its source still reports the count."""
    was_there: bool = False
    """True if it was present at the first look at the device."""
    damped: float = 0.0
    """Hold in seconds after it was last seen, because it comes and goes."""
    doubted_until: float = 0.0
    """CLOCK_MONOTONIC second until which its source alone does not make the device Unhealthy."""
    is_doubted: bool = False

    def renew(self, finding: "Finding", now: Now) -> None:
        """Update it with a new sighting."""
        self.was_there &= not has_more(finding.value, self.finding.value)
        self.finding = finding
        self.last, self.last_monotonic, self.boot_id = now.wall, now.monotonic, now.boot_id

    def note_good_look(self, look: float) -> bool:
        """Count a look in which it was absent, unless it was counted before. `look`: as in `Seen.looks`, or 0.0."""
        if look and look == self.good_look:
            return False
        self.good_look = look
        self.good_looks += 1
        return True

    @property
    def place(self) -> Place:
        """Its key among the held findings."""
        return place_of(self.finding)

    @property
    def action(self) -> Action:
        """The action of its meaning, lowered to `warn` if it is doubted or was present at the first look."""
        return "warn" if self.condemns and self.is_doubted else self._undoubted

    @property
    def condemns(self) -> bool:
        """True if it makes the device Unhealthy unless its source is doubted."""
        return self._undoubted == "unhealthy"

    @property
    def _undoubted(self) -> Action:
        is_softened = self.was_there and self.meaning.action == "unhealthy"
        return "warn" if is_softened else self.meaning.action

    @property
    def may_be_over(self) -> bool:
        """True for a GPU under i915 that hung before this process started: its recovery may have been missed."""
        return self.was_there and self.finding.value == HANGING

    @property
    def hold(self) -> float:
        """Minimum hold in seconds after it was last seen."""
        return max(self.meaning.hold, self.damped)

    @property
    def counts(self) -> bool:
        """True if the finding counts now: it has not ended, and is no longer waiting."""
        return not (self.is_over or self.is_waiting)


def place_of(finding: "Finding") -> Place:
    """The key of a finding among the held ones."""
    has_meanings = bool(MEANINGS[finding.source, finding.reason].by_value)
    return finding.source, finding.reason, finding.file, finding.value if has_meanings else ""


def has_more(value: str, before: str) -> bool:
    """True if a register has new bits set, or is no longer a number."""
    bits, known = bits_of(value), bits_of(before)
    return bits is None or known is None or bool(bits & ~known)


def bits_of(value: str) -> int | None:
    """The bits of a register, decimal or with 0x; None for anything else."""
    try:
        return int(value, 0)
    except ValueError:
        return None


class Stated:
    """The latest moment of each statement about each device, in this boot."""

    def __init__(self) -> None:
        self._latest: dict[DeviceKey, dict[Statement, float]] = {}
        self.version = 0
        """Increases with each change."""

    def note(self, key: "DeviceKey", statement: Statement, monotonic: float) -> bool:
        """Add a statement of that CLOCK_MONOTONIC second. True if it is later than the known one."""
        latest = self._latest.setdefault(key, {})
        if statement in latest and latest[statement] >= monotonic:
            return False
        latest[statement] = monotonic
        self.version += 1
        return True

    def ends(self, key: "DeviceKey", finding: "Finding", meaning: Meaning, monotonic: float) -> bool:
        """Whether an event that happened at that second is over."""
        after = (statement for statement, moment in self._latest.get(key, {}).items() if moment > monotonic)
        return any(is_about(statement, finding, meaning) for statement in after)

    def is_cleared(self, key: "DeviceKey", reason: str, after: float) -> bool:
        """Whether an operator has taken a reason back after that second."""
        return self._latest.get(key, {}).get(Statement(Evidence.OPERATOR, reason=reason), 0.0) > after

    def forget_all_but(self, known: Collection["DeviceKey"]) -> None:
        """Drop the statements about devices that are no longer known."""
        for key in self._latest.keys() - known:
            del self._latest[key]
            self.version += 1

    def everything(self) -> Iterator[tuple["DeviceKey", Statement, float]]:
        """All statements, sorted by device and statement."""
        for key in sorted(self._latest):
            for statement in sorted(self._latest[key]):
                yield key, statement, self._latest[key][statement]


def is_about(statement: Statement, finding: "Finding", meaning: Meaning) -> bool:
    """True if a statement ends an event with this meaning; no statement ends a level finding."""
    if not meaning.is_event:
        return False
    if statement.evidence == Evidence.SOURCE_CLEARED:
        return (statement.source, statement.reason) == (finding.source, finding.reason)
    if statement.reason:
        return statement.reason == finding.reason
    return statement.evidence in meaning.evidence


FLAPPING = "flapping"
"""The warning that is shown with the reason."""

WINDOW_SECONDS = 3600.0
RAISES = 3
FIRST_HOLD_SECONDS = 600.0
LONGEST_HOLD_SECONDS = 7200.0


@dataclass(frozen=True, slots=True)
class Record:
    """When a finding was raised, and the hold that the latest raise caused."""

    raised: tuple[float, ...] = ()
    """CLOCK_MONOTONIC seconds within the window, in their order."""
    hold: float = 0.0

    def with_raise(self, monotonic: float) -> "Record":
        """The record with one more raise."""
        recent = (*(moment for moment in self.raised if monotonic - moment < WINDOW_SECONDS), monotonic)
        if self.hold and not self.is_calm(monotonic):
            return Record(recent, min(2 * self.hold, LONGEST_HOLD_SECONDS))
        return Record(recent, FIRST_HOLD_SECONDS if len(recent) >= RAISES else 0.0)

    def is_calm(self, monotonic: float) -> bool:
        """True if an hour has passed since the latest raise and its hold, so that the record has no effect any more."""
        return not self.raised or monotonic - self.raised[-1] >= WINDOW_SECONDS + self.hold


class Flapping:
    """The recent raises of each device's findings."""

    def __init__(self) -> None:
        self._records: dict[tuple[DeviceKey, Place], Record] = {}

    def raised(self, key: DeviceKey, place: Place, monotonic: float) -> float:
        """Record a raise. The result is the hold in seconds after the finding was last seen."""
        record = self._records.get((key, place), Record()).with_raise(monotonic)
        self._records[key, place] = record
        return record.hold

    def forget(self, key: DeviceKey, place: Place) -> None:
        """Drop the record: an operator has cleared the finding."""
        self._records.pop((key, place), None)

    def forget_calm(self, monotonic: float) -> None:
        """Drop the records that have no effect any more."""
        self._records = {where: record for where, record in self._records.items() if not record.is_calm(monotonic)}

    def restore(self, key: DeviceKey, place: Place, record: Record) -> None:
        """Continue with the record of an earlier scanner of this boot."""
        self._records[key, place] = record

    def everything(self) -> Iterator[tuple[DeviceKey, Place, Record]]:
        """All records, sorted by device and place."""
        for key, place in sorted(self._records):
            yield key, place, self._records[key, place]


Memory = tuple[tuple[str, str, str, str], str]
"""A value that the scan core remembers: card, source, file, variant and value."""


@dataclass(frozen=True, slots=True)
class KernelLogPosition:
    """The position of a reader of the kernel log: the next record, and the log clock's lag in seconds."""

    next_record: int
    lag_seconds: float


@dataclass(frozen=True, slots=True)
class Remembered:
    """What the sources remember from one scanner to the next in the same boot."""

    kernel_log: KernelLogPosition | None = None
    """The kernel log has been read up to here."""
    waiting: Sequence["KernelLogEvent"] = ()
    """Events of the kernel log about devices that no scan has found yet."""
    at_unknown_links: Sequence["KernelLogEvent"] = ()
    """Events of the kernel log at switch links whose other end no scan has found yet."""
    uuids: Mapping[str, str] = field(default_factory=dict)
    """The UUID of each GPU in the NVIDIA driver's log, by PCI address."""
    memories: Sequence[Memory] = ()
    """The values that the scan core remembers."""
    last_words: Sequence["KernelLogEvent"] = ()
    """The drivers' last events of the kernel log about functions that may be no device."""


NOTHING = Remembered()
