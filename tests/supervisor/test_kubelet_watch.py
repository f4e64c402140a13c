"""What the supervisor says of a kubelet that is away: once for all resources."""

import logging

import pytest

from devherd.heartbeat import Heartbeats
from devherd.history import read
from devherd.history.record import History
from devherd.settings import Settings
from devherd.supervisor.kubelet_watch import KubeletWatch


@pytest.fixture
def watch(tmp_path):
    """One of a kubelet that never ran."""
    (tmp_path / "kubelet/device-plugins").mkdir(parents=True)
    settings = Settings(run_dir=tmp_path / "run", kubelet_dir=tmp_path / "kubelet")
    history = History(settings.history_directory, "supervisor")
    watch = KubeletWatch(settings, history)
    yield watch
    history.keep()
    assert [event.kind for event in read.events(settings.run_dir)] == ["kubelet"] * 2


def test_that_it_is_away_and_back_is_said_once_each(watch, caplog):
    """However often it is looked, and with why."""
    caplog.set_level(logging.INFO)
    for is_awaited in (False, True, True, True, False, False):
        watch.look(is_awaited=is_awaited)

    away, back = caplog.messages
    assert away.startswith("the kubelet is away: ")
    assert "device-plugins/kubelet.sock does not exist; resources wait for it" in away
    assert back == "the kubelet is back after 0 s"


def test_a_child_that_waits_is_seen_until_it_waits_no_more_or_is_started_again():
    """And it beats all the while."""
    heartbeats = Heartbeats(4)
    one, other = heartbeats.claim(), heartbeats.claim()
    heartbeats.waits_for_the_kubelet(one, waits=True)
    heartbeats.beat(one)
    assert [heartbeats.awaits_the_kubelet(slot) for slot in (one, other)] == [True, False]
    assert heartbeats.last_beat(one) > 0
    heartbeats.waits_for_the_kubelet(one, waits=False)
    heartbeats.waits_for_the_kubelet(other, waits=True)
    heartbeats.clear(other)
    assert [heartbeats.awaits_the_kubelet(slot) for slot in (one, other)] == [False, False]
    assert heartbeats.last_beat(one) > 0
