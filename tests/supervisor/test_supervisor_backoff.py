"""Delays between the starts of a child that keeps failing."""

from hypothesis import given
from hypothesis import strategies as st

from devherd.supervisor import backoff

FAILURES = st.integers(1, 10**6)
CHANCE = st.floats(0, 1, exclude_max=True)


@given(CHANCE)
def test_the_first_retry_comes_at_once(chance):
    """A child that died once is back without any wait."""
    assert backoff.delay_seconds(1, chance) == 0.0


@given(FAILURES, CHANCE)
def test_no_delay_is_longer_than_the_cap(failures, chance):
    """However often a child fails, it is tried again within 30 s."""
    assert 0.0 <= backoff.delay_seconds(failures, chance) <= backoff.LONGEST_SECONDS


@given(FAILURES, CHANCE, CHANCE)
def test_delays_grow_with_the_failures_whatever_chance_says(failures, one, other):
    """Jitter never makes the delay after two more failures shorter, below the cap."""
    assert backoff.delay_seconds(failures, one) <= backoff.delay_seconds(failures + 2, other) or (
        backoff.delay_seconds(failures + 2, 0) == backoff.LONGEST_SECONDS
    )


def test_delays_double_from_a_tenth_of_a_second():
    """The documented series, without jitter."""
    delays = [backoff.delay_seconds(failures, 0.0) for failures in range(1, 13)]
    assert delays == [0.0, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0, 30.0]


@given(st.integers(0, 10**6), st.floats(0, 10**6))
def test_only_a_child_that_lived_long_starts_afresh(before, lived_seconds):
    """A minute of life makes the next failure the first of a new row."""
    expected = 1 if lived_seconds >= backoff.STEADY_SECONDS else before + 1
    assert backoff.failures_in_a_row(before, lived_seconds) == expected
