"""From what sources see to what is held against each device: Unhealthy or a warning, since when, until when.

Pure: findings and times come in, verdicts come out. A finding counts at once. One that stands while it is seen is taken
back by a run of good looks, an event by a quiet time. Where a source cannot look, what it said stays as it was. What
error registers hold at the first look at a device is a warning: nobody knows since when, and the device may have worked
with it.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from devherd.health.registry import FIRST_SIGHT_SOURCES, MEANINGS, Action, Meaning
from devherd.inventory import DeviceKey

if TYPE_CHECKING:
    from devherd._native import Finding

ANY_SOURCE = ""
"""In `Seen.not_looked`: no source has looked at the device."""

HeldKey = tuple[str, str, str]
"""Source, reason and file: two nodes of a device may be missing, and each comes back by itself."""


@dataclass(frozen=True, slots=True)
class Now:
    """A moment: wall-clock seconds to show, CLOCK_MONOTONIC seconds to reckon with, and the boot that they are of."""

    wall: float
    monotonic: float
    boot_id: str = ""


@dataclass(slots=True)
class Seen:
    """One look at all devices."""

    findings: dict[DeviceKey, list["Finding"]] = field(default_factory=dict)
    not_looked: dict[DeviceKey, dict[str, str]] = field(default_factory=dict)
    """By device and source: why the source has not looked."""
    failed: dict[str, str] = field(default_factory=dict)
    """By source: why it can look at no device."""

    def add(self, key: DeviceKey, findings: Iterable["Finding"]) -> None:
        """Take in what a source sees on a device."""
        self.findings.setdefault(key, []).extend(findings)

    def why_not_looked(self, key: DeviceKey, source: str) -> str:
        """Why a source has not looked at a device; empty when it has."""
        not_looked = self.not_looked.get(key, {})
        return self.failed.get(source) or not_looked.get(source) or not_looked.get(ANY_SOURCE) or ""


@dataclass(slots=True)
class Held:
    """A finding that counts."""

    finding: "Finding"
    """As it was seen last."""
    first: float
    """Wall-clock second at which it was raised."""
    last: float
    """Wall-clock second at which it was seen last; of an event, at which it happened last."""
    last_monotonic: float
    boot_id: str
    count: int = 1
    """How often it was raised."""
    good_looks: int = 0
    """Since it was seen last."""
    seen_count: int = 0
    """Of an event: the source's own count when it was seen last. The same count again is the same event."""
    is_over: bool = False
    """An event that was quiet for long enough; remembered for as long as its source goes on counting it."""

    was_there: bool = False
    """It stood at the first look at the device."""

    def renew(self, finding: "Finding", now: Now) -> None:
        """It is seen again."""
        self.was_there &= not _has_more(finding.value, self.finding.value)
        self.finding = finding
        self.last, self.last_monotonic, self.boot_id = now.wall, now.monotonic, now.boot_id

    @property
    def meaning(self) -> Meaning:
        """What its source and reason are registered with."""
        return MEANINGS[self.finding.source, self.finding.reason]

    @property
    def action(self) -> Action:
        """What it does to the device."""
        return "warn" if self.was_there else self.meaning.action


@dataclass(frozen=True, slots=True)
class Earlier:
    """What an earlier scanner left: all that it held, and the boot in which it wrote that."""

    held: Sequence[tuple[DeviceKey, Sequence[Held]]] = ()
    boot_id: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What comes of all that is held against a device; each sorted."""

    reasons: tuple[str, ...] = ()
    """Why it is Unhealthy; empty when it is Healthy."""
    warnings: tuple[str, ...] = ()


FINE = Verdict()


class Policy:
    """What is held against each device."""

    def __init__(self, recover_after: int) -> None:
        """`recover_after`: how many good looks in a row take back what stands while it is seen."""
        self.recover_after = recover_after
        self._held: dict[DeviceKey, dict[HeldKey, Held]] = {}
        self.seen = Seen()
        """The last periodic look."""
        self._known: set[tuple[DeviceKey, str]] = set()
        """The devices that each source of `FIRST_SIGHT_SOURCES` has looked at."""

    def note(self, seen: Seen, now: Now) -> None:
        """Hold what is seen from now on; nothing is taken back by it (a look between two periodic ones)."""
        for key, findings in seen.findings.items():
            held = self._held.setdefault(key, {})
            for finding in findings:
                _raise(held, finding, now, was_there=self._may_be_old(key, finding))
            if not held:
                del self._held[key]
        for key in seen.not_looked:
            self._known.update((key, source) for source in FIRST_SIGHT_SOURCES if not seen.why_not_looked(key, source))

    def _may_be_old(self, key: DeviceKey, finding: "Finding") -> bool:
        """Whether it is from before the first look: it has bits set, and nobody knows of a time when it had not."""
        meaning = MEANINGS[finding.source, finding.reason]
        is_first = (key, finding.source) not in self._known
        return meaning.only_when_new and is_first and _bits(finding.value) is not None

    def observe(self, seen: Seen, now: Now) -> None:
        """Take in a periodic look: what is seen is held, and what is not seen is one look nearer to its end."""
        self.seen = seen
        for key, held in list(self._held.items()):
            standing = {_key_of(finding) for finding in seen.findings.get(key, ())}
            for place in held.keys() - standing:
                if self._ends_unseen(key, held[place], now):
                    del held[place]
            for one in held.values():
                one.is_over |= _is_quiet(one, now)
            if not held:
                del self._held[key]
        self.note(seen, now)

    def _ends_unseen(self, key: DeviceKey, held: Held, now: Now) -> bool:
        """Whether a finding that is not seen any more is over."""
        if self.seen.why_not_looked(key, held.finding.source):
            return False
        if held.meaning.quiet_seconds is not None:
            held.seen_count = 0  # the source has been started again: whatever it counts next is new
            return _is_quiet(held, now)
        held.good_looks += 1
        return held.good_looks >= self.recover_after

    def verdict(self, key: DeviceKey) -> Verdict:
        """What comes of all that is held against a device."""
        held = self._held.get(key)
        return _verdict(held.values()) if held else FINE

    def verdicts(self) -> dict[DeviceKey, Verdict]:
        """Every device that is Unhealthy or warned of, with its verdict."""
        verdicts = ((key, _verdict(held.values())) for key, held in self._held.items())
        return {key: verdict for key, verdict in verdicts if verdict != FINE}

    def all_held(self) -> Iterator[tuple[DeviceKey, list[Held]]]:
        """Every device that something is held against, with all that is: by device, then by reason and source."""
        for key in sorted(self._held):
            yield key, sorted(self._held[key].values(), key=_order)

    def held_against(self, key: DeviceKey) -> list[Held]:
        """What is held against one device, sorted by reason and source."""
        return sorted(self._held.get(key, {}).values(), key=_order)

    def forget_all_but(self, known: Collection[DeviceKey]) -> None:
        """Drop what is held against devices that are no longer known."""
        self._held = {key: held for key, held in self._held.items() if key in known}
        self._known = {(key, source) for key, source in self._known if key in known}

    def restore(self, earlier: Earlier, known: Iterable[DeviceKey], now: Now) -> None:
        """Go on with what an earlier scanner held and knew.

        Events of another boot are over, and error registers have another past: the device has been reset since.
        """
        is_same_boot = earlier.boot_id == now.boot_id
        if is_same_boot:
            self._known.update((key, source) for key in known for source in FIRST_SIGHT_SOURCES)
        for key, all_held in earlier.held:
            for one in all_held:
                if is_same_boot or (one.meaning.quiet_seconds is None and not one.meaning.only_when_new):
                    self._held.setdefault(key, {})[_key_of(one.finding)] = one


def _raise(held: dict[HeldKey, Held], finding: "Finding", now: Now, *, was_there: bool) -> None:
    place = _key_of(finding)
    before = held.get(place)
    if before is None:
        count = max(1, finding.count)
        held[place] = Held(finding, now.wall, now.wall, now.monotonic, now.boot_id, count, was_there=was_there)
    elif before.meaning.quiet_seconds is None:
        before.count += before.good_looks > 0
        before.good_looks = 0
        before.renew(finding, now)
    elif finding.count != before.seen_count:
        # A source that has been started again counts from one.
        news = finding.count - (before.seen_count if finding.count > before.seen_count else 0)
        before.count = news if before.is_over else before.count + news
        before.first = now.wall if before.is_over else before.first
        before.is_over = False
        before.renew(finding, now)
    held[place].seen_count = finding.count


def _has_more(value: str, before: str) -> bool:
    """Whether a register has bits set that it had not; also where it can no longer be read as one."""
    bits, known = _bits(value), _bits(before)
    return bits is None or known is None or bool(bits & ~known)


def _bits(value: str) -> int | None:
    """The bits of a register, decimal or with 0x; None for anything else."""
    try:
        return int(value, 0)
    except ValueError:
        return None


def _is_quiet(held: Held, now: Now) -> bool:
    quiet_seconds = held.meaning.quiet_seconds
    return quiet_seconds is not None and now.monotonic - held.last_monotonic >= quiet_seconds


def _verdict(held: Iterable[Held]) -> Verdict:
    words: dict[Action, set[str]] = {"unhealthy": set(), "warn": set()}
    for one in held:
        if not one.is_over:
            words[one.action].add(one.finding.reason)
    return Verdict(tuple(sorted(words["unhealthy"])), tuple(sorted(words["warn"])))


def _key_of(finding: "Finding") -> HeldKey:
    return finding.source, finding.reason, finding.file


def _order(held: Held) -> tuple[str, str, str]:
    return held.finding.reason, held.finding.source, held.finding.file
