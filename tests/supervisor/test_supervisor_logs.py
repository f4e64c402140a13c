"""Where the log of the supervisor and of its children goes."""

import json
import logging
import os
import re
import signal
import subprocess
import sys
import threading

import pytest
from instance import until
from not_tested import not_tested
from supervisor.loggers import LevelsByName, LogRecord

from devherd import log as logs
from devherd.log import Once, for_journal
from devherd.supervisor.output import LOG_BYTES, LogFile, Stderr
from devherd_sim.node.presets import preset
from devherd_sim.testbed import Testbed

FIRST = "resource:example.com_first"


def test_a_complaint_is_logged_once_until_it_changes_or_is_over():
    """A child that tries again each second would fill the log; what is compared may be less than the text."""
    logged = []
    complaint = Once(lambda text, *arguments: logged.append(text % arguments))
    for why in ("full", "full", "read-only", "full"):
        complaint.complain("cannot write: %s", why)
    assert complaint.lasts
    complaint.over()
    assert not complaint.lasts
    complaint.complain("cannot write: %s", "full")
    complaint.complain("cannot write %s", "a", about="full")
    complaint.complain("cannot write %s", "b", about="full")
    assert [line.rpartition(" ")[2] for line in logged] == ["full", "read-only", "full", "full", "a"]


def test_all_logs_are_on_the_supervisors_stderr_and_in_files(instance):
    """`kubectl logs` shows everything, `supervisorctl tail` each child's own."""
    instance.up()
    for name in ("scanner", "exporter", FIRST):
        until(lambda name=name: f"{name} says hello" in instance.stderr(), f"the greeting of {name}")
        log = instance.settings.logs_directory.joinpath(f"{name}.log").read_text()
        assert f"{name} says hello" in log
        assert log.count("says hello") == 1
    assert f"supervisor: {FIRST} started" in instance.stderr()


def test_log_files_are_bounded(instance):
    """A talkative child costs twice the bound at most; stderr has every line."""
    instance.order(f"talk.{FIRST}")
    instance.up()
    until(lambda: f"{FIRST} has talked" in instance.stderr(), "the end of the talk")
    files = list(instance.settings.logs_directory.glob(f"{FIRST}.log*"))
    assert len(files) == 2
    assert all(file.stat().st_size < 2 * LOG_BYTES for file in files)
    assert instance.stderr().count("bla bla") == 20_000


def test_logs_are_opened_again_on_sigusr2(instance):
    """For logrotate, as with supervisord."""
    instance.up()
    files = [instance.settings.logs_directory / name for name in ("scanner.log", "supervisor.log")]
    for file in files:
        file.rename(file.with_suffix(".old"))
    os.kill(instance.process.pid, signal.SIGUSR2)
    until(files[0].exists, "the child's log file")
    os.kill(instance.process.pid, signal.SIGHUP)
    until(lambda: "reloaded" in files[0].read_text(), "the child's line")
    assert "reloading the configuration" in files[1].read_text()


def test_a_reader_that_stalls_does_not_stall_the_writer():
    """What a full pipe does not take is lost and counted, and the next line comes through."""
    read, write = os.pipe()
    stderr = Stderr(write)
    line = b"x" * 999 + b"\n"
    for _ in range(200):
        stderr.send(line)
    received = os.read(read, 1 << 20)
    while len(received) % 4096 == 0 and len(received) < 1 << 16:
        received += os.read(read, 1 << 20)
    stderr.send(b"here again\n")
    tail = os.read(read, 1 << 20).decode().splitlines()
    lost = 200 * len(line) - len(received)
    assert tail == [f"devherd: {lost} bytes of log lost: stderr was not read in time", "here again"]
    os.close(read)
    os.close(write)


def test_a_reader_that_keeps_up_gets_everything():
    """Also more than a pipe holds at once."""
    read, write = os.pipe()
    received = []

    def drain() -> None:
        while data := os.read(read, 4096):
            received.append(data)

    reader = threading.Thread(target=drain)
    reader.start()
    stderr = Stderr(write)
    for number in range(5000):
        stderr.write(f"line {number} {'x' * 90}\n")
    os.close(write)
    reader.join()
    os.close(read)
    assert b"".join(received).count(b"\n") == 5000


def test_a_closed_stderr_is_no_error():
    """A herd whose terminal is gone lives on."""
    read, write = os.pipe()
    os.close(read)
    Stderr(write).write("nobody hears this\n")
    os.close(write)


def test_a_full_disk_costs_a_log_file_its_lines_and_nothing_else(tmp_path):
    """Closing a file whose last lines found no room used to end the supervisor."""
    log_file = LogFile(str(tmp_path / "child.log"), "ab", LOG_BYTES, 1)
    log_file.stream.close()
    log_file.stream = open("/dev/full", "ab")  # noqa: PTH123, SIM115 - the kernel's own full disk

    log_file.emit(LogRecord(LevelsByName.INFO, b"lost\n"))
    log_file.close()
    log_file.emit(LogRecord(LevelsByName.INFO, b"there is room again\n"))
    log_file.close()

    assert (tmp_path / "child.log").read_text() == "there is room again\n"


def test_a_call_that_ended_before_grpc_handled_it_is_no_error_in_the_log():
    """A stream that the kubelet had just opened when the child was stopped left a traceback; others stay."""
    script = """
import asyncio, logging
from devherd import log
log.configure("resource:x", "info", "text")
for error in (asyncio.CancelledError(), ValueError("a defect")):
    try:
        raise error
    except BaseException:
        logging.getLogger("grpc._cython.cygrpc").exception("not handled")
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stderr.count("Traceback") == 1
    assert "CancelledError" not in done.stderr
    assert "a defect" in done.stderr


def test_the_journal_has_the_priority_of_each_line_and_the_time_once():
    """Defect: each line was of priority 6, so that `journalctl -p warning` found none. A traceback is of its error."""
    lines = (
        b"2026-11-23T10:00:00.123Z WARNING supervisor: low on room\n"
        b"2026-11-23T10:00:00.123Z ERROR   resource:a: crashed\nTraceback (most recent call last):\n"
        b'{"time": "2026-11-23T10:00:00.123Z", "level": "info", "process": "scanner", "message": "a"}\n'
    )
    assert for_journal(lines) == (
        b"<4>supervisor: low on room\n<3>resource:a: crashed\n<3>Traceback (most recent call last):\n"
        b'<6>{"time": "2026-11-23T10:00:00.123Z", "level": "info", "process": "scanner", "message": "a"}\n'
    )
    assert for_journal(b"E1123 add_port.cc:83] no log\n") == b"E1123 add_port.cc:83] no log\n"


async def test_under_systemd_every_process_writes_for_the_journal_and_files_stay_as_they_were(directory):
    """By `$JOURNAL_STREAM`: only where stderr itself is the journal."""
    bed = Testbed(directory, preset("fpga-opae-2"))
    file = directory / "herd.log"
    file.touch()
    journal = f"{file.stat().st_dev}:{file.stat().st_ino}"
    bed.command = ("env", f"JOURNAL_STREAM={journal}", *bed.command)
    async with bed:
        await bed.until(lambda: "registered fpga" in bed.log, "it is registered")
        os.kill((await bed.child("exporter")).pid, signal.SIGKILL)
        await bed.until(lambda: "exporter killed" in bed.log or "SIGKILL" in bed.log, "that is logged")
        await bed.child("exporter")
    lines = bed.log.splitlines()
    assert [line for line in lines if not re.match(r"<[3467]>[a-z:]", line)] == []
    assert [line for line in lines if "SIGKILL" in line and line.startswith(("<3>", "<4>"))]
    kept = (bed.settings.logs_directory / "supervisor.log").read_text()
    assert re.match(r"\d{4}-\d\d-\d\dT\S+Z INFO    supervisor: ", kept)

    bed.configure({"no": "such key"})
    await bed.start_herd()
    assert await bed.herd.wait() == 2
    assert bed.log.splitlines()[-1].startswith("<3>devherd: ")


async def test_every_line_of_a_log_in_json_is_an_object_and_a_bind_that_fails_says_why(directory):
    """Defect: gRPC's own lines and the last error were text, and the kernel's word for the failure was in neither.

    Those lines were text in the files of the processes even when stderr had them as objects.
    """
    unshared = ("unshare", "--user", "--map-root-user", "--mount")
    tried = subprocess.run([*unshared, "true"], capture_output=True, text=True, check=False)  # noqa: ASYNC221 - at once
    if tried.returncode:
        not_tested(tried.stderr)
    bed = Testbed(directory, preset("fpga-opae-2"), {"log_format": "json"})
    sockets = bed.settings.plugin_directory
    script = f'mount --bind {sockets} {sockets} && mount -o remount,ro,bind {sockets} && exec "$@"'
    bed.command = (*unshared, "sh", "-c", script, "sh", *bed.command)
    async with bed:
        await bed.until(lambda: "cannot bind" in bed.log, "a bind fails")
        await bed.until(lambda: "add_port" in bed.log or "E0" in bed.log, "gRPC's word for it")
    logged = [json.loads(line) for line in bed.log.splitlines()]
    files = {file.name: file.read_text().splitlines() for file in bed.settings.logs_directory.iterdir()}
    assert any("add_port" in json.loads(line)["message"] for lines in files.values() for line in lines)
    assert any(": Read-only file system" in entry["message"] for entry in logged)
    assert all({"time", "level", "process", "message"} <= entry.keys() for entry in logged)


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_what_grpc_writes_in_a_rehearsal_is_an_object_too(capfd, monkeypatch, log_format):
    """Defect: the rehearsal of a standby has the instance's stderr, whose other lines nobody reads."""
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    logs.configure("first-scan", "info", log_format)
    with logs.library_lines_as_json():
        os.write(2, b"E1128 thd.cc:157] pthread_create failed\n")
        logging.getLogger("devherd").info("rehearsed")
    lines = capfd.readouterr().err.splitlines()
    if log_format == "text":
        assert "E1128 thd.cc:157] pthread_create failed" in lines
    else:
        assert {(line["process"], line["message"]) for line in map(json.loads, lines)} == {
            ("first-scan", "E1128 thd.cc:157] pthread_create failed"),
            ("first-scan", "rehearsed"),
        }


@pytest.mark.parametrize("error", ["--log-format=nonsense", "--run-dir=/proc/nowhere"])
def test_the_last_error_of_a_start_is_an_object_too(error):
    """Of one whose format is known: the variable is there before the file is read."""
    command = [sys.executable, "-m", "devherd", "run", "--listen=", error]
    environment = os.environ | {"DEVHERD_LOG_FORMAT": "json"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    [entry] = [json.loads(line) for line in done.stderr.splitlines()]
    assert (done.returncode, entry["level"]) == (2, "error")
    assert entry["message"].startswith("devherd: ")
