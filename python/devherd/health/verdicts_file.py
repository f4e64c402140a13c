"""`<run-dir>/verdicts.pb`: what is held against devices, with its evidence.

`devherd explain` shows it, and a scanner that is started again goes on with it.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from devherd import spool
from devherd._native import Finding, KernelLogEvent, health_sources
from devherd.health import words
from devherd.health.clears import Evidence
from devherd.health.flapping import Record
from devherd.health.held import Held, Place
from devherd.health.policy import Earlier, Policy
from devherd.health.registry import MEANINGS, Action, meaning_of
from devherd.health.remembered import NOTHING, KernelLogPosition, Remembered
from devherd.health.seen import ANY_SOURCE, Now, Statement
from devherd.proto import health_pb2

if TYPE_CHECKING:
    from devherd.inventory import DeviceKey

LATEST_SECONDS = 5.0
"""How old the times of what is still seen may be in the file: all else is written at once."""

_SCAN_CORE = frozenset(source.name for source in health_sources())
"""Sources that count from one again with each scanner."""

_ACTIONS: dict[Action, health_pb2.Action.ValueType] = {
    "unhealthy": health_pb2.UNHEALTHY,
    "warn": health_pb2.WARN,
    "ignore": health_pb2.IGNORE,
}


class VerdictsFile:
    """Its one writer, and reader at start."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._written: object = None
        self._written_at = 0.0
        self._read_to: KernelLogPosition | None = None

    def read(self) -> Earlier:
        """What an earlier scanner held; nothing where there is no file that can be read."""
        return earlier_in(spool.read_or_empty(self._path, health_pb2.Verdicts))

    def write(self, policy: Policy, now: Now, remembered: Remembered = NOTHING, *, at_once: bool = False) -> None:
        """Bring the file up to date with what is held, and with what it was taken from. Raises OSError.

        Records of the kernel log that say nothing may be read again after a restart, so they wait; `at_once` where some
        said something.
        """
        held = [
            (key, _frozen(policy, key), [_state_of(one) for one in all_held]) for key, all_held in policy.all_held()
        ]
        known = remembered.memories, remembered.waiting, remembered.uuids
        evidence = dict(policy.seen.failed), dict(policy.seen.reported), held, policy.stated_version, known
        goes_on = bool(held) or remembered.kernel_log != self._read_to
        is_late = goes_on and now.monotonic >= self._written_at + LATEST_SECONDS
        if evidence == self._written and not (at_once or is_late):
            return
        message = message_of(policy, now)
        _remember(message, remembered)
        spool.write(self._path, message)
        self._written, self._written_at, self._read_to = evidence, now.monotonic, remembered.kernel_log


def earlier_in(verdicts: health_pb2.Verdicts) -> Earlier:
    """What was held when this was written; words that are not registered any more are left out."""
    return Earlier(
        list(_held_in(verdicts)),
        verdicts.boot_id,
        list(_stated_in(verdicts)),
        flapping=list(_flapping_in(verdicts)),
        remembered=_remembered_in(verdicts),
    )


def _held_in(verdicts: health_pb2.Verdicts) -> Iterator[tuple["DeviceKey", list[Held]]]:
    for verdict in verdicts.verdicts:
        known = [held for held in verdict.held if (held.source, held.reason) in MEANINGS]
        if known:
            yield (verdict.vendor, verdict.card, verdict.device), list(map(_held_of, known))


def _stated_in(verdicts: health_pb2.Verdicts) -> Iterator[tuple["DeviceKey", Statement, float]]:
    for stated in verdicts.stated:
        if stated.evidence in set(Evidence):
            statement = Statement(Evidence(stated.evidence), stated.source, stated.reason)
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
        uuids=dict(verdicts.kernel_log_uuids),
        memories=[((one.card, one.source, one.file, one.variant), one.text) for one in verdicts.memories],
    )


def _event_of(message: health_pb2.KernelLogEvent) -> KernelLogEvent:
    return KernelLogEvent(
        rule=message.rule,
        pci_address=message.pci_address,
        uuid=message.uuid,
        gpu_instance=message.gpu_instance if message.HasField("gpu_instance") else None,
        compute_instance=message.compute_instance if message.HasField("compute_instance") else None,
        xid=message.xid,
        value=message.value,
        text=message.text,
        monotonic=message.monotonic_seconds,
        times=message.times,
    )


def _remember(message: health_pb2.Verdicts, remembered: Remembered) -> None:
    if remembered.kernel_log is not None:
        message.kernel_log.next_record, message.kernel_log.lag_seconds = remembered.kernel_log
    for event in remembered.waiting:
        message.waiting.add(
            rule=event.rule,
            pci_address=event.pci_address,
            uuid=event.uuid,
            gpu_instance=event.gpu_instance,
            compute_instance=event.compute_instance,
            xid=event.xid,
            value=event.value,
            text=event.text,
            monotonic_seconds=event.monotonic,
            times=event.times,
        )
    message.kernel_log_uuids.update(remembered.uuids)
    for (card, source, file, variant), text in remembered.memories:
        message.memories.add(card=card, source=source, file=file, variant=variant, text=text)


def message_of(policy: Policy, now: Now) -> health_pb2.Verdicts:
    """All that is held, and which sources cannot look."""
    message = health_pb2.Verdicts(boot_id=now.boot_id, timestamp_seconds=now.wall)
    for key, all_held in policy.all_held():
        vendor, card, device = key
        verdict = message.verdicts.add(vendor=vendor, card=card, device=device, frozen=_frozen(policy, key))
        for held in all_held:
            not_looked = policy.seen.why_not_looked(key, held.finding.source)
            verdict.held.append(_message_of(held, policy.recover_after, not_looked, now))
    failed, reported = policy.seen.failed, policy.seen.reported
    for source in sorted({*failed, *reported}):
        why, when = failed.get(source, ""), reported.get(source, 0.0)
        message.sources.add(source=source, failed=why, last_report_timestamp_seconds=when)
    for key, statement, monotonic in policy.all_stated():
        vendor, card, device = key
        about = health_pb2.Stated(vendor=vendor, card=card, device=device, monotonic_seconds=monotonic)
        about.evidence, about.source, about.reason = statement
        message.stated.append(about)
    for key, place, record in policy.all_flapping():
        vendor, card, device = key
        lately = health_pb2.Flapping(vendor=vendor, card=card, device=device, hold_seconds=record.hold)
        lately.source, lately.reason, lately.file, lately.value = place
        lately.raised_monotonic_seconds.extend(record.raised)
        message.flapping.append(lately)
    return message


def _frozen(policy: Policy, key: "DeviceKey") -> str:
    """Why no source looks at a device."""
    return policy.seen.not_looked.get(key, {}).get(ANY_SOURCE, "")


def _state_of(held: Held) -> object:
    """All that is written at once when it changes."""
    progress = held.count, held.good_looks, held.is_waiting, held.is_taken_back, held.is_over, held.doubted_until
    return held.finding, held.meaning, held.action, progress


def _message_of(held: Held, recover_after: int, not_looked: str, now: Now) -> health_pb2.Held:
    finding = held.finding
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
        taken_back_by=words.way_back(held, recover_after),
        not_yet=words.not_yet(held, recover_after, not_looked, now),
        since_monotonic_seconds=held.since,
        is_waiting=held.is_waiting,
        is_taken_back=held.is_taken_back,
        good_looks=held.good_looks,
        is_unseen=bool(not_looked),
        damped_seconds=held.damped,
        doubted_until_monotonic_seconds=held.doubted_until,
        only_warned=words.only_warned(held, now),
        rule=held.meaning.rule,
    )


def finding_of(message: health_pb2.Held) -> Finding:
    """What was found."""
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
        boot_id=message.boot_id,
        count=message.count,
        seen_count=0 if message.source in _SCAN_CORE else message.source_count,
        is_over=message.is_over,
        was_there=message.was_there,
        damped=message.damped_seconds,
        doubted_until=message.doubted_until_monotonic_seconds,
    )
