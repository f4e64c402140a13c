"""`<run-dir>/verdicts.pb`: the findings held against devices, their evidence, and what ends them."""

import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from devherd import spool
from devherd._native import Evidence, Finding, KernelLogEvent, health_sources
from devherd.health.held import (
    ANY_SOURCE,
    MISSED_SECONDS,
    NOTHING,
    Held,
    KernelLogPosition,
    Now,
    Place,
    Record,
    Remembered,
    Seen,
    Statement,
)
from devherd.health.policy import Earlier, Policy
from devherd.proto import health_pb2
from devherd.reasons.registry import (
    CORDON,
    MEANINGS,
    NVML,
    RENAMED,
    RESOURCE,
    STATE,
    STATES,
    Action,
    clear,
    meaning_of,
    to_do,
    uncordon,
)

if TYPE_CHECKING:
    from devherd.inventory import DeviceKey

Facts = Mapping[str, str]
"""What is known of a device for people: the facts that `to_do` uses."""
FactsOf = Callable[["DeviceKey"], Facts]


def _nothing_known(_: "DeviceKey") -> Facts:
    return {}


_SHOWN = {
    Evidence.REBOUND: "rebinding its driver",
    Evidence.READDED: "removing and re-adding it",
    Evidence.REBOOTED: "a reboot",
    Evidence.RECOVERY_NONE: "its driver's word that it needs no recovery",
    Evidence.RECOVERY_UNASKED: "its driver's word that it needs no recovery",
    Evidence.RESTARTED: "a reset that NVML detects",
    Evidence.STARTED: "a start of it that NVML or procfs shows",
    Evidence.ANSWERED: "an answer of its configuration space",
    Evidence.SOURCE_CLEARED: "its source",
}
"""The kinds of evidence that end a finding, in the order in which they are listed; last, the operator's command."""


def way_back(held: Held, recover_after: int, facts: Facts = MappingProxyType({}), device_id: str = "") -> str:
    """What ends the finding: an act, an event or a number of good polls. The commands are for the device, if given."""
    meaning, hold, resource = held.meaning, held.hold, facts.get(RESOURCE, "")
    if held.finding.source == CORDON:
        return uncordon(resource, device_id)
    if held.finding.reason == RENAMED:
        return "deleting the pod that holds it; a name that no pod holds is forgotten after health.forget_after"
    at_least = _at_least(held)
    command = clear(resource, device_id, held.finding.reason)
    if not meaning.is_event:
        looks = "1 good poll" if recover_after == 1 else f"{recover_after} good polls in a row"
        return looks + at_least + (f" or {command}" if meaning.is_relative else "")
    if meaning.quiet_seconds is not None:
        return f"{max(meaning.quiet_seconds, hold):g} s without another event"
    if held.may_be_over:
        at_least += f", or {MISSED_SECONDS:g} s without another event"
    listed = list(dict.fromkeys(shown for evidence, shown in _SHOWN.items() if evidence in meaning.evidence))
    if Evidence.OPERATOR in meaning.evidence:
        listed.append(command)
    *others, last = listed or (_SHOWN[Evidence.SOURCE_CLEARED], command)
    return (f"{', '.join(others)} or {last}" if others else last) + at_least


def ends(held: Held, recover_after: int, facts: Facts = MappingProxyType({}), device_id: str = "") -> str:
    """What ends the finding, after the word `ends`: `by a reboot`, `when 3 polls in a row find it`."""
    way = way_back(held, recover_after, facts, device_id)
    if held.meaning.quiet_seconds is not None:
        return f"after {way}"
    if held.meaning.is_event or held.finding.source == CORDON or held.finding.reason == RENAMED:
        return f"by {way}"
    _, good = _state_of_reason(held)
    polls = f"1 poll {_singular(good)}" if recover_after == 1 else f"{recover_after} polls in a row {good}"
    command = clear(facts.get(RESOURCE, ""), device_id, held.finding.reason)
    return f"when {polls}{_at_least(held)}" + (f", or by {command}" if held.meaning.is_relative else "")


def _at_least(held: Held) -> str:
    return f", {held.hold:g} s after it was last seen at the earliest" if held.hold else ""


def _singular(good: str) -> str:
    """`finds it`, `can read it`."""
    verb, _, rest = good.partition(" ")
    return good if verb == "can" else f"{verb}s {rest}"


def _state_of_reason(held: Held) -> tuple[str, str]:
    return STATES.get(held.finding.reason, STATE)


def so_far(
    held: Held,
    not_looked: str,
    now: Now,
    recover_after: int,
    *,
    lets_go_after: float = 0.0,
    sees_resets: bool = True,
    command: str = "devherd clear",
) -> str:
    """How far the finding's end is, or when it counts; empty if it has ended.

    `lets_go_after`: seconds without a report after which a failed source no longer counts; 0: it always counts.
    `sees_resets`: whether NVML reports; only NVML notices that a GPU has been reset, the driver prints nothing.
    `command`: what an operator ends it with.
    """
    if held.is_over or (held.finding.source == CORDON and not held.good_looks):
        return ""
    if held.is_waiting:
        counts = _clock(held.first + held.meaning.after, now)
        return f"{_stands(held, now)}counts at {counts} if it lasts"
    if not_looked:
        silence = f"; it no longer counts after {lets_go_after:g} s without a report" if lets_go_after else ""
        way_out = "" if held.meaning.is_event else f"; {command} ends it"
        return f"not checked: {not_looked}{silence}{way_out}"
    quiet_for = max(0.0, now.monotonic - held.last_monotonic)
    missing = _what_is_missing(held, recover_after, quiet_for, now)
    is_ended_by_a_reset = Evidence.RECOVERY_NONE in held.meaning.evidence and not held.is_taken_back
    if is_ended_by_a_reset and not sees_resets:
        missing += f"; without NVML a reset of the GPU is not noticed: after one, {command} ends it"
    return missing or _held_on(held, quiet_for)


def _stands(held: Held, now: Now) -> str:
    """`too hot since 07:57:53Z; `; empty for an event."""
    return "" if held.meaning.is_event else f"{_state_of_reason(held)[0]} since {_clock(held.first, now)}; "


def _clock(seconds: float, now: Now) -> str:
    """The time of a Unix second: `07:57:53Z`, with the date if that is another one than today's."""
    shown = time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime(seconds))
    return shown.removeprefix(time.strftime("%Y-%m-%d ", time.gmtime(now.wall)))


def _what_is_missing(held: Held, recover_after: int, quiet_for: float, now: Now) -> str:
    """The condition that is missing for its end; empty if only the minimum hold keeps the finding."""
    if not held.meaning.is_event:
        if not held.good_looks:
            again = f", {held.count} times" if held.count > 1 else ""
            return f"{_stands(held, now).removesuffix('; ')}{again}"
        return f"{held.good_looks} of {recover_after} good polls" if held.good_looks < recover_after else ""
    if held.is_taken_back:
        return ""
    if held.meaning.quiet_seconds is not None:
        return f"the last event was {quiet_for:.0f} s ago"
    return f"nothing of that was seen since {_clock(held.last, now)}"


def _held_on(held: Held, quiet_for: float) -> str:
    why = ": it comes and goes" if held.damped else ""
    return f"held for another {max(0.0, held.hold - quiet_for):.0f} s{why}"


def only_warned(held: Held, now: Now) -> str:
    """Why a finding whose reason makes devices Unhealthy is only a warning; empty for any other finding."""
    if held.meaning.action != "unhealthy" or held.action == "unhealthy":
        return ""
    if held.may_be_over:
        return "it hung shortly before devherd started again, which may have missed its recovery; a further hang counts"
    if held.was_there:
        return "already set at the first look at the device; a further bit makes it Unhealthy"
    seconds = max(0.0, held.doubted_until - now.monotonic)
    return f"its source condemns most devices at once; it counts in {seconds:.0f} s, or when another source agrees"


LATEST_SECONDS = 5.0
"""Limit in seconds on the age of the file's last-seen times; every other change is written at once."""

_SCAN_CORE = frozenset(source.name for source in health_sources() if source.is_of_scan_core)
"""Sources whose counts restart with each scanner."""

_ACTIONS: dict[Action, health_pb2.Action.ValueType] = {
    "unhealthy": health_pb2.UNHEALTHY,
    "warn": health_pb2.WARN,
    "ignore": health_pb2.IGNORE,
}


class VerdictsFile:
    """Writes the file, and reads it at start."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._written: object = None
        self._written_at = 0.0
        self._read_to: KernelLogPosition | None = None

    def read(self) -> Earlier:
        """The state of the previous scanner; empty if there is no readable file."""
        return earlier_in(spool.read_or_empty(self._path, health_pb2.Verdicts))

    def write(
        self,
        policy: Policy,
        now: Now,
        remembered: Remembered = NOTHING,
        facts_of: FactsOf = _nothing_known,
        *,
        at_once: bool = False,
    ) -> None:
        """Bring the file up to date with the policy and the memory of the sources. Raises OSError.

        `facts_of` returns what `to_do` needs to know of a device.

        A change of the kernel log's position alone is written after `LATEST_SECONDS`, or at once if `at_once`: records
        without findings may be read a second time after a restart.
        """
        held = [
            (key, _frozen(policy, key), [_state_of(one) for one in all_held]) for key, all_held in policy.all_held()
        ]
        known = remembered.memories, remembered.waiting, remembered.uuids, remembered.last_words
        seen = policy.seen
        sources = dict(seen.failed), dict(seen.reported), dict(seen.report_errors)
        evidence = sources, held, policy.stated_version, known
        goes_on = bool(held) or remembered.kernel_log != self._read_to
        is_late = goes_on and now.monotonic >= self._written_at + LATEST_SECONDS
        if evidence == self._written and not (at_once or is_late):
            return
        message = message_of(policy, now, facts_of)
        _remember(message, remembered)
        spool.write(self._path, message)
        self._written, self._written_at, self._read_to = evidence, now.monotonic, remembered.kernel_log


def earlier_in(verdicts: health_pb2.Verdicts) -> Earlier:
    """The state in a file; without reasons that are no longer registered."""
    return Earlier(
        list(_held_in(verdicts)),
        verdicts.boot_id,
        list(_stated_in(verdicts)),
        flapping=list(_flapping_in(verdicts)),
        remembered=_remembered_in(verdicts),
        sources=list(verdicts.sources),
    )


def _held_in(verdicts: health_pb2.Verdicts) -> Iterator[tuple["DeviceKey", list[Held]]]:
    for verdict in verdicts.verdicts:
        known = [held for held in verdict.held if (held.source, held.reason) in MEANINGS]
        if known:
            yield (verdict.vendor, verdict.card, verdict.device), list(map(_held_of, known))


def _stated_in(verdicts: health_pb2.Verdicts) -> Iterator[tuple["DeviceKey", Statement, float]]:
    for stated in verdicts.stated:
        if stated.evidence in Evidence.ALL:
            statement = Statement(stated.evidence, stated.source, stated.reason)
            yield (stated.vendor, stated.card, stated.device), statement, stated.monotonic_seconds


def _flapping_in(verdicts: health_pb2.Verdicts) -> Iterator[tuple["DeviceKey", Place, Record]]:
    for one in verdicts.flapping:
        place = one.source, one.reason, one.file, one.value
        record = Record(tuple(one.raised_monotonic_seconds), one.hold_seconds)
        yield (one.vendor, one.card, one.device), place, record


def _remembered_in(verdicts: health_pb2.Verdicts) -> Remembered:
    at = verdicts.kernel_log
    return Remembered(
        kernel_log=KernelLogPosition(at.next_record, at.lag_seconds) if verdicts.HasField("kernel_log") else None,
        waiting=[_event_of(event) for event in verdicts.waiting],
        at_unknown_links=[_event_of(event) for event in verdicts.at_unknown_links],
        uuids=dict(verdicts.kernel_log_uuids),
        memories=[((one.card, one.source, one.file, one.variant), one.text) for one in verdicts.memories],
        last_words=[_event_of(event) for event in verdicts.last_words],
    )


def _event_of(message: health_pb2.KernelLogEvent) -> KernelLogEvent:
    return KernelLogEvent(
        rule=message.rule,
        pci_address=message.pci_address,
        uuid=message.uuid,
        gpu_instance=message.gpu_instance if message.HasField("gpu_instance") else None,
        compute_instance=message.compute_instance if message.HasField("compute_instance") else None,
        link=message.link if message.HasField("link") else None,
        xid=message.xid,
        value=message.value,
        text=message.text,
        monotonic=message.monotonic_seconds,
        times=message.times,
    )


def _event_message(event: KernelLogEvent) -> health_pb2.KernelLogEvent:
    return health_pb2.KernelLogEvent(
        rule=event.rule,
        pci_address=event.pci_address,
        uuid=event.uuid,
        gpu_instance=event.gpu_instance,
        compute_instance=event.compute_instance,
        link=event.link,
        xid=event.xid,
        value=event.value,
        text=event.text,
        monotonic_seconds=event.monotonic,
        times=event.times,
    )


def _remember(message: health_pb2.Verdicts, remembered: Remembered) -> None:
    if remembered.kernel_log is not None:
        message.kernel_log.next_record = remembered.kernel_log.next_record
        message.kernel_log.lag_seconds = remembered.kernel_log.lag_seconds
    message.waiting.extend(map(_event_message, remembered.waiting))
    message.at_unknown_links.extend(map(_event_message, remembered.at_unknown_links))
    message.last_words.extend(map(_event_message, remembered.last_words))
    message.kernel_log_uuids.update(remembered.uuids)
    for (card, source, file, variant), text in remembered.memories:
        message.memories.add(card=card, source=source, file=file, variant=variant, text=text)


def message_of(policy: Policy, now: Now, facts_of: FactsOf = _nothing_known) -> health_pb2.Verdicts:
    """All held findings, and the sources that cannot check."""
    message = health_pb2.Verdicts(boot_id=now.boot_id, timestamp_seconds=now.wall)
    for key, all_held in policy.all_held():
        vendor, card, device = key
        verdict = message.verdicts.add(vendor=vendor, card=card, device=device, frozen=_frozen(policy, key))
        facts = facts_of(key)
        verdict.held.extend(_message_of(held, policy, key, now, facts) for held in all_held)
    message.sources.extend(source_states(policy.seen))
    for key, statement, monotonic in policy.all_stated():
        vendor, card, device = key
        about = health_pb2.Stated(vendor=vendor, card=card, device=device, monotonic_seconds=monotonic)
        about.evidence, about.source, about.reason = statement.evidence, statement.source, statement.reason
        message.stated.append(about)
    for key, place, record in policy.all_flapping():
        vendor, card, device = key
        lately = health_pb2.Flapping(vendor=vendor, card=card, device=device, hold_seconds=record.hold)
        lately.source, lately.reason, lately.file, lately.value = place
        lately.raised_monotonic_seconds.extend(record.raised)
        message.flapping.append(lately)
    return message


def held_messages(policy: Policy, key: "DeviceKey", now: Now, facts: Facts) -> list[health_pb2.Held]:
    """The held findings of one device, as messages."""
    return [_message_of(held, policy, key, now, facts) for held in policy.held_against(key)]


def source_states(seen: Seen) -> list[health_pb2.SourceState]:
    """The sources that run as separate processes, fail, or report wrongly; sorted."""
    return [
        health_pb2.SourceState(
            source=source,
            failed=seen.failed.get(source, ""),
            last_report_timestamp_seconds=seen.reported.get(source, 0.0),
            report_errors=seen.report_errors.get(source, ()),
        )
        for source in sorted({*seen.failed, *seen.reported, *seen.report_errors})
    ]


def _frozen(policy: Policy, key: "DeviceKey") -> str:
    """Why no source looks at a device; empty if one does."""
    return policy.seen.not_looked.get(key, {}).get(ANY_SOURCE, "")


def _state_of(held: Held) -> object:
    """The part of a held finding whose changes are written at once."""
    progress = held.count, held.good_looks, held.is_waiting, held.is_taken_back, held.is_over, held.doubted_until
    return held.finding, held.meaning, held.action, progress


def _message_of(held: Held, policy: Policy, key: "DeviceKey", now: Now, facts: Facts) -> health_pb2.Held:
    finding, seen, recover_after = held.finding, policy.seen, policy.recover_after
    not_looked, lets_go_after = seen.why_not_looked(key, finding.source), seen.lets_go_after.get(finding.source, 0.0)
    sees_resets = key[0] != "nvidia" or (NVML in seen.reported and NVML not in seen.failed)
    return health_pb2.Held(
        source=finding.source,
        reason=finding.reason,
        action=_ACTIONS[held.action],
        detail=finding.detail,
        file=finding.file,
        value=finding.value,
        first_timestamp_seconds=held.first,
        last_timestamp_seconds=held.last,
        last_monotonic_seconds=held.last_monotonic,
        count=held.count,
        boot_id=held.boot_id,
        source_count=held.seen_count,
        is_over=held.is_over,
        was_there=held.was_there,
        do=to_do(finding, held.meaning, key[2], facts),
        ends=ends(held, recover_after, facts, key[2]),
        so_far=so_far(
            held,
            not_looked,
            now,
            recover_after,
            lets_go_after=lets_go_after,
            sees_resets=sees_resets,
            command=clear(facts.get(RESOURCE, ""), key[2], finding.reason),
        ),
        since_monotonic_seconds=held.since,
        is_waiting=held.is_waiting,
        is_taken_back=held.is_taken_back,
        good_looks=held.good_looks,
        good_look_monotonic_seconds=held.good_look,
        is_unseen=bool(not_looked),
        damped_seconds=held.damped,
        doubted_until_monotonic_seconds=held.doubted_until,
        only_warned=only_warned(held, now),
        rule=held.meaning.rule,
    )


def finding_of(message: health_pb2.Held) -> Finding:
    """The finding of a message."""
    return Finding(
        source=message.source,
        reason=message.reason,
        detail=message.detail,
        file=message.file,
        value=message.value,
        count=message.source_count,
    )


def _held_of(message: health_pb2.Held) -> Held:
    finding = finding_of(message)
    return Held(
        finding=finding,
        meaning=meaning_of(finding),
        first=message.first_timestamp_seconds,
        last=message.last_timestamp_seconds,
        since=message.since_monotonic_seconds,
        last_monotonic=message.last_monotonic_seconds,
        is_waiting=message.is_waiting,
        is_taken_back=message.is_taken_back,
        good_looks=message.good_looks,
        good_look=message.good_look_monotonic_seconds,
        boot_id=message.boot_id,
        count=message.count,
        seen_count=0 if message.source in _SCAN_CORE else message.source_count,
        is_over=message.is_over,
        was_there=message.was_there,
        damped=message.damped_seconds,
        doubted_until=message.doubted_until_monotonic_seconds,
    )
