"""Directories watched by inotify, through the native module."""

import os
import select
from pathlib import Path

import pytest

from devherd._native import DirectoryWatch


@pytest.fixture
def watch():
    """A watch of nothing."""
    opened = DirectoryWatch()
    yield opened
    opened.close()


def is_readable(watch):
    """Whether something waits to be drained."""
    return bool(select.select([watch], [], [], 0)[0])


def test_a_file_written_beside_and_renamed_is_told(watch, tmp_path):
    """So every reader of the spool sees each file of it."""
    watch.add(str(tmp_path))
    assert not is_readable(watch)
    (tmp_path / ".new").write_text("x")
    (tmp_path / ".new").rename(tmp_path / "gpu.pb")
    assert is_readable(watch)
    assert (str(tmp_path), "gpu.pb") in watch.drain()
    assert watch.drain() == []


def test_a_socket_made_and_removed_is_told(watch, tmp_path):
    """So kubelet.sock is seen to come and go."""
    watch.add(str(tmp_path))
    os.mkfifo(tmp_path / "kubelet.sock")
    assert watch.drain() == [(str(tmp_path), "kubelet.sock")]
    (tmp_path / "kubelet.sock").unlink()
    assert watch.drain() == [(str(tmp_path), "kubelet.sock")]


def test_a_directory_made_again_can_be_added_again(watch, tmp_path):
    """A kubelet that is installed anew makes its directories anew."""
    directory = tmp_path / "device-plugins"
    directory.mkdir()
    watch.add(str(directory))
    directory.rmdir()
    assert watch.drain() == [(str(directory), "")]
    with pytest.raises(FileNotFoundError):
        watch.add(str(directory))
    directory.mkdir()
    watch.add(str(directory))
    (directory / "kubelet.sock").touch()
    assert (str(directory), "kubelet.sock") in watch.drain()


def test_adding_a_directory_twice_tells_a_change_once(watch, tmp_path):
    """Directories are added anew after each scan."""
    watch.add(str(tmp_path))
    watch.add(str(tmp_path))
    (tmp_path / "dfl-port.0").mkdir()
    assert watch.drain() == [(str(tmp_path), "dfl-port.0")]


def test_the_use_of_device_nodes_wakes_nobody(watch):
    """Every write to /dev/null would otherwise be a change in /dev."""
    watch.add("/dev")
    for _ in range(3):
        Path("/dev/null").write_text("x")
        assert ("/dev", "null") not in watch.drain()


def test_what_is_no_directory_is_refused(watch, tmp_path):
    """With the kernel's own error."""
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError):
        watch.add(str(tmp_path / "file"))


def test_a_closed_watch_refuses_everything(watch):
    """Closing twice is fine."""
    watch.close()
    watch.close()
    with pytest.raises((OSError, ValueError)):
        watch.drain()
    with pytest.raises((OSError, ValueError)):
        watch.fileno()
