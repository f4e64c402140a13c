"""Counters in memory: what they hold, what they write down, and what a successor makes of that."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devherd.counters import Counter, Counters, Histogram
from devherd.proto.spool_pb2 import Series

CALLS = Counter("calls", "Calls.", ("who", "what"))
TIME = Histogram("time", "Time.", (), (0.1, 1.0))


def test_an_observation_falls_into_the_first_bucket_that_holds_it():
    """A bucket's bound belongs to it, as Prometheus has it; above the last bound is the bucket without one."""
    counters = Counters([TIME])
    for seconds in (0.0, 0.1, 0.25, 1.0, 7.0):
        counters.observe(TIME, seconds)
    (series,) = counters.series()
    assert list(series.buckets) == [2, 2, 1]
    assert series.total == pytest.approx(8.35)


@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("xy"), st.integers(0, 5)), max_size=20),
    st.integers(0, 20),
)
def test_it_does_not_matter_how_often_the_process_was_replaced(events, replaced_at):
    """One process that counts everything, and one that goes on from what the other wrote, end up the same."""
    one, first = Counters([CALLS]), Counters([CALLS])
    for who, what, amount in events:
        one.add(CALLS, who, what, amount=amount)
    for who, what, amount in events[:replaced_at]:
        first.add(CALLS, who, what, amount=amount)
    second = Counters([CALLS], [Series.FromString(series.SerializeToString()) for series in first.series()])
    assert not second.changed
    for who, what, amount in events[replaced_at:]:
        second.add(CALLS, who, what, amount=amount)
    assert one.series() == second.series()


def test_what_another_version_counted_otherwise_is_begun_anew():
    """Other labels, other buckets, a metric that is no more: a series that does not fit is left behind."""
    kept = [
        Series(metric="calls", labels=["a"], total=3),
        Series(metric="time", buckets=[1, 2], total=3),
        Series(metric="gone", total=3),
        Series(metric="calls", labels=["a", "x"], total=3),
    ]
    assert Counters([CALLS, TIME], kept).series() == kept[3:]


def test_series_of_what_is_gone_are_forgotten_and_others_stay():
    """A node whose devices come and go under new names does not fill its memory with them."""
    counters = Counters([CALLS, TIME])
    for who in "abc":
        counters.add(CALLS, who, "x")
    counters.observe(TIME, 1.0)
    counters.forget_others(CALLS, {("b", "x")})
    assert [(series.metric, list(series.labels)) for series in counters.series()] == [
        ("calls", ["b", "x"]),
        ("time", []),
    ]
