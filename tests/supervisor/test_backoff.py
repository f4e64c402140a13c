"""Delays between attempts that keep failing."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from instance import until

from devherd.backoff import Backoff
from devherd.supervisor.process import FIRST_DELAY_SECONDS, JITTER, LONGEST_DELAY_SECONDS

RESOURCE = "resource:example.com_first"


def test_delays_double_up_to_the_longest_and_begin_again_after_a_reset():
    """The documented series of a child that keeps failing, without jitter."""
    backoff = Backoff(FIRST_DELAY_SECONDS, LONGEST_DELAY_SECONDS)
    assert backoff.is_fresh
    assert [backoff.seconds() for _ in range(11)] == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0, 30.0]
    assert backoff.is_longest

    backoff.reset()

    assert (backoff.is_fresh, backoff.is_longest, backoff.seconds()) == (True, False, 0.1)


@given(st.floats(0, 1, exclude_max=True), st.integers(0, 40))
def test_chance_makes_no_delay_longer_and_none_shorter_than_its_share(chance, before):
    """Children that fell together do not get up together, and the cap is never passed."""
    backoff, exact = Backoff(0.1, 30.0, JITTER), Backoff(0.1, 30.0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("random.random", lambda: chance)
        delays = [(backoff.seconds(), exact.seconds()) for _ in range(before + 1)]
    delay, longest = delays[-1]
    assert (1 - JITTER) * longest <= delay <= longest <= 30.0


def lives_seconds(instance):
    """For how long the child of now runs; its predecessor may have been seen running as it failed."""
    child = instance.running(RESOURCE)
    return time.time() - child.started_timestamp_seconds


def test_a_child_that_lived_long_starts_at_once_however_often_it_failed(instance):
    """What failed after it had recovered is no failure in a row."""
    failing = instance.order(f"fail.{RESOURCE}")
    instance.start(steady=1.0)
    until(lambda: (child := instance.children().get(RESOURCE)) and child.restarts["exit"] >= 4, "failures in a row")
    failing.unlink()
    until(lambda: lives_seconds(instance) > 1.5, "a life of more than a second")
    seen = len(instance.stderr())

    instance.order(f"fail.{RESOURCE}")

    until(lambda: f"{RESOURCE}: exit status 1; next start" in instance.stderr()[seen:], "the failure")
    starts = [line for line in instance.stderr()[seen:].splitlines() if "; next start" in line]
    assert f"{RESOURCE}: exit status 1; next start at once" in starts[0]
