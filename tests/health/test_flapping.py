"""What comes and goes is held for longer, and warned of."""

from collections.abc import Iterator

import pytest
from health.meanings import finding, registered
from hypothesis import given
from hypothesis import strategies as st

from devherd._native import Finding
from devherd.health.held import Now, Record, Seen
from devherd.health.policy import FINE, Policy, Verdict
from devherd.health.verdicts import VerdictsFile
from devherd.reasons.registry import GONE, INVENTORY

GPU = ("nvidia", "0000:01:00.0", "GPU-1")
LEVEL, FLAPS = Verdict(("level",)), Verdict(("level",), ("flapping",))


@pytest.fixture(autouse=True)
def _reasons() -> Iterator[None]:
    with registered():
        yield


def at(seconds: float) -> Now:
    return Now(1_000_000.0 + seconds, seconds, "boot-1")


def seen_at(policy: Policy, second: float, *, is_bad: bool) -> Verdict:
    policy.observe(Seen({GPU: [finding("level")]} if is_bad else {}), at(second))
    return policy.verdict(GPU)


def come_and_gone(policy: Policy, *seconds: float) -> None:
    """Raised at each of these, and well a second later."""
    for second in seconds:
        seen_at(policy, second, is_bad=True)
        seen_at(policy, second + 1, is_bad=False)


def test_the_third_time_within_an_hour_it_is_held_for_ten_minutes():
    """And a warning says why."""
    policy = Policy(1)
    come_and_gone(policy, 0, 100)
    assert policy.verdict(GPU) == FINE

    come_and_gone(policy, 200)

    assert policy.verdict(GPU) == FLAPS
    assert seen_at(policy, 799, is_bad=False) == FLAPS
    assert seen_at(policy, 800, is_bad=False) == FINE


def test_each_further_time_it_is_held_for_twice_as_long():
    """Up to two hours; after a calm hour it begins anew."""
    policy, second, holds = Policy(1), 200.0, []
    come_and_gone(policy, 0, 100)
    for _ in range(6):
        seen_at(policy, second, is_bad=True)
        holds.append(policy.held_against(GPU)[0].hold)
        second += holds[-1]
        assert seen_at(policy, second, is_bad=False) == FINE
        second += 1

    assert holds == [600, 1200, 2400, 4800, 7200, 7200]
    come_and_gone(policy, second + 3600)
    assert policy.verdict(GPU) == FINE


def test_twice_an_hour_is_no_flapping():
    """However long that goes on."""
    policy = Policy(1)
    come_and_gone(policy, *range(0, 36_000, 1801))

    assert policy.verdict(GPU) == FINE


def test_a_restart_of_the_scanner_forgets_no_time(tmp_path):
    """Twice before, once after."""
    before, after = Policy(1), Policy(1)
    come_and_gone(before, 0, 100)
    VerdictsFile(tmp_path / "verdicts.pb").write(before, at(150))
    after.restore(VerdictsFile(tmp_path / "verdicts.pb").read(), [GPU], at(160))

    come_and_gone(after, 200)

    assert after.verdict(GPU) == FLAPS


def test_an_operator_ends_it():
    """Who has mended the card need not wait."""
    policy = Policy(1)
    come_and_gone(policy, 0, 100, 200)
    seen = Seen()
    seen.cleared_by_operator(GPU, "level", 300)
    policy.observe(seen, at(300))
    assert policy.verdict(GPU) == FINE

    come_and_gone(policy, 400)
    assert policy.verdict(GPU) == FINE


def test_where_the_configuration_says_so_nothing_is_held_for_longer():
    """`health.flapping: off`, also for what is held already."""
    policy, without = Policy(1), Policy(1)
    without.use(1, damps=False)
    come_and_gone(without, 0, 100, 200)
    come_and_gone(policy, 0, 100, 200)
    policy.use(1, damps=False)

    assert (without.verdict(GPU), seen_at(policy, 300, is_bad=False)) == (FINE, FINE)


def test_what_is_no_fault_may_come_and_go():
    """What is ignored, an FPGA that is programmed anew, a node or a driver that is seen to be there again."""
    policy = Policy(1)
    usual = [("scan", "unprogrammed"), ("node", "node-missing"), ("pci-driver", "driver-unbound"), (INVENTORY, GONE)]
    found = [finding("noted"), *(Finding(source=source, reason=reason) for source, reason in usual)]
    for second in range(0, 100, 2):
        policy.observe(Seen({GPU: found}), at(second))
        policy.observe(Seen(), at(second + 1))

    assert policy.verdict(GPU) == FINE


@given(st.lists(st.floats(0, 10_000), max_size=30))
def test_it_is_never_held_longer_than_two_hours_and_only_when_it_came_three_times(pauses):
    """Whatever the times."""
    record, moment = Record(), 0.0
    for number, pause in enumerate(pauses, start=1):
        moment += pause
        record = record.with_raise(moment)
        assert record.hold <= (7200 if number >= 3 else 0)
        if pause >= 7200 + 3600:
            assert record.hold == 0


def test_an_operators_word_is_heard_once_however_long_its_file_stands():
    """Flapping that begins anew after it is flapping."""
    policy, seen = Policy(1), Seen()
    come_and_gone(policy, 0, 100, 200)
    seen.cleared_by_operator(GPU, "level", 300)
    policy.note(seen, at(300))
    seen_at(policy, 301, is_bad=False)
    come_and_gone(policy, 400, 500, 600)
    policy.note(seen, at(650))

    assert policy.verdict(GPU) == FLAPS


def test_what_never_stood_for_its_time_is_no_flapping():
    """A port that is down for a moment each minute, and once for long."""
    policy = Policy(1)
    for second in range(0, 600, 60):
        policy.observe(Seen({GPU: [finding("late")]}), at(second))
        policy.observe(Seen(), at(second + 1))
    for second in (600, 630):
        policy.observe(Seen({GPU: [finding("late")]}), at(second))

    assert policy.verdict(GPU) == Verdict(("late",))
