"""Health as a set of reasons: Unhealthy at once, Healthy after a run of good polls."""

from hypothesis import given
from hypothesis import strategies as st

from devherd.scanner.health import Health

PORT = ("intel-fpga", "0000:81:00.0", "dfl-port.0")
OTHER = ("generic", "a.b/c group 0", "x")


def test_a_fault_counts_at_once_and_leaves_after_a_run_of_good_polls():
    """One bad poll is enough to be Unhealthy; `recover_after` good ones are needed to be Healthy again."""
    health = Health(recover_after=3)

    health.observe({PORT: {"port-error"}})
    states = [health.reasons(PORT)]
    for _ in range(3):
        health.observe({})
        states.append(health.reasons(PORT))

    assert states == [("port-error",), ("port-error",), ("port-error",), ()]


def test_a_fault_that_returns_starts_the_run_afresh():
    """A flapping device does not become Healthy in between."""
    health = Health(recover_after=2)

    for faults in [{PORT: {"node-missing"}}, {}, {PORT: {"node-missing"}}, {}]:
        health.observe(faults)

    assert health.reasons(PORT) == ("node-missing",)


def test_reasons_recover_each_on_its_own():
    """A device is Healthy only when every reason is taken back."""
    health = Health(recover_after=1)

    health.observe({PORT: {"port-error", "temperature"}})
    health.observe({PORT: {"temperature"}})

    assert health.reasons(PORT) == ("temperature",)


def test_an_event_between_polls_can_only_make_things_worse():
    """A burst of events must not be counted as good polls."""
    health = Health(recover_after=2)

    health.observe({PORT: {"node-missing"}})
    for _ in range(10):
        health.note({})
    health.note({PORT: {"port-error"}})

    assert health.reasons(PORT) == ("node-missing", "port-error")


def test_a_device_that_is_forgotten_takes_its_reasons_along():
    """Nothing is held against a device that no longer exists."""
    health = Health(recover_after=3)
    health.note({PORT: {"gone"}})

    health.forget_all_but(set())

    assert health.all_reasons() == {}


REASONS = st.sampled_from(["node-missing", "port-error", "temperature"])
POLLS = st.lists(st.dictionaries(st.sampled_from([PORT, OTHER]), st.sets(REASONS, min_size=1)), max_size=30)


@given(st.integers(1, 4), POLLS)
def test_a_reason_is_held_exactly_while_one_of_the_last_polls_found_it(recover_after, polls):
    """The definition: held if and only if it was found in the last `recover_after` polls."""
    health = Health(recover_after)
    for poll in polls:
        health.observe(poll)

    recent = polls[-recover_after:]
    for key in (PORT, OTHER):
        assert set(health.reasons(key)) == set().union(*(poll.get(key, set()) for poll in recent))
