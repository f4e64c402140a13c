"""Events: each is taken back by its own way, and one that is read late, after its end, is not raised."""

from collections.abc import Iterator

import pytest
from health.meanings import SOURCE, finding, registered
from hypothesis import given
from hypothesis import strategies as st

from devherd._native import Evidence, Finding
from devherd.health.held import Now, Seen
from devherd.health.policy import FINE, Policy, Verdict
from devherd.health.verdicts import earlier_in, message_of
from devherd.proto import health_pb2
from devherd.reasons.registry import GONE, HANGING, INVENTORY, WEDGED

GPU = ("nvidia", "0000:01:00.0", "GPU-1")
BOOT = "boot-1"
BROKEN, WORN_OUT, EDGE = finding("broken"), finding("worn-out"), finding("edge")


@pytest.fixture(autouse=True)
def _reasons() -> Iterator[None]:
    with registered():
        yield


def at(seconds: float, boot_id: str = BOOT) -> Now:
    return Now(1_000_000.0 + seconds, seconds, boot_id)


def undamped() -> Policy:
    """A policy for which what comes often is nothing special."""
    policy = Policy(3)
    policy.use(3, damps=False)
    return policy


def told(policy: Policy, second: float, *events, evidence=(), cleared=(), by_operator=()) -> Verdict:
    """The verdict when this was told, and looked at, at that second."""
    seen = Seen()
    for event, moment in events:
        seen.happened(GPU, event, moment)
    for word, moment in evidence:
        seen.evident(GPU, word, moment)
    for reason, moment in cleared:
        seen.cleared(GPU, SOURCE, reason, moment)
    for reason, moment in by_operator:
        seen.cleared_by_operator(GPU, reason, moment)
    policy.observe(seen, at(second))
    return policy.verdict(GPU)


def started_again(policy: Policy, second: float, boot_id: str = BOOT) -> Policy:
    """Another scanner's, by way of the bytes of the file."""
    content = message_of(policy, at(second)).SerializeToString()
    after = undamped()
    after.restore(earlier_in(health_pb2.Verdicts.FromString(content)), [GPU], at(second, boot_id))
    return after


def test_an_event_stays_until_its_evidence_is_seen():
    """However long that takes, and whatever else is seen."""
    policy = Policy(3)

    assert told(policy, 10, (BROKEN, 9)) == Verdict(("broken",))
    assert told(policy, 100_000, evidence=[(Evidence.OPERATOR, 99_999)]) == Verdict(("broken",))
    assert told(policy, 100_001, evidence=[(Evidence.RECOVERY_NONE, 100_001)]) == FINE


def test_evidence_from_before_the_event_ends_nothing():
    """A driver that was bound at the boot is no cure for what happened since."""
    policy = Policy(3)
    told(policy, 5, evidence=[(Evidence.REBOUND, 5)])

    assert told(policy, 10, (BROKEN, 9)) == Verdict(("broken",))
    assert told(policy, 11, evidence=[(Evidence.REBOUND, 5)]) == Verdict(("broken",))


@pytest.mark.parametrize("together", [True, False])
def test_an_event_that_is_replayed_after_its_evidence_is_not_raised(together):
    """A kernel log is read from the boot on: what a reset has ended since then is over."""
    policy = Policy(3)
    if together:
        told(policy, 100, (BROKEN, 9), evidence=[(Evidence.REBOUND, 50)])
    else:
        told(policy, 99, evidence=[(Evidence.REBOUND, 50)])
        told(policy, 100, (BROKEN, 9))

    assert policy.verdict(GPU) == FINE
    assert told(policy, 101, (BROKEN, 51)) == Verdict(("broken",))


def test_a_replayed_event_that_was_quiet_for_its_time_is_not_raised():
    """And one that was not is held for the rest of it."""
    policy = Policy(3)

    assert told(policy, 1000, (EDGE, 400)) == FINE
    assert told(policy, 1000, (EDGE, 401)) == Verdict(("edge",))
    assert told(policy, 1001) == FINE


def test_only_the_source_or_an_operator_takes_back_what_never_ends():
    """A row that could not be remapped outlives boots and resets."""
    policy = Policy(3)
    told(policy, 10, (WORN_OUT, 10))

    everything = [(evidence, 20.0) for evidence in sorted(Evidence.ALL)]
    assert told(policy, 20, evidence=everything) == Verdict(("worn-out",))
    assert started_again(policy, 30, "boot-2").verdict(GPU) == Verdict(("worn-out",))
    assert told(started_again(policy, 30), 31, cleared=[("worn-out", 31)]) == FINE
    assert told(started_again(policy, 30, "boot-2"), 31, by_operator=[("worn-out", 31)]) == FINE


def test_what_a_source_or_an_operator_takes_back_is_that_reason_alone():
    """The device is free only when nothing else is held against it."""
    for statement in ({"cleared": [("broken", 20)]}, {"by_operator": [("broken", 20)]}):
        policy = Policy(3)
        told(policy, 10, (BROKEN, 10), (WORN_OUT, 10))

        assert told(policy, 20, **statement) == Verdict(("worn-out",))


def test_an_event_that_its_source_goes_on_counting_stays_over_after_its_evidence():
    """The findings file of a source lists what happened for as long as the source runs."""
    counted = Seen({GPU: [finding("broken", count=2)]})
    policy = Policy(3)
    policy.observe(counted, at(1))
    told(policy, 2, evidence=[(Evidence.REBOUND, 2)])
    policy = Policy(3)
    policy.observe(counted, at(1))
    counted.evident(GPU, Evidence.REBOUND, 2)
    policy.observe(counted, at(2))
    policy.observe(counted, at(3))
    again = started_again(policy, 4)
    again.observe(counted, at(5))

    assert (policy.verdict(GPU), again.verdict(GPU)) == (FINE, FINE)
    again.observe(Seen({GPU: [finding("broken", count=3)]}), at(6))
    assert again.verdict(GPU) == Verdict(("broken",))


def test_a_device_that_was_gone_and_is_back_has_been_added_again():
    """Whatever its hardware held is gone with the power."""
    gone = Seen({GPU: [type(BROKEN)(source=INVENTORY, reason=GONE)]})
    policy = Policy(3)
    told(policy, 1, (BROKEN, 1), (finding("tenacious"), 1))
    policy.observe(gone, at(2))
    assert policy.verdict(GPU).reasons == ("broken", "gone", "tenacious")

    for second in (3, 4, 5):
        policy.observe(Seen(), at(second))

    assert policy.verdict(GPU) == Verdict(("tenacious",))


def test_a_device_that_the_configuration_drops_and_takes_again_is_as_ill_as_before():
    """One that was forgotten because it was gone has been added again."""
    dropped, pulled = Policy(3), Policy(3)
    for policy in (dropped, pulled):
        told(policy, 1, (BROKEN, 1), (finding("tenacious"), 1))
    pulled.observe(Seen({GPU: [type(BROKEN)(source=INVENTORY, reason=GONE)]}), at(2))

    for policy in (dropped, pulled):
        policy.forget_all_but(set(), at(400))

    assert dropped.verdict(GPU) == Verdict(("broken", "tenacious"))
    assert pulled.verdict(GPU) == Verdict(("tenacious",))


def test_a_driver_that_is_bound_anew_is_evidence():
    """`driver-unbound` that is not seen any more."""
    policy = Policy(3)
    told(policy, 1, (BROKEN, 1))
    policy.observe(Seen({GPU: [type(BROKEN)(source="scan", reason="driver-unbound")]}), at(2))
    policy.observe(Seen(), at(3))

    assert policy.verdict(GPU) == Verdict(("driver-unbound",))


def test_an_event_whose_device_is_not_examined_stays():
    """Also where the time for it has passed: nobody has looked."""
    policy = Policy(3)
    told(policy, 1, (EDGE, 1))

    policy.observe(Seen(not_looked={GPU: {"": "the card does not answer"}}), at(700))
    frozen = policy.verdict(GPU)
    policy.observe(Seen(), at(701))

    assert (frozen, policy.verdict(GPU)) == (Verdict(("edge",)), FINE)


def test_each_value_with_a_meaning_of_its_own_is_held_by_itself():
    """Xid 79 is another fault than Xid 31, and ends in another way."""
    policy = Policy(3)

    assert told(policy, 1, (finding("code", value="79"), 1), (finding("code", value="31"), 1)) == Verdict(
        ("code",), ("code",)
    )
    assert told(policy, 2, evidence=[(Evidence.REBOUND, 2)]) == Verdict((), ("code",))
    assert told(policy, 601) == FINE


def test_a_level_counts_when_it_has_stood_for_its_time():
    """A port that is down for a moment is none that is down; each gap begins the time anew."""
    policy, late = Policy(3), finding("late")

    def verdicts(*seconds: float, seen: bool) -> list[Verdict]:
        result = []
        for second in seconds:
            policy.observe(Seen({GPU: [late]} if seen else {}), at(second))
            result.append(policy.verdict(GPU))
        return result

    assert verdicts(0, 29, seen=True) == [FINE, FINE]
    assert verdicts(29.5, seen=False) == [FINE]
    assert verdicts(29.7, 59, 59.7, seen=True) == [FINE, FINE, Verdict(("late",))]
    assert verdicts(60, 61, 62, seen=False) == [Verdict(("late",)), Verdict(("late",)), FINE]


def test_a_restart_of_the_scanner_does_not_begin_the_time_anew():
    """What stood for 20 s needs 10 more."""
    policy = Policy(3)
    policy.observe(Seen({GPU: [finding("late")]}), at(0))
    policy = started_again(policy, 20)
    policy.observe(Seen({GPU: [finding("late")]}), at(30))

    assert policy.verdict(GPU) == Verdict(("late",))


def test_what_is_held_on_leaves_no_earlier_than_its_time():
    """After good looks, and after evidence, but not after an operator's word."""
    policy = Policy(1)
    policy.observe(Seen({GPU: [finding("kept")]}), at(0))
    told(policy, 0, (finding("kept-broken"), 0))
    assert told(policy, 59, evidence=[(Evidence.REBOUND, 59)]) == Verdict(("kept", "kept-broken"))
    assert told(policy, 60) == FINE

    told(policy, 100, (finding("kept-broken"), 100))
    assert told(policy, 101, by_operator=[("kept-broken", 101)]) == FINE


def test_what_is_ignored_is_held_and_does_nothing():
    """`devherd explain` shows it."""
    policy = Policy(3)
    policy.observe(Seen({GPU: [finding("noted")]}), at(0))

    assert policy.verdicts() == {}
    assert [(held.finding.reason, held.action) for held in policy.held_against(GPU)] == [("noted", "ignore")]


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("event"), st.sampled_from([BROKEN, WORN_OUT, EDGE])),
        st.tuples(st.just("evidence"), st.sampled_from(sorted(Evidence.ALL))),
        st.tuples(st.just("restart"), st.none()),
        st.tuples(st.just("look"), st.none()),
    ),
    max_size=25,
)


@given(STEPS)
def test_an_event_is_held_exactly_until_its_evidence_whatever_comes_between(steps):
    """Nothing is lost or doubled over restarts, and every replay of the whole history comes to the same."""
    policy, history, held = undamped(), [], {}
    for second, (kind, what) in enumerate(steps, start=1):
        seen = Seen()
        if kind == "event":
            seen.happened(GPU, what, second)
            held[what.reason] = held.get(what.reason, 0) + 1
        elif kind == "evidence":
            seen.evident(GPU, what, second)
            if what in {Evidence.REBOUND, Evidence.READDED, Evidence.REBOOTED, Evidence.RECOVERY_NONE}:
                held.pop("broken", None)
        elif kind == "restart":
            policy = started_again(policy, second)
        history.append(seen)
        policy.observe(seen, at(second))

        assert {one.finding.reason: one.count for one in policy.held_against(GPU) if one.counts} == held

    replayed, everything = Policy(3), Seen()
    for seen in history:
        everything.events += seen.events
        everything.stated += seen.stated
    replayed.observe(everything, at(len(steps) + 1))
    assert replayed.verdict(GPU) == policy.verdict(GPU)


def test_times_that_have_not_come_yet_are_now():
    """A clock that runs ahead neither hides events to come nor holds one for ever."""
    policy = Policy(3)
    told(policy, 10, evidence=[(Evidence.REBOUND, 1_000)])

    assert told(policy, 11, (BROKEN, 2_000)) == Verdict(("broken",))
    assert told(policy, 12, evidence=[(Evidence.RECOVERY_NONE, 12)]) == FINE


@pytest.mark.parametrize(("restarted_after", "expected"), [(10, Verdict((), (WEDGED,))), (600, Verdict((WEDGED,)))])
def test_a_gpu_of_i915_that_hung_just_before_a_restart_is_warned_of(restarted_after, expected):
    """Its recovery, `ERROR=0`, comes within seconds, and may have come while nobody listened: a further hang counts."""
    hang = Finding(source=WEDGED, reason=WEDGED, file="/sys/card", value=HANGING)
    policy = Policy(3)
    told(policy, 10, (hang, 1))
    after = started_again(policy, 1 + restarted_after)

    assert told(after, 2 + restarted_after) == expected
    assert [bool(one.only_warned) for one in message_of(after, at(700)).verdicts[0].held] == [bool(expected.warnings)]
    told(after, 10 + restarted_after, (hang, 9 + restarted_after))
    assert told(after, 20 + restarted_after) == Verdict((WEDGED,))
    assert told(after, 1_000, evidence=[(Evidence.REBOUND, 999)]) == FINE


def test_a_hang_of_i915_whose_end_may_have_been_missed_is_over_after_ten_quiet_minutes():
    """Without a restart between nobody can have missed it: the GPU is lost until its driver is bound again."""
    hang = Finding(source=WEDGED, reason=WEDGED, file="/sys/card", value=HANGING)
    policy = Policy(3)
    told(policy, 10, (hang, 1))
    assert told(policy, 5_000) == Verdict((WEDGED,))

    policy = Policy(3)
    told(policy, 10, (hang, 1))
    after = started_again(policy, 11)
    [held] = message_of(after, at(12)).verdicts[0].held
    assert held.ends.endswith(", or 600 s without another event")
    assert told(after, 600) == Verdict((), (WEDGED,))
    assert told(after, 602) == FINE
