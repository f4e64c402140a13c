"""The files between processes: whole or not at all."""

import errno
import os
from pathlib import Path

import pytest
from descriptors import descriptors
from hypothesis import given
from hypothesis import strategies as st

from devherd import spool
from devherd.proto import spool_pb2


def test_what_is_written_is_read_back_and_no_temporary_file_stays(tmp_path):
    """Write beside, rename into place."""
    message = spool_pb2.Resource(name="a.b/c", devices=[spool_pb2.ListedDevice(id="0")])

    assert spool.write(tmp_path / "a.b_c.pb", message) is True

    assert spool.read(tmp_path / "a.b_c.pb", spool_pb2.Resource) == message
    assert [path.name for path in tmp_path.iterdir()] == ["a.b_c.pb"]


def test_writing_the_same_again_leaves_the_file_alone(tmp_path):
    """Readers are woken for changes only."""
    message = spool_pb2.Resource(name="a.b/c")
    spool.write(tmp_path / "x.pb", message)

    assert spool.write(tmp_path / "x.pb", message) is False


@pytest.mark.parametrize("content", [b"", b"\xff" * 40, b"no message at all"])
def test_an_empty_torn_or_foreign_file_is_an_error_that_names_it(tmp_path, content):
    """The reader keeps what it had."""
    path = tmp_path / "x.pb"
    path.write_bytes(content)

    with pytest.raises(spool.SpoolError, match=str(path)):
        spool.read(path, spool_pb2.Resource)


def test_one_bad_file_does_not_hide_the_others(tmp_path):
    """Reading a directory yields what can be read."""
    for key in "ab":
        spool.write(spool.path_of(tmp_path, key), spool_pb2.Resource(name=key))
    spool.path_of(tmp_path, "b").write_bytes(b"")
    (tmp_path / "c").mkdir()
    (tmp_path / "d").touch()

    assert [key for key, _ in spool.read_all(tmp_path, spool_pb2.Resource)] == ["a"]
    assert spool.keys_in(tmp_path) == {"a", "b"}


def test_the_file_of_a_resource_has_a_directory_to_itself(tmp_path):
    """A sandbox opens directories: who may read one resource must not see another."""
    one, other = (spool.path_of(tmp_path, key) for key in ("a.b_x", "a.b_y"))
    for path in (one, other):
        assert spool.write(path, spool_pb2.Resource(name=path.parent.name)) is True

    assert [path.parent for path in (one, other)] == [tmp_path / "a.b_x", tmp_path / "a.b_y"]
    assert sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*") if path.is_file()) == [
        path.relative_to(tmp_path) for path in (one, other)
    ]

    spool.remove(tmp_path, "a.b_x")
    spool.remove(tmp_path, "a.b_never")
    assert list(tmp_path.iterdir()) == [tmp_path / "a.b_y"]


def test_a_first_file_that_cannot_be_written_leaves_nothing(tmp_path, monkeypatch):
    """A full disk costs the file, not an empty directory that looks like one."""
    monkeypatch.setattr(Path, "write_bytes", full_disk)
    with pytest.raises(OSError, match="No space left"):
        spool.write(spool.path_of(tmp_path, "a.b_x"), spool_pb2.Resource(name="a.b/x"))

    assert list(tmp_path.iterdir()) == []


def full_disk(*_):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_directory_that_is_not_there_has_no_keys(tmp_path):
    """Nothing scanned yet."""
    assert spool.keys_in(tmp_path / "absent") == set()


PREFIX = st.from_regex(
    r"[a-z0-9]([-a-z0-9]{0,20}[a-z0-9])?(\.[a-z0-9]([-a-z0-9]{0,100}[a-z0-9])?){0,2}", fullmatch=True
)
NAME = st.from_regex(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?", fullmatch=True)


@given(PREFIX, NAME, PREFIX, NAME)
def test_different_resources_have_different_keys_that_fit_a_file_name(prefix, name, other_prefix, other_name):
    """A key names one resource, whatever its length."""
    one, other = f"{prefix}/{name}", f"{other_prefix}/{other_name}"

    assert len(spool.key_of(one)) <= 200
    assert (spool.key_of(one) == spool.key_of(other)) == (one == other)


def test_what_a_killed_writer_left_half_done_is_used_by_the_next(tmp_path):
    """Nothing piles up beside the files, however often writers are killed."""
    path = tmp_path / "x.pb"
    (tmp_path / ".x.pb.new").write_bytes(b"half a mess")

    spool.write(path, spool_pb2.Resource(name="a.b/x"))

    assert [entry.name for entry in tmp_path.iterdir()] == ["x.pb"]
    assert spool.read(path, spool_pb2.Resource).name == "a.b/x"


def test_a_file_that_no_descriptor_is_left_for_is_not_read_as_an_absent_one(tmp_path):
    """Defect: it was read as empty, and what it says was shown as gone."""
    spool.write(spool.path_of(tmp_path, "a.b_x"), spool_pb2.Resource(name="a.b/x"))
    path, absent = spool.path_of(tmp_path, "a.b_x"), spool.path_of(tmp_path, "a.b_y")

    with descriptors(0):
        for read in (spool.read, spool.read_or_empty):
            with pytest.raises(OSError, match="Too many open files"):
                read(path, spool_pb2.Resource)
    with descriptors(1):
        assert spool.read_or_empty(path, spool_pb2.Resource).name == "a.b/x"
        assert spool.read_or_empty(absent, spool_pb2.Resource) == spool_pb2.Resource()
