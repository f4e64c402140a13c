"""The history: what each process writes, bounded and without ever failing it, and what a reader makes of it."""

import itertools
import os
import subprocess
import sys
import textwrap
import time

import pytest

from devherd.cli.cordon import PROCESS, record
from devherd.history import (
    BEFORE,
    CURRENT,
    FILE_BYTES,
    KEPT_SECONDS,
    Follower,
    History,
    HistoryEvent,
    booted,
    events,
    forget_old,
    line,
    stamp,
)
from devherd.settings import Settings

NAME = "example.com/gpu"


@pytest.fixture
def history(tmp_path):
    """The writer of a resource's process."""
    return History(tmp_path / "history", "resource:example.com_gpu")


def messages(tmp_path, **wanted) -> list[str]:
    return [event.message for event in events(tmp_path, **wanted)]


def test_events_stay_in_order_when_the_clock_is_set(tmp_path, history, monkeypatch):
    """Defect: after a step of the clock, as on a board without one, new events came before old ones."""
    other, wall = History(tmp_path / "history", "scanner"), time.time
    for writer, message, ahead in (
        (history, "first", 3600.0),
        (other, "second", 3600.0),
        (history, "third", 0.0),
        (other, "fourth", -50 * 365 * 86_400.0),
        (history, "fifth", 0.0),
    ):
        monkeypatch.setattr(time, "time", lambda ahead=ahead: wall() + ahead)
        writer.note("process", message)
        writer.keep()
        time.sleep(0.05)  # more than passes between reads of two clocks

    assert messages(tmp_path) == ["first", "second", "third", "fourth", "fifth"]
    assert messages(tmp_path, limit=1) == ["fifth"]
    assert messages(tmp_path, since=wall() - 60) == ["first", "second", "third", "fourth", "fifth"]
    assert messages(tmp_path, since=wall() + 60) == []


def test_where_the_clock_was_not_set_an_event_has_the_time_that_was_written(tmp_path, history):
    """Defect: that since the boot is read apart, and rounded: an event came before the moment that it came after."""
    history.note("process", "now")
    history.keep()
    [event] = events(tmp_path)
    for late in (-0.9, -0.001, 0.0, 0.001, 0.9):
        assert event.at(booted() + late) == event.time


def test_events_of_an_earlier_boot_have_the_time_of_then(tmp_path, history):
    """Their seconds since the boot are another boot's."""
    history.note("process", "now")
    history.keep()
    earlier = HistoryEvent(time.time() - 9000, "process", "before", uptime=1e9, boot="another0")
    (tmp_path / "history/scanner").mkdir()
    (tmp_path / "history/scanner" / CURRENT).write_bytes(line(earlier))
    assert messages(tmp_path) == ["before", "now"]
    assert messages(tmp_path, since=time.time() - 60) == ["now"]


def test_what_is_noted_is_read_as_it_was_with_who_wrote_it(tmp_path, history):
    """Whole, also text that would end a line."""
    before = time.time()
    details = {"file": "/sys/x", "value": "0x1\n\u2028", "source": ""}
    history.note("verdict", "Unhealthy: xid", resource_name=NAME, device_id="g0", reasons=("xid",), details=details)
    history.keep()

    [event] = events(tmp_path)
    assert before - 0.001 <= event.time <= time.time() + 0.001  # it has milliseconds
    assert event == HistoryEvent(
        time=event.time,
        kind="verdict",
        message="Unhealthy: xid",
        resource_name=NAME,
        device_id="g0",
        reasons=("xid",),
        process="resource:example.com_gpu",
        details={"file": "/sys/x", "value": "0x1\n\u2028"},
    )


def test_events_of_all_processes_are_in_the_order_in_which_they_happened(tmp_path):
    """Whoever wrote them first."""
    first, second = History(tmp_path / "history", "supervisor"), History(tmp_path / "history", "scanner")
    first.note("process", "1")
    time.sleep(0.002)
    second.note("problem", "2")
    time.sleep(0.002)
    first.note("process", "3")
    second.keep()
    first.keep()

    assert messages(tmp_path) == ["1", "2", "3"]
    assert messages(tmp_path, limit=2) == ["2", "3"]


def test_the_newest_events_of_a_kind_a_resource_and_a_time_can_be_asked_for(tmp_path, history):
    """Among others, which do not count towards the limit."""
    for number in range(4):
        history.note("allocation", f"a{number}", resource_name=NAME)
        history.note("registered", f"r{number}", resource_name="example.com/nic")
    history.keep()

    assert messages(tmp_path, kinds=["allocation"], limit=2) == ["a2", "a3"]
    assert messages(tmp_path, resource_name="example.com/nic", limit=1) == ["r3"]
    assert messages(tmp_path, kinds=["allocation"], resource_name="example.com/nic") == []
    assert messages(tmp_path, since=time.time() + 60) == []


def test_two_files_of_bounded_size_hold_the_newest_events(tmp_path, history):
    """However long a process runs: the run directory is memory."""
    for number in range(3000):
        history.note("process", f"event {number} {'x' * 100}")
        history.keep()

    kept = [int(message.split()[1]) for message in messages(tmp_path)]
    files = list((tmp_path / "history/resource:example.com_gpu").iterdir())
    assert sorted(file.name for file in files) == [BEFORE, CURRENT]
    assert sum(file.stat().st_size for file in files) <= 2 * FILE_BYTES
    assert kept == list(range(kept[0], 3000))
    assert len(kept) > 300


def test_noting_makes_no_system_call(tmp_path, history):
    """Allocate notes, and answers from memory: what happens on the disk is done later."""
    history.note("allocation", "allocated")

    assert not (tmp_path / "history").exists()


def test_a_full_disk_costs_nothing_but_events_which_are_counted(tmp_path):
    """Half a line is taken back; there is room again, and the history goes on and says how much is missing."""
    code = """
        import pathlib, resource, signal, sys
        from devherd.history import History
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        history = History(pathlib.Path(sys.argv[1]), "scanner", 640)  # room for ten events in memory
        history.note("process", "first")
        print(history.keep())
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (80, hard))
        for number in range(12):
            history.note("process", f"later {number}")
            print(history.keep())
        files = (pathlib.Path(sys.argv[1]) / "scanner").iterdir()
        print(history.lost, sum(file.read_bytes().count(b"\\n") for file in files))
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        print(history.keep(), history.lost)
    """
    command = [sys.executable, "-c", textwrap.dedent(code), str(tmp_path / "history")]
    said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.split("\n")

    assert said[:13] == ["True", *["False"] * 12]
    assert said[13:15] == ["2 1", "True 0"]
    assert messages(tmp_path) == [
        "first",
        *(f"later {number}" for number in range(2, 12)),
        "2 events could not be written",
    ]


def test_a_history_that_nobody_may_write_never_fails_its_process(tmp_path):
    """A file stands where its directory would be."""
    (tmp_path / "history").write_text("")
    history = History(tmp_path / "history", "scanner")
    history.note("process", "x")

    assert history.keep() is False
    assert events(tmp_path) == []


def test_lines_that_are_no_events_are_left_out(tmp_path, history):
    """A torn one, another program's, a later version's kind."""
    history.note("process", "good")
    history.keep()
    with (tmp_path / "history/resource:example.com_gpu" / CURRENT).open("ab") as file:
        file.write(b'{"time": 1, "kind": "strange", "message": "m"}\n[]\n\xff\xff\n{"time": 1}\n{"kind": "pro')

    assert messages(tmp_path) == ["good"]


def test_a_follower_sees_each_event_once_also_while_files_are_replaced(tmp_path, history):
    """What was there before is not new."""
    history.note("process", "old")
    history.keep()
    follower = Follower(tmp_path)
    seen = []
    for number in range(1500):
        history.note("process", f"event {number} {'x' * 100}")
        history.keep()
        if number % 7 == 0:
            seen += follower.news()
    seen += follower.news()

    assert [int(event.message.split()[1]) for event in seen] == list(range(1500))
    assert follower.news() == []


def test_a_follower_from_a_moment_on_sees_what_came_after_it_also_in_the_older_file(tmp_path, history):
    """What was there before the moment is not new."""
    history.note("process", "event -1")
    history.keep()
    [old] = events(tmp_path)
    time.sleep(0.002)  # the times of events are whole milliseconds
    current = tmp_path / "history/resource:example.com_gpu" / CURRENT
    number = itertools.count()
    while not current.with_name(BEFORE).exists():
        history.note("process", f"event {next(number)} {'x' * 1000}")
        history.keep()

    seen = Follower(tmp_path, after=old.time).news()

    assert [int(event.message.split()[1]) for event in seen] == list(range(next(number)))


def test_a_clock_that_is_set_back_hides_no_event_from_a_follower(tmp_path, history):
    """The moment concerns what was there at the first look alone."""
    follower = Follower(tmp_path, after=time.time() + 3600)
    assert follower.news() == []
    history.note("process", "later")
    history.keep()

    assert [event.message for event in follower.news()] == ["later"]


def test_a_follower_goes_on_where_another_one_was_also_in_a_file_that_was_replaced_since(tmp_path, history):
    """Whatever the clock says; a position in another file than those is none."""
    process = "resource:example.com_gpu"
    seen, position, number = [], None, itertools.count()
    for _ in range(40):
        for _ in range(7):
            history.note("process", f"event {next(number)} {'x' * 2000}")
            history.keep()
        follower = Follower(tmp_path, process, time.time() + 3600 if position else 0.0, position)
        seen += follower.news()
        position = follower.position(process)
    assert [int(event.message.split()[1]) for event in seen] == list(range(next(number)))
    assert position is not None
    assert Follower(tmp_path, process, position=(position[0], position[1] * 2)).news()


def test_a_follower_waits_for_the_rest_of_a_line(tmp_path, history):
    """It may look while somebody writes."""
    follower = Follower(tmp_path)
    history.note("process", "whole")
    history.keep()
    path = tmp_path / "history/resource:example.com_gpu" / CURRENT
    line = path.read_bytes()
    path.write_bytes(line[:20])
    assert follower.news() == []
    with path.open("ab") as file:
        file.write(line[20:])

    assert [event.message for event in follower.news()] == ["whole"]


def test_the_stamp_changes_with_each_event_and_not_without(tmp_path, history):
    """A page that is asked each second need not read everything."""
    empty = stamp(tmp_path)
    history.note("process", "1")
    history.keep()
    one = stamp(tmp_path)
    assert stamp(tmp_path) == one
    history.note("process", "2")
    history.keep()

    assert len({empty, one, stamp(tmp_path)}) == 3


def test_what_was_written_long_ago_is_forgotten_at_a_start(tmp_path, history):
    """Resources come and go; each leaves a directory."""
    History(tmp_path / "history", "scanner").note("process", "x")
    recent = History(tmp_path / "history", "scanner")
    recent.note("process", "recent")
    recent.keep()
    history.note("registered", "long ago")
    history.keep()
    long_ago = time.time() - KEPT_SECONDS - 60
    os.utime(tmp_path / "history/resource:example.com_gpu" / CURRENT, (long_ago, long_ago))

    forget_old(tmp_path / "history")

    assert messages(tmp_path) == ["recent"]
    assert [entry.name for entry in (tmp_path / "history").iterdir()] == ["scanner"]


def test_an_operators_commands_are_forgotten_like_all_others_and_keep_none_from_it(tmp_path, history):
    """The lock that they take lay among their events, whose directory could not be removed."""
    settings = Settings(run_dir=tmp_path)
    record(settings, "cordon", "cordoned", "example.com/gpu", "0")
    history.note("registered", "long ago")
    history.keep()
    assert messages(tmp_path) == ["cordoned", "long ago"]
    long_ago = time.time() - KEPT_SECONDS - 60
    for process in (PROCESS, "resource:example.com_gpu"):
        os.utime(settings.history_directory / process / CURRENT, (long_ago, long_ago))

    forget_old(settings.history_directory)

    assert [entry.name for entry in settings.history_directory.iterdir() if entry.is_dir()] == []
    record(settings, "cordon", "uncordoned", "example.com/gpu", "0")
    assert messages(tmp_path) == ["uncordoned"]
