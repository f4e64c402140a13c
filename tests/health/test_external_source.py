"""Process `source:external-<name>`, with real programs and files: what it writes for the scanner."""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
import scratch
from not_tested import not_tested

from devherd import spool
from devherd.proto import health_pb2

PROCESS = Path(__file__).with_name("listener_process.py")
PERIODIC = {"interval": 0.2, "timeout": 5.0}


class Listener:
    """The process, and the program or file that it listens to."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.file = directory / "check.jsonl"
        self.log = directory / "log"
        self._process: subprocess.Popen | None = None

    def program(self, body: str, mode: int = 0o755) -> Path:
        """A shell script; DIR is the directory of the test."""
        path = self.directory / "check"
        path.write_text(f"#!/bin/sh\nDIR={self.directory}\n{textwrap.dedent(body)}\n")
        path.chmod(mode)
        return path

    def order(self, **parts) -> None:
        defaults = {
            "command": [],
            "file": "",
            "interval": None,
            "timeout": 5.0,
            "max_age": 60.0,
            "on_silence": "keep",
            "boot_id": "boot-1",
        }
        requests = self.directory / "run/requests"
        requests.mkdir(parents=True, exist_ok=True)
        (self.directory / "run/findings").mkdir(exist_ok=True)
        spool.update(requests / "external-check.json", json.dumps(defaults | parts).encode())

    def start(self) -> None:
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, PROCESS, self.directory / "run", "external-check"], stderr=log
            )

    def listen(self, **parts) -> None:
        self.order(**parts)
        self.start()

    def said(self) -> health_pb2.Findings:
        path = spool.path_of(self.directory / "run/findings", "external-check")
        return spool.read_or_empty(path, health_pb2.Findings)

    def until(self, condition) -> health_pb2.Findings:
        deadline = time.monotonic() + 20
        while not condition(self.said()):
            assert time.monotonic() < deadline, f"{self.said()}\n{self.log.read_text()}"
            time.sleep(0.01)
        return self.said()

    def until_it_says(self, *details: str) -> health_pb2.Findings:
        wanted = list(details)
        return self.until(lambda said: not said.failed and sorted(one.detail for one in said.findings) == wanted)

    def end(self) -> int | None:
        if self._process is None:
            return None
        self._process.terminate()
        return self._process.wait(20)


@pytest.fixture
def listener():
    directory = scratch.directory()
    listener = Listener(directory)
    yield listener
    listener.end()
    assert "Traceback" not in listener.log.read_text()
    shutil.rmtree(directory)


def is_running(pid_file: Path) -> bool:
    with contextlib.suppress(OSError):
        stat = Path(f"/proc/{pid_file.read_text().strip()}/stat").read_text()
        return stat.rpartition(")")[2].split()[0] != "Z"
    return False


def gone(pid_file: Path) -> None:
    deadline = time.monotonic() + 20
    while is_running(pid_file):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_monitor_of_node_problem_detector_works_unchanged(listener):
    """Exit status 0 is well, 1 a problem with the message on stdout, others: the program cannot check."""
    script = listener.program('cat "$DIR/message"; exit $(cat "$DIR/status")')
    (listener.directory / "message").write_text("the fan of card 3\nhas stopped\n")
    (listener.directory / "status").write_text("1")
    listener.listen(command=[str(script)], **PERIODIC)

    ill = listener.until_it_says("the fan of card 3 has stopped")
    (listener.directory / "status").write_text("3")
    unknown = listener.until(lambda said: said.failed)
    (listener.directory / "status").write_text("0")
    well = listener.until_it_says()

    [finding] = ill.findings
    assert (finding.at.ByteSize(), finding.reason, finding.file) == (0, "external", str(script))
    assert (ill.source, ill.boot_id) == ("external-check", "boot-1")
    assert unknown.failed == "exit status 3: the fan of card 3 has stopped"
    assert list(unknown.findings) == list(ill.findings)
    assert well.failed == ""


def test_a_program_that_takes_too_long_is_ended_with_all_that_it_started(listener):
    """And cannot tell: its devices stay as they were."""
    script = listener.program('sleep 600 & echo $! > "$DIR/child"; echo $$ > "$DIR/own"; trap "" TERM; wait; wait')
    listener.listen(command=[str(script)], interval=60.0, timeout=0.5)

    said = listener.until(lambda said: said.failed)

    assert said.failed == "it took longer than 0.5 s"
    gone(listener.directory / "own")
    gone(listener.directory / "child")


def test_output_without_end_is_cut_off(listener):
    """Memory and time are the node's."""
    listener.listen(command=[str(listener.program("exec yes"))], interval=60.0, timeout=30.0)

    assert listener.until(lambda said: said.failed).failed == "it wrote more than 65536 bytes"


def test_a_program_that_goes_on_running_is_heard_at_once(listener):
    """Each line counts when it is printed."""
    os.mkfifo(listener.directory / "lines")
    script = listener.program('exec cat "$DIR/lines"')
    listener.listen(command=[str(script)])

    with (listener.directory / "lines").open("w", buffering=1) as lines:
        lines.write('{"v":1,"hello":{"name":"check"}}\n{"device":{"uuid":"GPU-1"},"reason":"hot"}\nnonsense\n')
        hot = listener.until_it_says("hot")
        lines.write('{"device":{"uuid":"GPU-1"},"reason":"hot","sta')
        lines.write('te":"cleared"}\n')
        listener.until_it_says()

    assert hot.findings[0].at == health_pb2.Target(uuid="GPU-1")
    assert "a line is ignored, and others like it: it is not JSON: nonsense" in listener.log.read_text()


def test_one_that_ends_is_started_again_and_its_last_word_stands_meanwhile(listener):
    """With its exit status as what is wrong."""
    script = listener.program("""\
        echo '{"reason": "hot"}'
        [ -e "$DIR/again" ] && exec sleep 600
        touch "$DIR/again"
        exit 4
        """)
    listener.listen(command=[str(script)])

    ended = listener.until(lambda said: said.failed)
    listener.until_it_says("hot")

    assert ended.failed == "it ended, exit status 4; next start in 1 s"
    assert [finding.detail for finding in ended.findings] == ["hot"]


@pytest.mark.parametrize(("on_silence", "kept"), [("keep", ["hot"]), ("drop", [])])
def test_one_that_is_silent_for_too_long_is_ended_and_its_last_word_kept_or_dropped(listener, on_silence, kept):
    """As the configuration has it; silence is not health."""
    script = listener.program("""\
        echo $$ > "$DIR/own"
        [ -e "$DIR/again" ] || echo '{"reason": "hot"}'
        touch "$DIR/again"
        exec sleep 600
        """)
    listener.listen(command=[str(script)], max_age=0.5, on_silence=on_silence)
    listener.until_it_says("hot")
    first = listener.directory / "first"
    first.write_text((listener.directory / "own").read_text())

    said = listener.until(lambda said: said.failed and [one.detail for one in said.findings] == kept)

    assert said.failed.startswith("no report for 0.5 s")
    assert said.lets_go == (on_silence == "drop")
    gone(first)


def test_a_flood_of_lines_is_dropped_and_told(listener):
    """1 000 a second count; the process stays idle enough to beat."""
    script = listener.program("""\
        for i in 1 2 3; do seq 2000 | sed 's/.*/{"alive": true}/'; sleep 1.1; done
        echo '{"reason": "hot"}'
        exec sleep 600
        """)
    listener.listen(command=[str(script)])

    listener.until_it_says("hot")

    assert "lines were dropped: the limit is 1000 a second" in listener.log.read_text()


def test_a_file_is_what_it_says_now(listener):
    """Replaced as a whole: findings that are missing are cleared; a torn or removed file has failed."""
    listener.file.write_text(
        '{"device": {"device": "a"}, "reason": "hot"}\n{"device": {"device": "b"}, "reason": "wet"}\n'
    )
    listener.listen(file=str(listener.file))
    listener.until_it_says("hot", "wet")

    spool.replace(listener.file, b'{"device": {"device": "b"}, "reason": "wet"}\n')
    listener.until_it_says("wet")
    spool.replace(listener.file, b'{"device": {"dev')
    torn = listener.until(lambda said: said.failed)
    listener.file.unlink()
    missing = listener.until(lambda said: said.failed != torn.failed)
    spool.replace(listener.file, b"")
    listener.until_it_says()

    assert torn.failed == "line 1: it is not JSON"
    assert missing.failed == "it cannot be read: No such file or directory"
    assert [finding.detail for finding in missing.findings] == ["wet"]


def test_a_file_that_nobody_writes_any_more_is_silent(listener):
    """Its writer may have died long ago."""
    listener.file.write_text('{"reason": "hot"}\n')
    hour = time.time() - 3600
    os.utime(listener.file, (hour, hour))
    listener.listen(file=str(listener.file), max_age=60.0, on_silence="drop")

    said = listener.until(lambda said: said.failed)

    assert (said.failed, said.lets_go, list(said.findings)) == ("no report for 60 s", True, [])


def test_a_fifo_in_place_of_the_file_hangs_nobody(listener):
    """Opening one waits for its writer."""
    os.mkfifo(listener.file)
    listener.listen(file=str(listener.file))

    assert listener.until(lambda said: said.failed).failed == "it is not a regular file"


def test_a_program_or_file_that_everybody_may_write_is_not_trusted(listener):
    """Whoever can write it could empty the node, or run as devherd."""
    script = listener.program("exit 1", mode=0o777)
    listener.listen(command=[str(script)], **PERIODIC)
    distrusted = listener.until(lambda said: said.failed)
    listener.file.write_text("")
    listener.file.chmod(0o666)
    listener.order(file=str(listener.file))
    assert listener.end() is not None
    listener.start()
    listener.until(lambda said: str(listener.file) in said.failed)

    assert distrusted.failed == f"everybody may write {script}; take that right away with `chmod o-w`"


def test_a_file_whose_rights_are_mended_is_read(listener):
    """It has not changed itself: only who may write it."""
    listener.file.write_text(
        json.dumps({"reason": "external", "detail": "loose cable", "device": {"device": "port-0"}})
    )
    listener.file.chmod(0o666)
    listener.listen(file=str(listener.file))
    listener.until(lambda said: "everybody may write" in said.failed)

    listener.file.chmod(0o644)

    assert [found.detail for found in listener.until(lambda said: said.findings).findings] == ["loose cable"]


def test_a_program_of_another_user_is_not_trusted(listener):
    """Nor one in another user's directory."""
    if os.geteuid() != 0:
        not_tested("only root gives files away")
    script = listener.program("exit 1")
    os.chown(script, 1234, 1234)
    listener.listen(command=[str(script)], **PERIODIC)

    assert listener.until(lambda said: said.failed).failed == f"{script} belongs to user 1234; have root own it"


def test_a_program_that_another_group_may_write_is_not_trusted(listener):
    """Its members are as good as everybody."""
    if os.geteuid() != 0:
        not_tested("only root gives files to other groups")
    script = listener.program("exit 1", mode=0o775)
    os.chown(script, 0, 1234)
    listener.listen(command=[str(script)], **PERIODIC)

    said = listener.until(lambda said: said.failed).failed
    assert said == f"group 1234 may write {script}; take that right away with `chmod g-w`"


def test_a_program_that_is_not_there_is_tried_again(listener):
    """It may be installed later."""
    path = listener.directory / "check"
    listener.listen(command=[str(path)], **PERIODIC)
    missing = listener.until(lambda said: said.failed)
    listener.program("exit 0")
    listener.until_it_says()

    assert missing.failed == f"{path} cannot be started: No such file or directory"


def test_another_request_asks_for_another_process_and_the_program_ends_with_this_one(listener):
    """A reload changes what is asked; exit code 75 has the supervisor start it anew at once."""
    script = listener.program('echo $$ > "$DIR/own"; echo \'{"alive": true}\'; exec sleep 600')
    listener.listen(command=[str(script)])
    listener.until(lambda said: said.source)

    listener.order(command=[str(script)], max_age=30.0)

    assert listener._process.wait(20) == 75
    gone(listener.directory / "own")


def test_a_wish_to_end_is_not_lost_while_a_program_is_started(tmp_path):
    """SIGTERM comes in the middle of the fork, where Python drops what its handler raises."""
    code = """
        import os, signal, sys
        from devherd.sources.external import RunningProgram
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(33))
        os.register_at_fork(after_in_parent=lambda: os.kill(os.getpid(), signal.SIGTERM))
        RunningProgram(["/bin/true"])
        """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=False, cwd=tmp_path
    )

    assert (done.returncode, done.stderr) == (33, "")


def test_what_stood_stands_for_the_process_that_follows(listener):
    """A program that tells changes only has said it once."""
    first = listener.program("""echo '{"reason": "hot"}'; exec sleep 600""")
    listener.listen(command=[str(first)])
    listener.until_it_says("hot")
    listener.end()
    listener.program("""echo '{"reason": "wet"}'; exec sleep 600""")
    listener.start()

    listener.until_it_says("hot", "wet")
