"""What the service manager learns of a start and of a life."""

import contextlib
import math
import re
import signal
import socket
import time
from pathlib import Path

import pytest
from instance import until

from devherd.supervisor.service_manager import ServiceManager


@pytest.fixture(params=["path", "abstract"])
def manager(request, directory, monkeypatch):
    """A service manager's socket, named as systemd names it to a service of Type=notify."""
    path = str(directory / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(path if request.param == "path" else f"\0{path}")
        listening.settimeout(30)
        monkeypatch.setenv("NOTIFY_SOCKET", path if request.param == "path" else f"@{path}")
        yield listening


def test_the_service_manager_learns_once_that_every_child_has_sent_a_heartbeat(instance, manager):
    """What is started after devherd finds it waiting for the kubelet; nothing is sent about later children."""
    instance.start()
    assert manager.recv(200) == b"READY=1\nSTATUS=all processes run"
    assert {child.state for child in instance.children().values()} == {"RUNNING"}
    instance.process.send_signal(signal.SIGHUP)
    instance.process.send_signal(signal.SIGTERM)
    assert instance.ended() == 0
    manager.setblocking(False)
    with pytest.raises(BlockingIOError):
        manager.recv(200)


def test_children_that_never_live_hold_the_service_manager_back_for_a_limited_time_and_are_named(instance, manager):
    """The kubelet waits for the service: it must start all the same."""
    instance.order("mute.exporter")
    instance.start(ready=1.0)
    status = manager.recv(200).decode()
    named = re.fullmatch(r"READY=1\nSTATUS=not running: (.*); see `devherd status`", status)
    assert named, status
    assert "exporter" in named[1].split(", ")  # on a busy machine others may not live yet, either


def test_the_watchdog_hears_from_the_loop_as_long_as_it_goes_round(instance, manager, monkeypatch):
    """A supervisor that is stopped sends nothing more; `WatchdogSec=` of the unit then restarts the service."""
    monkeypatch.setenv("WATCHDOG_USEC", "30000000")
    instance.start(tick=0.2)
    messages = [manager.recv(200) for _ in range(5)]
    assert sum(message.startswith(b"READY=1") for message in messages) == 1
    assert messages.count(b"WATCHDOG=1") == 4

    instance.process.send_signal(signal.SIGSTOP)
    until_state(instance.process.pid, "T")
    manager.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while manager.recv(200):
            pass
    time.sleep(0.6)  # two beats would have come
    with pytest.raises(BlockingIOError):
        manager.recv(200)
    instance.process.send_signal(signal.SIGCONT)
    manager.settimeout(30)
    assert manager.recv(200) == b"WATCHDOG=1"


@pytest.mark.parametrize(("limit", "beat"), [("4000000", 2.0), ("30000000", 15.0), ("", math.inf)])
def test_the_loop_goes_round_twice_in_the_time_after_which_the_watchdog_acts(limit, beat, monkeypatch):
    """As sd_watchdog_enabled(3) recommends, however little there is to do."""
    monkeypatch.setenv("NOTIFY_SOCKET", "/nowhere")
    monkeypatch.setenv("WATCHDOG_USEC", limit)
    assert ServiceManager(10.0).beat_seconds == beat


def test_a_service_manager_that_is_gone_is_no_reason_not_to_run(instance, directory, monkeypatch):
    """It is logged once."""
    monkeypatch.setenv("NOTIFY_SOCKET", str(directory / "nobody"))
    instance.up()
    until(lambda: "cannot send READY to the service manager: [Errno 2]" in instance.stderr(), "the log names it")


def until_state(pid, state):
    """Wait until the kernel shows a process in this state."""
    stat = Path(f"/proc/{pid}/stat")
    until(lambda: stat.read_text().rpartition(")")[2].split()[0] == state, f"process {pid} is in state {state}")
