"""The listening sockets of a child that sleeps: what the supervisor takes from it, and what it removes for it."""

import os
import socket
from pathlib import Path

import pytest

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
