"""The listening sockets of a child that sleeps: what the supervisor takes from it, and what it removes for it."""

import os
import re
import signal
import socket
from contextlib import suppress
from pathlib import Path

import pytest
from instance import until

from devherd.process import hand_sockets, take_sockets
from devherd.supervisor.sleep import Keeper


@pytest.fixture
def pair():
    """The supervisor's end and the child's."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        yield ours, theirs


def test_sockets_come_as_they_were_sent(pair):
    """By address, several of one address too."""
    ours, theirs = pair
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as other:
        hand_sockets(theirs, {"localhost:1": [one.fileno(), other.fileno()], "unix:/a b": [other.fileno()]})
        taken = take_sockets(ours)
        assert [*taken] == ["localhost:1", "unix:/a b"]
        names = [each.getsockname() for sockets in taken.values() for each in sockets]
        assert names == [one.getsockname(), other.getsockname(), other.getsockname()]
    for sockets in taken.values():
        for each in sockets:
            each.close()


@pytest.mark.parametrize("message", [b"", b"a\nb", b"\xff\xfe\n", b"[" * 60_000])
def test_anything_else_that_a_child_sends_is_nothing(pair, message):
    """The supervisor goes on, and keeps no descriptor of it."""
    ours, theirs = pair
    before = len([*Path("/proc/self/fd").iterdir()])
    with Path(os.devnull).open() as file:
        socket.send_fds(theirs, [message or b"a"], [file.fileno()])
        assert take_sockets(ours) == {}
    assert len([*Path("/proc/self/fd").iterdir()]) == before
    theirs.close()
    assert take_sockets(ours) == {}


def test_only_unix_sockets_in_the_childs_own_directories_are_removed(tmp_path):
    """A child must not have the supervisor remove a file for it."""
    own, foreign = tmp_path / "own", tmp_path / "foreign"
    own.mkdir()
    foreign.mkdir()
    listening = []
    for path in (own / "http.sock", foreign / "kubelet.sock", "\0abstract-of-devherd"):
        listening.append(socket.socket(socket.AF_UNIX))
        listening[-1].bind(str(path))
        listening[-1].listen()
    keeper = Keeper()
    keeper.open()
    child = socket.socket(fileno=os.dup(keeper.descriptor()))
    hand_sockets(child, {f"unix:{number}": [each.fileno()] for number, each in enumerate(listening)})
    assert len(keeper.take()) == len(listening)

    keeper.stop([own])

    assert not (own / "http.sock").exists()
    assert (foreign / "kubelet.sock").exists()
    for each in (child, *listening):
        each.close()


@pytest.mark.parametrize("is_bound_again", [False, True])
def test_a_unix_socket_goes_with_a_woken_child_that_was_stopped_before_it_had_looked(tmp_path, *, is_bound_again):
    """Defect: SIGTERM that came before its handlers left the socket behind. One that somebody serves by now stays."""
    path = tmp_path / "http.sock"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()
        keeper = Keeper()
        keeper.open()
        with socket.socket(fileno=os.dup(keeper.descriptor())) as child:
            hand_sockets(child, {f"unix:{path}": [listening.fileno()]})
    assert keeper.take()
    keeper.open()
    keeper.forked()
    with socket.socket(socket.AF_UNIX) as other:
        if is_bound_again:
            path.unlink()
            other.bind(str(path))
            other.listen()
        keeper.stop([tmp_path])
        assert path.exists() == is_bound_again


def about_to_sleep(instance):
    """An exporter that has handed its sockets over, and still runs."""
    instance.order("doze.exporter")
    instance.order("linger.exporter")
    instance.start()
    until(lambda: "exporter is about to sleep" in instance.stderr(), "the hand-over")


def knocks(instance):
    """Whether somebody listens at its door."""
    with socket.socket(socket.AF_UNIX) as client, suppress(OSError):
        client.connect(str(instance.settings.run_dir / "door"))
        return True
    return False


def test_a_child_that_is_stopped_as_it_is_about_to_sleep_gives_its_address_free(instance):
    """Its sockets are on their way to the supervisor."""
    about_to_sleep(instance)
    assert knocks(instance)
    assert instance.ctl("stop", "exporter") == "exporter: stopped\n"
    assert not knocks(instance)


def test_a_reload_reaches_a_child_that_is_about_to_sleep(instance):
    """It would keep the addresses of the old configuration, until somebody connects to one of them."""
    about_to_sleep(instance)
    pid = int(re.search(r"exporter started, process (\d+)", instance.stderr())[1])
    instance.process.send_signal(signal.SIGHUP)
    pending = re.compile(r"^ShdPnd:\s*0*1$", re.MULTILINE)  # bit 0: SIGHUP
    until(lambda: pending.search(Path(f"/proc/{pid}/status").read_text()), "the signal")
    for order in ("doze", "linger"):
        instance.orders.joinpath(f"{order}.exporter").unlink()
    until(lambda: (child := instance.children().get("exporter")) and child.pid not in (0, pid), "another process")
    assert not instance.children()["exporter"].restarts


def test_a_child_whose_pair_of_sockets_cannot_be_made_is_started_later(instance):
    """For lack of descriptors: at its first start, and when somebody connects in its sleep."""
    lack = instance.order("no-pairs")
    doze = instance.order("doze.exporter")
    instance.start()
    until(lambda: "too many open files to spawn 'exporter'" in instance.stderr(), "a failed start")
    lack.unlink()
    until(lambda: (child := instance.children().get("exporter")) and child.asleep, "its sleep")

    instance.order("no-pairs")
    doze.unlink()
    failures = instance.stderr().count("too many open files")
    until(lambda: knocks(instance) and instance.stderr().count("too many open files") > failures, "a failed start")
    lack.unlink()
    until(lambda: (child := instance.children()["exporter"]) and child.pid and child.state == "RUNNING", "it runs")
