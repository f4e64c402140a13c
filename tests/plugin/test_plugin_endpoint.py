"""Sockets: their names, their limits, their left-overs."""

import errno
import os
import socket
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devherd.errors import UsageError
from devherd.plugin import endpoint
from devherd.plugin.endpoint import Endpoint
from devherd.plugin.kubelet import knock

NAME = "example.com/gpu"


def bind(path):
    """A listening socket with a file."""
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(path))
    server.listen()
    return server


@given(st.text(min_size=1, max_size=300), st.integers(0, 2**63))
def test_a_socket_name_is_short_and_says_its_resource_and_generation(resource_name, generation):
    """Whatever the resource is called, its socket fits below the kubelet's default directory."""
    socket_endpoint = Endpoint(Path("/var/lib/kubelet/device-plugins"), resource_name, generation)
    assert len(os.fsencode(socket_endpoint.path)) <= endpoint.MAX_PATH_BYTES
    assert socket_endpoint.name == f"{endpoint.prefix(resource_name)}{generation}.sock"


def test_a_path_that_no_socket_can_have_is_refused_with_the_cure(tmp_path):
    """The kernel's own words would be `Path name should not have more than 107 characters`, in the log of gRPC."""
    directory = tmp_path / ("d" * 100)
    directory.mkdir()
    with pytest.raises(UsageError, match="107 — choose a shorter --kubelet-dir"):
        Endpoint(directory, NAME, 1).check()


def test_a_directory_that_is_not_there_is_said(tmp_path):
    """Before gRPC is asked, which would write lines of its own."""
    with pytest.raises(FileNotFoundError):
        Endpoint(Path("/nonexistent"), NAME, 1).check()


def test_only_stale_sockets_of_the_same_resource_are_removed(host):
    """The directory is the kubelet's, and other plugins' too."""
    host.plugins.mkdir()
    ours = [f"{endpoint.prefix(NAME)}{generation}.sock" for generation in (3, 12)]
    others = ["kubelet.sock", "other.sock", f"{endpoint.prefix('example.com/fpga')}3.sock"]
    servers = [bind(host.plugins / name) for name in (*ours, *others)]
    (host.plugins / f"{endpoint.prefix(NAME)}7.sock").write_text("a regular file")

    assert endpoint.last_generation([host.plugins], NAME, 0) == 12
    assert endpoint.remove_stale([host.plugins], NAME) == ours
    left = {path.name for path in host.plugins.iterdir()}
    assert left == {*others, f"{endpoint.prefix(NAME)}7.sock"}
    for server in servers:
        server.close()


def test_the_generation_goes_on_from_what_is_remembered_and_from_the_clock_where_nothing_is(tmp_path):
    """A new pod with an empty run directory must not take the name that its predecessor had a moment ago."""
    assert endpoint.last_generation([tmp_path], NAME, 41) == 41
    assert endpoint.last_generation([tmp_path], NAME, 0) > 1_700_000_000


def test_a_socket_file_that_was_replaced_is_not_ours_and_is_left_alone(host):
    """Unlinking by name alone would take somebody else's socket."""
    host.plugins.mkdir()
    socket_endpoint = Endpoint(host.plugins, NAME, 1)
    server = bind(socket_endpoint.path)
    socket_endpoint.bound()
    assert socket_endpoint.is_there()
    spare = host.plugins / "spare"  # keeps the inode, so that the new file cannot get it
    socket_endpoint.path.rename(spare)
    other = bind(socket_endpoint.path)
    assert not socket_endpoint.is_there()
    socket_endpoint.remove()
    assert socket_endpoint.path.exists()
    server.close()
    other.close()


def test_a_socket_made_again_with_the_same_inode_is_another_one(host):
    """A restarted kubelet's socket often gets the inode of the old one: the change time tells them apart."""
    host.plugins.mkdir()
    path = host.plugins / "kubelet.sock"
    server = bind(path)
    before = endpoint.identity(path)
    (host.plugins / "link").hardlink_to(path)
    path.unlink()
    (host.plugins / "link").rename(path)
    after = endpoint.identity(path)
    assert before[:2] == after[:2]
    assert before != after
    server.close()


def test_knocking_tells_a_listener_from_a_socket_left_behind(host):
    """The kubelet leaves kubelet.sock behind when it ends: the file says nothing."""
    host.plugins.mkdir()
    path = host.plugins / "kubelet.sock"
    assert knock(path) == f"{path} is not there"
    server = bind(path)
    assert knock(path) is None
    server.close()
    assert knock(path) == f"{path} takes no connections"
    assert "too long" in knock(host.plugins / ("x" * 120))


def test_knocking_never_waits_for_a_listener_that_does_not_accept(host):
    """A kubelet that hangs has a full queue of callers: it is there, and Register will say the rest."""
    host.plugins.mkdir()
    path = host.plugins / "kubelet.sock"
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


def test_two_processes_without_memory_use_no_name_twice_within_a_second(tmp_path):
    """A new pod begins with an empty run directory, sometimes in the second in which the old one began."""
    first = endpoint.last_generation([tmp_path], NAME, 0) + 1
    time.sleep(0.05)  # a generation takes longer than that

    assert endpoint.last_generation([tmp_path], NAME, 0) + 1 > first
