"""Delays between attempts that keep failing."""

import re
import signal
import socket
import time
from contextlib import suppress

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


def delays_in(log):
    """The seconds until the next start, in the order in which they were logged."""
    return [float(seconds) for seconds in re.findall(r"next start in ([\d.]+) s", log)]


def test_a_child_that_sleeps_without_an_answer_is_woken_ever_more_slowly(instance):
    """One that was taken over hands over what always rings, and would have itself started as often as the CPU can."""
    order = instance.order("nap.exporter")
    instance.start()
    until(lambda: len(delays_in(instance.stderr())) >= 5, "five delays")
    delays = delays_in(instance.stderr())
    assert instance.stderr().count("exporter started") <= len(delays) + 3
    assert delays[4] > 2 * delays[1]
    until(lambda: instance.children()["exporter"].asleep, "it sleeps, until the delay is over")
    order.unlink()
    until(lambda: (child := instance.children().get("exporter")) and child.pid, "it runs")


def test_a_child_that_crashes_at_each_connection_is_started_ever_more_slowly(instance):
    """It binds again and sleeps in between, which is no success: nobody can have it forked without a pause."""
    instance.order("doze.exporter")
    instance.start()

    def crashes_seen():
        with socket.socket(socket.AF_UNIX) as client, suppress(OSError):
            client.connect(str(instance.settings.run_dir / "door"))
        return len(delays_in(instance.stderr())) >= 5

    until(crashes_seen, "five delays")
    delays = delays_in(instance.stderr())
    assert delays[4] > 2 * delays[1]
    crashes = instance.stderr().count("RuntimeError: crashed at a connection")
    assert len(delays) <= crashes <= len(delays) + 3


def lives_seconds(instance):
    """For how long the child of now runs; its predecessor may have been seen running as it failed."""
    child = instance.running(RESOURCE)
    return time.time() - child.started_timestamp_seconds


def test_a_child_that_lived_long_starts_at_once_however_often_it_failed(instance):
    """What failed after it had recovered is no failure in a row."""
    failing = instance.order(f"fail.{RESOURCE}")
    instance.order("soon-steady")  # after a second instead of a minute
    instance.start()
    until(lambda: (child := instance.children().get(RESOURCE)) and child.restarts["exit"] >= 4, "failures in a row")
    failing.unlink()
    until(lambda: lives_seconds(instance) > 1.5, "a life of more than a second")
    seen = len(instance.stderr())

    instance.order(f"fail.{RESOURCE}")

    until(lambda: f"{RESOURCE}: exit status 1; next start" in instance.stderr()[seen:], "the failure")
    starts = [line for line in instance.stderr()[seen:].splitlines() if "; next start" in line]
    assert f"{RESOURCE}: exit status 1; next start at once" in starts[0]


def rings_without_an_answer(instance):
    """Have a child sleep that always rings, until its next start is a while away."""
    instance.order("nap.exporter")
    instance.start()
    until(lambda: max(delays_in(instance.stderr()), default=0) > 1.0, "a long delay")


def test_a_child_that_is_woken_slowly_can_be_stopped_and_started(instance):
    """Its sockets are not polled in that time."""
    rings_without_an_answer(instance)
    assert instance.ctl("stop", "exporter") == "exporter: stopped\n"
    assert instance.ctl("start", "exporter") == "exporter: started\n"
    assert instance.process.poll() is None


def test_a_child_that_is_woken_slowly_is_woken_by_a_reload(instance):
    """At once: the delay is for those who connect."""
    rings_without_an_answer(instance)
    starts = instance.stderr().count("exporter started")
    instance.orders.joinpath("nap.exporter").unlink()
    instance.process.send_signal(signal.SIGHUP)
    until(lambda: instance.stderr().count("exporter started") > starts, "its start")
    until(lambda: instance.children()["exporter"].pid, "it runs")


def test_an_instance_ends_while_a_child_is_woken_slowly(instance):
    """With exit code 0, as ever."""
    rings_without_an_answer(instance)
    instance.process.terminate()
    assert instance.ended() == 0
