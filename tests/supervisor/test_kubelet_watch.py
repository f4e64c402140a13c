"""What the supervisor says of a kubelet that is away: once for all resources."""

import contextlib
import logging
import socket

import pytest

from devherd.history import History, events
from devherd.process import Heartbeats
from devherd.settings import Settings
from devherd.supervisor.host_watch import KubeletWatch


@pytest.fixture
def settings(directory):
    """Those of a node whose kubelet never ran."""
    settings = Settings(run_dir=directory / "run", kubelet_dir=directory / "kubelet")
    settings.plugin_directory.mkdir(parents=True)
    return settings


@pytest.fixture
def watch(settings, caplog):
    """The watch over its kubelet; what it says is in the history, too."""
    caplog.set_level(logging.INFO)
    history = History(settings.history_directory, "supervisor")
    yield KubeletWatch(settings, history)
    history.keep()
    assert [event.kind for event in events(settings.run_dir)] == ["kubelet"] * len(caplog.get_records("call"))


@contextlib.contextmanager
def listening(path):
    """A kubelet comes, and dies: its socket stays."""
    with socket.socket(socket.AF_UNIX) as kubelet:
        kubelet.bind(str(path))
        kubelet.listen()
        yield


def test_that_it_is_away_and_back_is_said_once_each(watch, settings, caplog):
    """However often it is looked, and with why."""
    for is_awaited in (False, True, True):
        watch.look(is_awaited=is_awaited)
    with listening(settings.kubelet_socket):
        for is_awaited in (True, False, False):
            watch.look(is_awaited=is_awaited)

    away, back = caplog.messages
    assert away.startswith("the kubelet is away: ")
    assert "device-plugins/kubelet.sock does not exist; resources wait for it" in away
    assert back == "the kubelet is back after 0 s"


def test_it_is_not_back_because_nobody_waits_for_it(watch, settings, caplog):
    """The last resource that waited has gone, or its child is started again, or an operator has stopped it."""
    for is_awaited in (True, False, True, False):
        watch.look(is_awaited=is_awaited)

    (away,) = caplog.messages
    assert away.startswith("the kubelet is away: ")
    with listening(settings.kubelet_socket):
        watch.look(is_awaited=False)
    assert caplog.messages[1:] == ["the kubelet is back after 0 s"]


def test_a_restart_between_two_looks_is_said_once(watch, settings, caplog):
    """No resource was seen to wait for it: they have registered with the new one already."""
    with listening(settings.kubelet_socket):
        watch.look(is_awaited=False)
    assert caplog.messages == []
    settings.kubelet_socket.unlink()
    with listening(settings.kubelet_socket):
        for _ in range(2):
            watch.look(is_awaited=False)

    assert caplog.messages == ["the kubelet was restarted; resources register again"]


@pytest.mark.parametrize("is_shown", [True, False])
def test_a_kubelet_that_does_not_look_for_plugins_is_away(directory, caplog, is_shown):
    """Its own socket need not be shown to devherd, and then says nothing."""
    caplog.set_level(logging.INFO)
    settings = Settings(run_dir=directory / "run", kubelet_dir=directory / "k", registration="plugins_registry")
    settings.plugins_registry.mkdir(parents=True)
    refusal = f"it does not look into {settings.plugins_registry}"
    if is_shown:
        settings.plugin_directory.mkdir()
        refusal = f"{settings.kubelet_socket} does not exist"
    watch = KubeletWatch(settings, History(settings.history_directory, "supervisor"))
    for _ in range(3):
        watch.look(is_awaited=True)
    assert caplog.messages == [f"the kubelet is away: {refusal}; resources wait for it"]

    watch.look(is_awaited=False)
    assert caplog.messages[1:] == ["the kubelet is back after 0 s"]


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
