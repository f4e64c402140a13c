"""What holds of the policy whatever is seen: sources that fail, cards that sleep, restarts."""

from collections.abc import Iterator

import pytest
from health.meanings import SOURCE, finding, registered
from hypothesis import given
from hypothesis import strategies as st

from devherd._native import Evidence, Finding
from devherd.health.held import ANY_SOURCE, Now, Seen
from devherd.health.policy import Earlier, Policy
from devherd.health.verdicts import earlier_in, message_of
from devherd.inventory import DeviceKey
from devherd.proto import health_pb2
from devherd.reasons.registry import KERNEL_LOG

GPUS = [("nvidia", f"0000:0{number}:00.0", f"GPU-{number}") for number in range(3)]
BOOT = "boot-1"
REASONS = ("level", "late", "kept", "noted", "broken", "worn-out", "edge", "tenacious")
EVENTS = ("broken", "worn-out", "edge", "tenacious")


@pytest.fixture(autouse=True)
def _reasons() -> Iterator[None]:
    with registered():
        yield


def at(seconds: float) -> Now:
    return Now(1_000_000.0 + seconds, seconds, BOOT)


WHAT = st.one_of(st.sampled_from(REASONS), st.sampled_from(sorted(Evidence.ALL)))
LOOKS = st.lists(st.lists(st.tuples(st.sampled_from(GPUS), WHAT), max_size=4), min_size=1, max_size=10)


def looks(whats: list[list[tuple[DeviceKey, str]]]) -> list[Seen]:
    """What stands, what happens and what is stated on three devices, look by look."""
    result = []
    for second, look in enumerate(whats):
        seen = Seen()
        for gpu, what in look:
            if what in Evidence.ALL:
                seen.evident(gpu, what, float(second))
            elif what in EVENTS:
                seen.happened(gpu, finding(what), float(second))
            else:
                seen.add(gpu, [finding(what)])
        result.append(seen)
    return result


def judged(policy: Policy) -> dict[object, object]:
    """All that is held, with what it does, how often it was raised and since when; and the verdicts."""
    held = {
        (key, one.place): (one.action, one.counts, one.count, one.first)
        for key, all_held in policy.all_held()
        for one in all_held
    }
    return held | policy.verdicts()


def observed(seen_looks: list[Seen]) -> Policy:
    policy = Policy(2)
    policy.restore(Earlier((), BOOT), GPUS, at(0.0))
    for second, seen in enumerate(seen_looks):
        policy.observe(seen, at(float(second)))
    return policy


@given(LOOKS.map(looks), st.integers(1, 2000), st.sampled_from(["failed", "asleep", "not examined"]))
def test_a_source_that_cannot_look_changes_no_device_however_long(seen_looks, seconds, why):
    """Neither what stands nor events, nor what waits to count; for a source that fails and for a device that sleeps."""
    policy = observed(seen_looks)
    before = judged(policy)

    for step in range(1, 4):
        if why == "failed":
            blind = Seen(failed={SOURCE: "the driver is not loaded"})
        else:
            blind = Seen(not_looked={gpu: {SOURCE if why == "asleep" else ANY_SOURCE: why} for gpu in GPUS})
        policy.observe(blind, at(len(seen_looks) + seconds * step / 4))

    assert judged(policy) == before


@given(LOOKS.map(looks), st.integers(0, 11))
def test_a_restart_of_the_scanner_loses_and_doubles_nothing(seen_looks, restart):
    """Wherever it falls, by way of the bytes of the file: the same is held, as often, since the same moment."""
    policy = observed([])
    for second, seen in enumerate(seen_looks):
        if second == restart:
            content = message_of(policy, at(float(second))).SerializeToString()
            policy = Policy(2)
            policy.restore(earlier_in(health_pb2.Verdicts.FromString(content)), GPUS, at(float(second)))
        policy.observe(seen, at(float(second)))

    assert judged(policy) == judged(observed(seen_looks))


@given(LOOKS.map(looks), st.sampled_from(EVENTS), st.booleans())
def test_taking_a_reason_back_never_frees_a_device_that_another_holds(seen_looks, reason, by_operator):
    """Nor another device."""
    policy = observed(seen_looks)
    moment = float(len(seen_looks))
    before = {gpu: {one.finding.reason for one in policy.held_against(gpu) if one.counts} for gpu in GPUS}
    seen = Seen()
    if by_operator:
        seen.cleared_by_operator(GPUS[0], reason, moment)
    else:
        seen.cleared(GPUS[0], SOURCE, reason, moment)
    policy.note(seen, at(moment))

    after = {gpu: {one.finding.reason for one in policy.held_against(gpu) if one.counts} for gpu in GPUS}
    assert after == before | {GPUS[0]: before[GPUS[0]] - {reason}}


RECORDS = {
    "off-bus": {Evidence.ANSWERED, Evidence.REBOUND, Evidence.READDED, Evidence.OPERATOR},
    "not-started": {Evidence.STARTED, Evidence.RESTARTED, Evidence.REBOUND, Evidence.READDED, Evidence.OPERATOR},
    "gpu-lost": {Evidence.RESTARTED, Evidence.RECOVERY_NONE, Evidence.REBOUND, Evidence.READDED, Evidence.OPERATOR},
}
"""Reasons of records in the kernel log, each with what shows that it is over."""
ALL_SHOWN = sorted(set.union(*RECORDS.values()))


@given(
    st.sampled_from(sorted(RECORDS)),
    st.lists(st.tuples(st.integers(1, 50), st.sampled_from(["record", *ALL_SHOWN])), max_size=12),
    st.randoms(use_true_random=False),
)
def test_a_record_counts_unless_the_same_act_has_succeeded_since_in_whatever_order_that_is_heard_of(
    reason, history, order
):
    """A GPU that was started after its last failed start is well, one whose last start failed is not."""
    order.shuffle(history)
    policy = observed([])
    policy.use(2, damps=False)
    for moment, what in history:
        seen = Seen()
        if what == "record":
            record = Finding(source=KERNEL_LOG, reason=reason, file="/dev/kmsg", value="rule")
            seen.happened(GPUS[0], record, float(moment))
        else:
            seen.evident(GPUS[0], what, float(moment))
        policy.note(seen, at(60.0))
    policy.observe(Seen(), at(61.0))

    last = max((moment for moment, what in history if what == "record"), default=0)
    shown = max((moment for moment, what in history if what in RECORDS[reason]), default=0)
    assert policy.verdict(GPUS[0]).reasons == ((reason,) if last and shown <= last else ())


@given(LOOKS.map(looks))
def test_what_is_counted_is_what_was_raised(seen_looks):
    """The metric of findings never misses or doubles an event."""
    policy = observed(seen_looks)
    happened = [event.finding.reason for seen in seen_looks for event in seen.events]

    for reason in ("worn-out", "edge"):
        assert policy.raised.get((SOURCE, reason), 0) == happened.count(reason)
