"""An instance that ends while another one stands by: its resource children serve until that one has taken over."""

import os
import signal

import pytest
from instance import is_alive, until

from devherd.instance.files import read_standby

RESOURCE = "resource:example.com_first"
KEEP = f"keep.{RESOURCE}"


@pytest.fixture
def handing_over(make_instance):
    """An instance that was told to end, the one that has taken over and runs, a child of the first, what keeps it."""
    first = make_instance().up()
    order = first.order(KEEP)
    second = make_instance().start(takes_over=True)
    until(lambda: read_standby(first.settings.standby_file), "a standby")
    child = first.running(RESOURCE)
    os.kill(first.process.pid, signal.SIGTERM)
    second.running(RESOURCE)
    return first, second, child, order


def test_its_children_serve_on_beside_those_of_the_next_one(handing_over):
    """The next one has all files and its control socket; the old one touches none, and ends with its last child."""
    first, second, child, order = handing_over
    assert is_alive(child.pid)
    assert first.process.poll() is None
    assert f"{RESOURCE} hands over" in first.stderr()
    assert "handing over to devherd" in first.stderr()
    order.unlink()
    assert first.ended() == 0
    assert f"{RESOURCE} says goodbye" in first.stderr()
    assert not is_alive(child.pid)
    assert second.running(RESOURCE).pid != child.pid
    assert RESOURCE in second.ctl("status")
    assert "next start" not in first.stderr()


def test_a_child_that_dies_meanwhile_is_not_started_again(handing_over):
    """The next instance has one of its own."""
    first, second, child, _ = handing_over
    os.kill(child.pid, signal.SIGKILL)
    assert first.ended() == 0
    assert second.running(RESOURCE)


def test_one_that_is_killed_meanwhile_takes_its_children_along(handing_over):
    """The next one has lost nothing by it."""
    first, second, child, _ = handing_over
    before = second.running(RESOURCE).pid
    first.process.kill()
    until(lambda: not is_alive(child.pid), "the end of its child")
    assert second.running(RESOURCE).pid == before
    assert RESOURCE in second.ctl("status")


def test_it_waits_no_longer_than_some_seconds_for_the_next_one(make_instance):
    """Which hangs, or has died."""
    first = make_instance().up(hand_over=0.5)
    first.order(KEEP)
    second = make_instance().start(takes_over=True)
    until(lambda: read_standby(first.settings.standby_file), "a standby")
    os.kill(second.process.pid, signal.SIGSTOP)
    os.kill(first.process.pid, signal.SIGTERM)
    assert first.ended() == 0
    assert "the instance that stands by has not taken over within 0 s" in first.stderr()
    os.kill(second.process.pid, signal.SIGCONT)
    second.running(RESOURCE)


def test_a_child_that_cannot_hand_over_is_stopped(make_instance):
    """It does not answer: after a second it gets SIGTERM, and the next instance takes over."""
    first = make_instance().up()
    second = make_instance().start(takes_over=True)
    until(lambda: read_standby(first.settings.standby_file), "a standby")
    os.kill(first.process.pid, signal.SIGTERM)
    assert first.ended() == 0
    assert f"{RESOURCE} says goodbye" in first.stderr()
    second.running(RESOURCE)


def test_without_one_that_stands_by_it_ends_at_once(instance):
    """As ever."""
    instance.up()
    instance.order(KEEP)
    os.kill(instance.process.pid, signal.SIGTERM)
    assert instance.ended() == 0
    assert "hands over" not in instance.stderr()
