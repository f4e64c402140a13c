"""Sockets: their names, their limits, their left-overs."""

import os
import socket
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devherd.errors import UsageError
from devherd.kubelet import endpoint
from devherd.kubelet.endpoint import Endpoint

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


def test_only_stale_sockets_of_the_same_resource_are_removed(directory):
    """The directory is the kubelet's, and other plugins' too."""
    ours = [f"{endpoint.prefix(NAME)}{generation}.sock" for generation in (3, 12)]
    others = ["kubelet.sock", "other.sock", f"{endpoint.prefix('example.com/fpga')}3.sock"]
    servers = [bind(directory / name) for name in (*ours, *others)]
    (directory / f"{endpoint.prefix(NAME)}7.sock").write_text("a regular file")

    assert endpoint.last_generation([directory], NAME, 0) == 12
    assert endpoint.remove_stale([directory], NAME) == ours
    left = {path.name for path in directory.iterdir()}
    assert left == {*others, f"{endpoint.prefix(NAME)}7.sock"}
    for server in servers:
        server.close()


def test_the_generation_goes_on_from_what_is_remembered_and_from_the_clock_where_nothing_is(tmp_path):
    """A new pod with an empty run directory must not take the name that its predecessor had a moment ago."""
    assert endpoint.last_generation([tmp_path], NAME, 41) == 41
    before = time.time_ns() // 1_000_000
    assert before <= endpoint.last_generation([tmp_path], NAME, 0) <= time.time_ns() // 1_000_000


def test_a_socket_file_that_was_replaced_is_not_ours_and_is_left_alone(directory):
    """Unlinking by name alone would take somebody else's socket."""
    socket_endpoint = Endpoint(directory, NAME, 1)
    server = bind(socket_endpoint.path)
    socket_endpoint.bound()
    assert socket_endpoint.is_there()
    spare = directory / "spare"  # keeps the inode, so that the new file cannot get it
    socket_endpoint.path.rename(spare)
    other = bind(socket_endpoint.path)
    assert not socket_endpoint.is_there()
    socket_endpoint.remove()
    assert socket_endpoint.path.exists()
    server.close()
    other.close()


def test_a_socket_made_again_with_the_same_inode_is_another_one(directory):
    """A restarted kubelet's socket often gets the inode of the old one: the change time differs."""
    path = directory / "kubelet.sock"
    server = bind(path)
    before = endpoint.identity(path)
    (directory / "link").hardlink_to(path)
    path.unlink()
    (directory / "link").rename(path)
    after = endpoint.identity(path)
    assert before[:2] == after[:2]
    assert before != after
    server.close()


def test_two_processes_without_memory_use_no_name_twice_within_a_second(tmp_path):
    """A new pod begins with an empty run directory, sometimes in the second in which the old one began."""
    first = endpoint.last_generation([tmp_path], NAME, 0) + 1
    time.sleep(0.05)  # a generation takes longer than that

    assert endpoint.last_generation([tmp_path], NAME, 0) + 1 > first


def tick():
    """Wait until the kernel's clock has gone on: files have the time of its last tick."""
    time.sleep(0.02)


@pytest.fixture
def settled(directory, monkeypatch):
    """A kubelet's directory whose last change is some time ago by the clock, with our socket in it."""
    (directory / "kubelet_internal_checkpoint").write_text("{}")
    servers = [bind(directory / "before.sock")]
    tick()
    servers.append(bind(directory / f"{endpoint.prefix(NAME)}7.sock"))
    tick()
    clock = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: clock() + endpoint._TICK_NANOSECONDS)

    def ask(*directories):
        return endpoint.traces_of_others(
            directories or (directory,), NAME, [directory / f"{endpoint.prefix(NAME)}7.sock"]
        )

    yield ask
    for server in servers:
        server.close()


def test_older_sockets_and_those_of_other_resources_are_no_trace_of_a_rival(directory, settled):
    """They registered before, or something else: nothing has changed while nothing comes."""
    assert settled() is not None
    fpga = bind(directory / f"{endpoint.prefix('example.com/fpga')}3.sock")
    (directory / "DEPRECATION").write_text("")
    (directory / "folder").mkdir()
    assert settled() is not None
    assert settled() == settled()
    fpga.close()


def test_the_kubelets_own_socket_is_no_rival_also_if_it_is_as_new_as_ours(directory, settled):
    """Defect: a resource that registered in the tick in which the kubelet began asked it in each period for ever."""
    kubelet = bind(directory / "kubelet.sock")
    assert settled() is not None
    kubelet.close()


@pytest.mark.parametrize("name", ["nvidia-gpu.sock", f"{endpoint.prefix(NAME)}8.sock"])
def test_a_plugin_with_a_newer_socket_may_end_without_a_trace(directory, settled, name):
    """Also another devherd of the same resource; once the file is gone, there is the trace of its removal."""
    before = settled()
    later = bind(directory / name)
    assert settled() is None
    later.close()
    assert settled() is None
    tick()
    (directory / name).unlink()
    assert settled() not in (None, before)


@pytest.mark.parametrize("number", [0, 1])
def test_a_checkpoint_that_is_replaced_is_a_trace(directory, tmp_path, settled, number):
    """So is a file in any other of the directories."""
    registry = tmp_path / "plugins_registry"
    registry.mkdir()
    before = settled(directory, registry)
    assert before is not None
    tick()
    file = (directory, registry)[number] / "kubelet_internal_checkpoint"
    file.with_name(".new").write_text("{}")
    file.with_name(".new").rename(file)
    assert settled(directory, registry) not in (None, before)


def test_traces_are_unknown_without_the_directory_without_our_socket_and_just_after_a_change(directory):
    """A second change within a tick of the kernel's clock would leave the same time."""
    server = bind(path := directory / f"{endpoint.prefix(NAME)}7.sock")
    assert endpoint.traces_of_others([directory], NAME, [path]) is None
    time.sleep(2 * endpoint._TICK_NANOSECONDS / 1e9)
    assert endpoint.traces_of_others([directory], NAME, [path]) is not None
    assert endpoint.traces_of_others([directory], NAME, [directory / "gone.sock"]) is None
    assert endpoint.traces_of_others([directory], NAME, []) is None
    assert endpoint.traces_of_others([directory / "gone"], NAME, [path]) is None
    server.close()
