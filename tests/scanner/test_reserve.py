"""The reserve of the run directory: there while there is room, given up when there is none, back when there is."""

import os
from types import SimpleNamespace

import pytest

from devherd.scanner.publisher import RESERVE_BYTES, Reserve


@pytest.fixture
def room(monkeypatch):
    """The bytes that are free wherever somebody asks."""
    free = SimpleNamespace(bytes=10 * RESERVE_BYTES)
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_bfree=free.bytes, f_frsize=1))
    return free


def test_the_reserve_takes_its_room_as_soon_as_there_is_enough(tmp_path, room):
    """In whole: a file with holes would keep nothing free."""
    reserve = Reserve(tmp_path / "reserve")
    reserve.tend()
    file = tmp_path / "reserve"
    assert (file.stat().st_size, file.stat().st_blocks * 512 >= RESERVE_BYTES) == (RESERVE_BYTES, True)
    assert reserve.problem is None

    room.bytes = 1024
    reserve.tend()
    assert not file.exists()
    assert reserve.problem.path == str(tmp_path)
    assert reserve.problem.error.startswith("the run directory is full")

    room.bytes = RESERVE_BYTES  # its own room: it would be given up again at once
    reserve.tend()
    assert not file.exists()
    assert reserve.problem

    room.bytes = 10 * RESERVE_BYTES
    reserve.tend()
    assert file.exists()
    assert reserve.problem is None


def test_a_reserve_is_given_up_once(tmp_path, room):
    """Whoever failed to write tries again only if that made room."""
    reserve = Reserve(tmp_path / "reserve")
    reserve.tend()
    assert [reserve.give_up(), reserve.give_up()] == [True, False]


def test_a_scanner_that_starts_in_a_full_directory_knows_the_problem(tmp_path, room):
    """The one before it gave the reserve up."""
    room.bytes = 0
    reserve = Reserve(tmp_path / "reserve")
    reserve.tend()
    assert reserve.problem
