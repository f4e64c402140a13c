"""From findings to verdicts: Unhealthy or a warning, since when, until when. Pure.

`health.rules` of the configuration may give a finding another meaning than the registry does.
"""

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import repeat
from typing import TYPE_CHECKING

from devherd._native import Evidence
from devherd.config.resolved import facts_of, fits_any, selects
from devherd.health import breaker
from devherd.health.held import (
    FLAPPING,
    MISSED_SECONDS,
    NOTHING,
    Flapping,
    Held,
    Now,
    Place,
    Record,
    Remembered,
    Seen,
    Stated,
    Statement,
    bits_of,
    is_about,
    place_of,
)
from devherd.inventory import DeviceKey
from devherd.reasons import registry
from devherd.reasons.registry import FIRST_SIGHT_SOURCES, Action, Meaning
from devherd.reasons.xids import TAKES_BACK, XID

if TYPE_CHECKING:
    from devherd._native import Finding
    from devherd.config.sections import HealthRule
    from devherd.inventory import Entry, Inventory
    from devherd.proto.health_pb2 import SourceState

MeaningOf = Callable[[DeviceKey, "Finding"], Meaning]

_SHOWN_BY_ITS_END = {
    registry.GONE: (Evidence.READDED, Evidence.REBOUND),
    registry.DRIVER_UNBOUND: (Evidence.REBOUND,),
}
"""The evidence that follows when such a finding ends: a device that is present again was re-added or rebound."""


def _shown_by_the_end_of(finding: "Finding") -> tuple[str, ...]:
    """The evidence. A poll's finding that a device is gone also ends when the next scan agrees: it shows nothing."""
    if finding.reason == registry.GONE and finding.source != registry.INVENTORY:
        return ()
    return _SHOWN_BY_ITS_END.get(finding.reason, ())


@dataclass(frozen=True, slots=True)
class Earlier:
    """The state that the previous scanner wrote, and the id of its boot."""

    held: Sequence[tuple[DeviceKey, Sequence[Held]]] = ()
    boot_id: str = ""
    stated: Sequence[tuple[DeviceKey, Statement, float]] = ()
    remembered: Remembered = NOTHING
    """Positions and counts of the sources."""
    flapping: Sequence[tuple[DeviceKey, Place, Record]] = ()
    sources: "Sequence[SourceState]" = ()


@dataclass(frozen=True, slots=True)
class Verdict:
    """The findings that count against a device, as words; each sorted."""

    reasons: tuple[str, ...] = ()
    """Why it is Unhealthy; empty when it is Healthy."""
    warnings: tuple[str, ...] = ()


FINE = Verdict()


class Policy:
    """The findings held against each device."""

    def __init__(self, recover_after: int) -> None:
        """`recover_after`: the number of consecutive good looks that end a level finding."""
        self._held: dict[DeviceKey, dict[Place, Held]] = {}
        self.use(recover_after)
        self._stated = Stated()
        self.seen = Seen()
        """The last periodic look."""
        self._known: set[tuple[DeviceKey, str]] = set()
        """The devices that each source of `FIRST_SIGHT_SOURCES` has looked at."""
        self._cards = breaker.Cards()
        self._has_hearsay = False
        """Whether a finding of a hearsay source was ever held: such a source is doubted if it condemns many devices."""
        self._flapping = Flapping()
        self.raised: dict[tuple[str, str], int] = {}
        """How often each source and reason was raised against a device since this process started."""

    def use(
        self,
        recover_after: int,
        meaning_of: MeaningOf = lambda _, finding: registry.meaning_of(finding),
        *,
        has_breaker: bool = True,
        damps: bool = True,
        off: Collection[str] = (),
    ) -> None:
        """Apply the settings of the configuration from the next look on.

        `has_breaker`: a source that condemns most devices at once is doubted. `damps`: findings that come and go are
        held for longer. `off`: disabled sources; their findings are dropped.
        """
        self._off = frozenset(off)
        self.recover_after = recover_after
        self._meaning_of = meaning_of
        self._has_breaker = has_breaker
        self._damps = damps
        for key, held in list(self._held.items()):
            for place in [place for place, one in held.items() if one.finding.source in self._off]:
                del held[place]
            if not held:
                del self._held[key]
            for one in held.values():
                one.meaning = meaning_of(key, one.finding)
                one.is_doubted &= has_breaker
                one.damped *= damps

    def note(self, seen: Seen, now: Now) -> None:
        """Add findings between two periodic looks. A finding that is absent here does not count as a good look."""
        self._apply_statements(seen, now)
        self._take_in(seen, now)
        self._judge(now)

    def observe(self, seen: Seen, now: Now) -> None:
        """Apply a periodic look: its findings are held; held findings that it lacks come a look closer to the end."""
        self.seen = seen
        self._apply_statements(seen, now)
        for key, held in list(self._held.items()):
            standing = {place_of(finding) for finding in seen.findings.get(key, ())}
            for place, one in list(held.items()):
                if self._ends(key, one, now, is_seen=place in standing):
                    del held[place]
            if not held:
                del self._held[key]
        self._take_in(seen, now)
        self._flapping.forget_calm(now.monotonic)
        self._judge(now)

    def _judge(self, now: Now) -> None:
        if self._has_breaker and self._has_hearsay:
            breaker.judge(self._held, self._cards, now.monotonic, self._is_blind)

    def _is_blind(self, key: DeviceKey, source: str) -> bool:
        return bool(self.seen.why_not_looked(key, source))

    def _apply_statements(self, seen: Seen, now: Now) -> None:
        for key, statement, monotonic in seen.stated:
            self._state(key, statement, min(monotonic, now.monotonic), now)

    def _state(self, key: DeviceKey, statement: Statement, monotonic: float, now: Now) -> None:
        """Note a statement and end the findings of the device that it ends."""
        if not self._stated.note(key, statement, monotonic):
            return
        if statement.evidence == Evidence.OPERATOR and statement.reason:
            self._end_relative(key, statement.reason)
        for one in self._held.get(key, {}).values():
            if statement.evidence == Evidence.OPERATOR and statement.reason in {"", one.finding.reason}:
                one.damped = 0.0
                self._flapping.forget(key, one.place)
            if monotonic > one.last_monotonic and is_about(statement, one.finding, one.meaning):
                one.is_taken_back = True
                one.is_over |= statement.evidence == Evidence.OPERATOR or _was_held_long_enough(one, now)

    def _end_relative(self, key: DeviceKey, reason: str) -> None:
        """End the findings of this reason that compare with an earlier state: an operator accepts the present state."""
        held = self._held.get(key, {})
        for place in [at for at, one in held.items() if one.finding.reason == reason and one.meaning.is_relative]:
            del held[place]

    def newly_cleared(self, seen: Seen) -> list[tuple[DeviceKey, str]]:
        """The reasons that an operator has taken back since the last look."""
        return [
            (key, statement.reason)
            for key, statement, monotonic in seen.stated
            if statement.evidence == Evidence.OPERATOR
            and statement.reason
            and not self._stated.is_cleared(key, statement.reason, math.nextafter(monotonic, 0.0))
        ]

    def _ends(self, key: DeviceKey, held: Held, now: Now, *, is_seen: bool) -> bool:
        """True if a finding need not be remembered after this look."""
        if self.seen.why_not_looked(key, held.finding.source):
            return not is_seen and self._is_given_up(key, held)
        is_event = held.meaning.is_event
        if held.is_waiting and (is_seen or is_event) and now.monotonic - held.since >= held.meaning.after:
            self._let_count(key, held, now.monotonic)
        if is_event:
            return _event_ends(held, now, is_seen=is_seen)
        if is_seen:
            return False
        if held.note_good_look(self.seen.looks.get(held.finding.source, 0.0)) and held.good_looks == 1:
            for evidence in _shown_by_the_end_of(held.finding):
                # It ended at an unknown moment since then: events from that time may be newer than its end.
                self._state(key, Statement(evidence), held.last_monotonic, now)
        has_recovered = held.good_looks >= self.recover_after and _was_held_long_enough(held, now)
        return held.is_waiting or has_recovered

    def _is_given_up(self, key: DeviceKey, held: Held) -> bool:
        """True if an operator has cleared a finding whose source cannot check: without looks it would never end."""
        is_level = not held.meaning.is_event
        return is_level and self._stated.is_cleared(key, held.finding.reason, held.last_monotonic)

    def _take_in(self, seen: Seen, now: Now) -> None:
        for key, findings in seen.findings.items():
            for finding in findings:
                if finding.source in self._off:
                    continue
                if self._meaning_of(key, finding).is_event:
                    self._counted(key, finding, seen.last_at.get((key, finding), now.monotonic), now)
                else:
                    self._stands(key, finding, now)
        for event in seen.events:
            if event.finding.source in self._off:
                continue
            self._happened(event.key, event.finding, event.monotonic, event.times, now)
        for source in FIRST_SIGHT_SOURCES:
            looked_at = seen.not_looked.keys() - seen.unseen(seen.not_looked, (source,))
            self._known.update(zip(looked_at, repeat(source)))

    def _stands(self, key: DeviceKey, finding: "Finding", now: Now) -> None:
        held = self._held.get(key, {}).get(place_of(finding))
        if held is None:
            self._raise(key, finding, now.monotonic, max(1, finding.count), now)
            return
        self._count(finding, int(held.good_looks > 0))
        held.count += held.good_looks > 0
        held.good_looks = 0
        held.renew(finding, now)

    def _counted(self, key: DeviceKey, finding: "Finding", monotonic: float, now: Now) -> None:
        """Apply an event that its source counts; a restarted source counts from one."""
        before = self._held.get(key, {}).get(place_of(finding))
        known = before.seen_count if before else 0
        if before is not None and finding.count == known:
            return
        news = finding.count - (known if finding.count > known else 0)
        self._happened(key, finding, monotonic, max(1, news), now)
        held = self._held.get(key, {}).get(place_of(finding))
        if held is not None:
            held.seen_count = finding.count

    def _happened(self, key: DeviceKey, finding: "Finding", monotonic: float, times: int, now: Now) -> None:
        """Apply an event of that CLOCK_MONOTONIC second, unless something later has ended it already."""
        monotonic = min(monotonic, now.monotonic)
        meaning = self._meaning_of(key, finding)
        if finding.reason == XID and finding.value in TAKES_BACK:
            place = (finding.source, finding.reason, finding.file, TAKES_BACK[finding.value])
            self._take_back(key, place, monotonic, now)
        if _is_quiet(meaning, monotonic, now) or self._stated.ends(key, finding, meaning, monotonic):
            return
        held = self._held.get(key, {}).get(place_of(finding))
        if held is None or held.is_over:
            self._raise(key, finding, monotonic, times, now)
            return
        self._count(finding, times)
        held.count += times
        if monotonic >= held.last_monotonic:
            held.is_taken_back = False
            held.renew(finding, Now(now.wall_at(monotonic), monotonic, now.boot_id))

    def _take_back(self, key: DeviceKey, place: Place, monotonic: float, now: Now) -> None:
        """End the event at this place if it happened before that second: another event reports its end."""
        held = self._held.get(key, {}).get(place)
        if held is not None and held.last_monotonic < monotonic:
            held.is_taken_back = True
            held.is_over |= _was_held_long_enough(held, now)

    def _raise(self, key: DeviceKey, finding: "Finding", monotonic: float, times: int, now: Now) -> None:
        self._count(finding, times)
        meaning = self._meaning_of(key, finding)
        wall = now.wall_at(monotonic)
        held = Held(finding, meaning, wall, wall, monotonic, monotonic, now.boot_id, times)
        held.was_there = self._may_be_old(key, finding, meaning)
        held.is_waiting = now.monotonic - monotonic < meaning.after
        if not held.is_waiting:
            self._let_count(key, held, monotonic)
        self._held.setdefault(key, {})[held.place] = held
        self._has_hearsay |= registry.is_hearsay(finding.source)

    def _let_count(self, key: DeviceKey, held: Held, monotonic: float) -> None:
        held.is_waiting = False
        if self._damps and held.meaning.is_damped and held.condemns:
            held.damped = self._flapping.raised(key, held.place, monotonic)

    def _count(self, finding: "Finding", times: int) -> None:
        word = finding.source, finding.reason
        self.raised[word] = self.raised.get(word, 0) + times

    def _may_be_old(self, key: DeviceKey, finding: "Finding", meaning: Meaning) -> bool:
        """True if bits were set before the first look at the device, so that their age is unknown."""
        is_first = (key, finding.source) not in self._known
        return meaning.only_when_new and is_first and bits_of(finding.value) is not None

    def disproved_by(self, evidence: str, seen: Seen) -> set[DeviceKey]:
        """The devices with an event, held or new in `seen`, that this evidence would end."""
        held = {
            key
            for key, held in self._held.items()
            if any(one.counts and evidence in one.meaning.evidence for one in held.values())
        }
        return held | {
            event.key for event in seen.events if evidence in self._meaning_of(event.key, event.finding).evidence
        }

    def verdict(self, key: DeviceKey) -> Verdict:
        """The verdict on a device."""
        held = self._held.get(key)
        return _verdict(held.values()) if held else FINE

    def verdicts(self) -> dict[DeviceKey, Verdict]:
        """The verdict on each device that is Unhealthy or has a warning."""
        verdicts = ((key, _verdict(held.values())) for key, held in self._held.items())
        return {key: verdict for key, verdict in verdicts if verdict != FINE}

    @property
    def holds_anything(self) -> bool:
        """Whether a finding is held against a device, whether it counts or not."""
        return bool(self._held)

    def all_held(self) -> Iterator[tuple[DeviceKey, list[Held]]]:
        """All held findings of each device: sorted by device, the gravest finding first."""
        for key in sorted(self._held):
            yield key, sorted(self._held[key].values(), key=_order)

    def held_against(self, key: DeviceKey) -> list[Held]:
        """All held findings of one device, the gravest first."""
        return sorted(self._held.get(key, {}).values(), key=_order)

    @property
    def stated_version(self) -> int:
        """A number that changes whenever `all_stated` does."""
        return self._stated.version

    def all_stated(self) -> Iterator[tuple[DeviceKey, Statement, float]]:
        """The statements about devices, each with its latest CLOCK_MONOTONIC second: sorted."""
        return self._stated.everything()

    def all_flapping(self) -> Iterator[tuple[DeviceKey, Place, Record]]:
        """The findings raised against devices within the flapping window: sorted."""
        return self._flapping.everything()

    def forget_all_but(self, known: Collection[DeviceKey], now: Now) -> None:
        """Drop findings against devices that are not in `known`: keys, or inventory entries by key.

        Events stay held, because the configuration may drop a device and take it back. If the device was gone, events
        that end when a device is re-added end now.
        """
        for key in self._held.keys() - known:
            held = self._held[key]
            if any(one.finding.reason in {registry.GONE, registry.RENAMED} for one in held.values()):
                self._state(key, Statement(Evidence.READDED), now.monotonic, now)
            self._held[key] = {place: one for place, one in held.items() if one.counts and one.meaning.is_event}
        self._held = {key: held for key, held in self._held.items() if held}
        self._stated.forget_all_but({*known, *self._held})
        self._known -= {(key, source) for key, source in self._known if key not in known}
        self._cards = breaker.Cards(known)

    def restore(self, earlier: Earlier, known: Collection[DeviceKey], now: Now) -> None:
        """Continue with the state of an earlier scanner.

        A boot ends events, except those that need other evidence. It also drops findings that count only new bits of an
        error register, because the device has been reset.
        """
        self._cards = breaker.Cards(known)
        is_same_boot = earlier.boot_id == now.boot_id
        if is_same_boot:
            self._known.update((key, source) for key in known for source in FIRST_SIGHT_SOURCES)
            for key, statement, monotonic in earlier.stated:
                self._stated.note(key, statement, monotonic)
            for key, place, record in earlier.flapping:
                self._flapping.restore(key, place, record)
        for key, all_held in earlier.held:
            for one in all_held:
                if one.finding.source in self._off:
                    continue
                if is_same_boot or _outlives_a_boot(one):
                    one.meaning = self._meaning_of(key, one.finding)
                    one.damped *= self._damps
                    if not is_same_boot:
                        one.since = one.last_monotonic = now.monotonic
                        one.damped = one.doubted_until = 0.0
                    one.was_there |= _may_have_recovered(one, now)
                    self._held.setdefault(key, {})[one.place] = one
                    self._has_hearsay |= registry.is_hearsay(one.finding.source)
        self._judge(now)


def _is_quiet(meaning: Meaning, last_monotonic: float, now: Now) -> bool:
    """True if the event's quiet time has passed; always False for an event without a quiet time."""
    return meaning.quiet_seconds is not None and now.monotonic - last_monotonic >= meaning.quiet_seconds


def _event_ends(held: Held, now: Now, *, is_seen: bool) -> bool:
    is_missed = held.may_be_over and now.monotonic - held.last_monotonic >= MISSED_SECONDS
    held.is_taken_back |= is_missed or _is_quiet(held.meaning, held.last_monotonic, now)
    held.is_over |= held.is_taken_back and _was_held_long_enough(held, now)
    if not is_seen:
        held.seen_count = 0  # the source does not count it, or has been started again: whatever it counts next is new
    return held.is_over and not is_seen


_RESET_SECONDS = 60.0
"""For how long a GPU under i915 may hang until its reset has helped; it takes a few seconds."""


def _may_have_recovered(held: Held, now: Now) -> bool:
    """True for a GPU under i915 that hung shortly before this process started: its recovery may have been missed."""
    is_recent = now.monotonic - held.last_monotonic < _RESET_SECONDS
    return is_recent and (held.finding.source, held.finding.value) == (registry.WEDGED, registry.HANGING)


def _was_held_long_enough(held: Held, now: Now) -> bool:
    return now.monotonic - held.last_monotonic >= held.hold


def _outlives_a_boot(held: Held) -> bool:
    meaning = held.meaning
    if not meaning.is_event:
        return not meaning.only_when_new
    is_ended_by_it = meaning.clears == "quiet" or Evidence.REBOOTED in meaning.evidence
    return held.counts and not is_ended_by_it


def _verdict(held: Iterable[Held]) -> Verdict:
    words: dict[Action, set[str]] = {"unhealthy": set(), "warn": set(), "ignore": set()}
    for one in held:
        if one.counts:
            words[one.action].add(one.finding.reason)
            if one.damped:
                words["warn"].add(FLAPPING)
    return Verdict(tuple(sorted(words["unhealthy"])), tuple(sorted(words["warn"])))


_GRAVITY = ("never", "until", "level", "quiet")
"""How hard it is to end a finding, the hardest first."""


def _order(held: Held) -> tuple[object, ...]:
    """The gravest first: what counts and condemns, what is not there, what nothing ends by itself; a cordon last."""
    finding = held.finding
    weight = ("unhealthy", "warn", "ignore").index(held.action)
    kind = -1 if finding.reason in {registry.GONE, registry.RENAMED} else _GRAVITY.index(held.meaning.clears)
    is_cordon = finding.source == registry.CORDON
    return not held.counts, weight, is_cordon, kind, finding.reason, finding.source, finding.file, finding.value


class Rules:
    """The health rules of the configuration, and the devices that they apply to; the first matching rule decides."""

    def __init__(self, rules: Sequence["HealthRule"], inventory: "Inventory") -> None:
        self._rules = rules
        self._inventory = inventory

    def meaning_of(self, key: "DeviceKey", finding: "Finding") -> Meaning:
        """The meaning of a finding for a device. Raises KeyError for an unknown reason."""
        entry = self._inventory.entries.get(key)
        driver = entry.device.attributes.get("driver_version", "") if entry else ""
        meaning = registry.meaning_of(finding, driver)
        for number, rule in enumerate(self._rules):
            if _is_about(rule, finding) and _means(rule, self._inventory.entries, key):
                return _changed(meaning, rule, rule.name or f"health.rules[{number}]")
        return meaning


def _is_about(rule: "HealthRule", finding: "Finding") -> bool:
    matched = ((finding.source, rule.source), (finding.reason, rule.reason), (finding.value, rule.value))
    return all(not globs or fits_any(word, globs) for word, globs in matched)


def _means(rule: "HealthRule", entries: Mapping["DeviceKey", "Entry"], key: "DeviceKey") -> bool:
    """Whether a rule applies to a device. A rule that selects devices never applies to an unknown device."""
    if not (rule.match.facts or rule.match.exclude):
        return True
    return key in entries and selects(rule.match, facts_of(entries[key]))


def _changed(meaning: Meaning, rule: "HealthRule", name: str) -> Meaning:
    return replace(
        meaning,
        action=rule.action or meaning.action,
        after=meaning.after if rule.after is None else rule.after,
        hold=meaning.hold if rule.hold is None else rule.hold,
        only_when_new=meaning.only_when_new and rule.action is None,
        rule=name,
    )
