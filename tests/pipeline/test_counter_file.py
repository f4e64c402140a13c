"""Counters where the disk is full: a mapped file with holes used to end the process with SIGBUS."""

import errno
import os

import pytest
from prometheus_client.mmap_dict import MmapedDict

from devherd.counter_file import CounterFile


@pytest.fixture
def full_disk(monkeypatch):
    """`full_disk(True)`: there are no more blocks."""
    allocate = os.posix_fallocate
    state = {"full": False}

    def refuse_when_full(*arguments):
        if state["full"]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        allocate(*arguments)

    monkeypatch.setattr(os, "posix_fallocate", refuse_when_full)
    return lambda full: state.update(full=full)


def keys(path):
    return {key for key, *_ in MmapedDict.read_all_values_from_file(str(path))}


def test_a_file_of_counters_has_no_holes(tmp_path):
    """What is mapped can be written, however full the disk becomes."""
    file = CounterFile(str(tmp_path / "counter_x.db"))
    file.write_value("a", 1.0, 0.0)
    status = (tmp_path / "counter_x.db").stat()
    assert status.st_blocks * 512 >= status.st_size > 0
    file.close()

    again = CounterFile(str(tmp_path / "counter_x.db"))
    assert again.read_value("a") == (1.0, 0.0)
    again.close()


def test_counting_goes_on_in_memory_on_a_full_disk(tmp_path, full_disk):
    """The process counts for itself, and does not end."""
    full_disk(True)
    file = CounterFile(str(tmp_path / "counter_x.db"))
    for number in range(2000):
        file.write_value(f"{number:0100}", float(number), 0.0)
    assert file.read_value(f"{1999:0100}") == (1999.0, 0.0)
    file.close()


def test_a_file_that_could_not_grow_grows_later_with_what_was_counted_meanwhile(tmp_path, full_disk):
    """Nothing that was counted is lost once there is room."""
    path = tmp_path / "counter_x.db"
    file = CounterFile(str(path))
    file.write_value("first", 1.0, 0.0)
    full_disk(True)
    for number in range(600):
        file.write_value(f"{number:0100}", float(number), 0.0)
    full_disk(False)
    for number in range(600, 2000):
        file.write_value(f"{number:0100}", float(number), 0.0)

    assert keys(path) == {"first", *(f"{number:0100}" for number in range(2000))}
    file.close()
