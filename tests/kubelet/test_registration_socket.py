"""Whether a kubelet listens on its registration socket, as a connection shows it."""

import errno
import os
import socket

from devherd.kubelet.registration import knock


def test_knocking_tells_a_listener_from_a_socket_left_behind(directory):
    """The kubelet leaves kubelet.sock behind when it ends: the file says nothing."""
    path = directory / "kubelet.sock"
    assert knock(path) == f"{path} does not exist"
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(path))
    server.listen()
    assert knock(path) is None
    server.close()
    assert knock(path) == f"{path} refuses connections"
    assert "too long" in knock(directory / ("x" * 120))


def test_knocking_never_waits_for_a_listener_that_does_not_accept(directory):
    """A kubelet that hangs has a full queue of callers: it is there, and Register will say the rest."""
    path = directory / "kubelet.sock"
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(path))
    server.listen(0)
    callers = [socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) for _ in range(4)]
    for caller in callers:
        caller.connect_ex(str(path))
    assert knock(path) is None
    for each in (server, *callers):
        each.close()


def test_a_process_without_file_descriptors_finds_the_kubelet_out_of_reach(tmp_path, monkeypatch):
    """It used to end with a traceback; now it waits, and knocks again."""

    def no_descriptors(*_):
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(socket, "socket", no_descriptors)

    assert knock(tmp_path / "kubelet.sock") == f"{tmp_path}/kubelet.sock cannot be reached: Too many open files"
