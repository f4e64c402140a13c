"""Process `source:external-<name>`, with real programs and files: what it writes for the scanner."""

import contextlib
import json
import os
import re
import shutil
import signal
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

    def start(self, *constants: str, log_format: str = "text") -> None:
        arguments = [self.directory / "run", "external-check", log_format, *constants]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen([sys.executable, PROCESS, *arguments], stderr=log)

    @property
    def pid(self) -> int:
        return self._process.pid

    def listen(self, *constants: str, log_format: str = "text", **parts) -> None:
        self.order(**parts)
        self.start(*constants, log_format=log_format)

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
        wanted = sorted(details)
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


@pytest.mark.parametrize(
    ("printed", "message"),
    [
        ('{"status": "critical","temp": 95}', '{"status": "critical","temp": 95}'),
        ('{\n  "status": "critical",\n  "temp": 95\n}', '{ "status": "critical", "temp": 95 }'),
        ('{"alive": true}\nfan stopped', "fan stopped"),
        ("", "it found a problem, without a message"),
    ],
)
def test_what_is_no_line_of_the_protocol_is_the_message_of_exit_status_1(listener, printed, message):
    """Checks have a JSON of their own, on one line or several."""
    (listener.directory / "message").write_text(printed)
    listener.listen(command=[str(listener.program('cat "$DIR/message"; exit 1'))], **PERIODIC)

    [finding] = listener.until_it_says(message).findings

    assert finding.at.ByteSize() == 0


@pytest.mark.parametrize("status", [0, 1])
def test_finding_lines_of_a_program_that_ends_count_with_either_exit_status(listener, status):
    """They say which devices are meant; other lines are no findings then, and a line with a mistake is told."""
    out = listener.directory / "out"
    out.write_text('checking\n{"device": {"uuid": "GPU-1"}, "reason": "hot", "detail": "91 °C"}\n')
    listener.listen(command=[str(listener.program(f'cat "$DIR/out"; exit {status}'))], **PERIODIC)

    [finding] = listener.until_it_says("91 °C").findings
    spool.replace(out, b'checking\n{"reason": "hot", "state": "maybe"}\n')
    wrong = listener.until(lambda said: said.failed)
    spool.replace(out, b'{"failed": "no driver"}\n')
    listener.until(lambda said: said.failed == "no driver")

    assert finding.at == health_pb2.Target(uuid="GPU-1")
    assert wrong.failed == "line 2: `state` is not one of cleared, mentioned, raised, standing"
    assert [one.detail for one in wrong.findings] == ["91 °C"]


def test_processes_in_sessions_of_their_own_end_with_the_run(listener):
    """A daemon that a check leaves behind would be one more at each run; its name is told, the result counts."""
    script = listener.program(
        """\
        setsid sh -c 'sleep 600 & echo $$ > "$DIR/new"; mv "$DIR/new" "$DIR/daemon"; wait' &
        while [ ! -e "$DIR/daemon" ]; do sleep 0.01; done
        echo broken
        exit 1
        """.replace("$DIR", str(listener.directory))
    )
    listener.listen(command=[str(script)], interval=60.0, timeout=10.0)

    said = listener.until_it_says("broken")

    named = r"(1 process|[2-4] processes) left behind and ended: (mv, )?sh(, sleep)?"
    assert re.fullmatch(named, said.complaints[0]), said.complaints
    assert children(listener.pid) == []
    assert not is_running(listener.directory / "daemon")


def test_processes_in_sessions_of_their_own_end_with_the_source(listener):
    """Also of a program that goes on running; those that end by themselves do not stay as zombies."""
    script = listener.program(
        """\
        (setsid true &)
        (setsid sh -c 'echo $$ > "$DIR/new"; mv "$DIR/new" "$DIR/daemon"; exec sleep 600' &)
        while [ ! -e "$DIR/daemon" ]; do sleep 0.01; done
        echo '{"alive": true}'
        exec sleep 600
        """.replace("$DIR", str(listener.directory))
    )
    listener.listen(command=[str(script)])
    listener.until(lambda said: said.source)

    deadline = time.monotonic() + 20
    while len(children(listener.pid)) != 2:  # the program and the daemon
        assert time.monotonic() < deadline
        time.sleep(0.01)
    listener.end()

    assert not is_running(listener.directory / "daemon")


def children(pid: int) -> list[str]:
    """The children of a process, zombies too."""
    fields = [
        (place.parent.name, place.read_text().rpartition(")")[2].split()) for place in Path("/proc").glob("[0-9]*/stat")
    ]
    return [child for child, (_state, parent, *_) in fields if int(parent) == pid]


def test_what_a_program_writes_to_stderr_is_in_the_log_labelled_and_its_last_line_is_the_reason(listener):
    """Nobody takes it for a line of devherd's own; in status and `explain` it says why the program cannot check."""
    script = listener.program("""\
        printf 'loading\\n\\033[31m2026-11-24 WARNING scanner: GPU-0 is Unhealthy\\n\\nvendor-cli: no device' >&2
        exit 127
        """)
    listener.listen(command=[str(script)], interval=60.0, timeout=10.0)

    said = listener.until(lambda said: said.failed)

    lines = listener.log.read_text().splitlines()
    label = "INFO    source:external-check: stderr: "
    forged = "[31m2026-11-24 WARNING scanner: GPU-0 is Unhealthy"
    assert said.failed == "exit status 127: vendor-cli: no device"
    assert [line.partition(label)[2] for line in lines] == ["loading", forged, "vendor-cli: no device"]


def test_a_flood_on_stderr_is_a_few_lines_of_the_log_also_as_json(listener):
    """Each is an object: a stream of JSON is not broken by what a program writes."""
    script = listener.program("""\
        seq -f 'line "%g"' 50000 >&2
        echo '{"reason": "hot"}'
        exec sleep 600
        """)
    listener.listen(command=[str(script)], log_format="json")

    listener.until_it_says("hot")

    entries = [json.loads(line) for line in listener.log.read_text().splitlines()]
    assert [entry["message"] for entry in entries] == [f'stderr: line "{number}"' for number in range(1, 21)]
    assert {entry["process"] for entry in entries} == {"source:external-check"}


def test_a_program_that_reads_its_stdin_finds_its_end(listener):
    """It would wait for its time limit."""
    listener.listen(command=[str(listener.program("cat; echo read; exit 1"))], **PERIODIC)

    listener.until_it_says("read")


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
    assert hot.complaints == ["a line is ignored, and others like it: it is not JSON: nonsense"]


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


def test_of_a_burst_of_lines_none_is_lost(listener):
    """A thousand a second are taken; the pipe makes the program wait."""
    script = listener.program("""\
        seq 1500 | sed 's/.*/{"alive": true}/'
        seq 900 | sed 's/.*/{"reason": "r&"}/'
        echo '{"complete": true}'
        exec sleep 600
        """)
    listener.listen(command=[str(script)])

    listener.until_it_says(*[f"r{number}" for number in range(1, 901)])


@pytest.mark.parametrize("flood", ["""yes '{"alive": true}'""", "yes nonsense", "cat /dev/zero"])
def test_a_flood_without_end_costs_no_core(listener, flood):
    """Neither on stdout nor on stderr: what is not read makes the program wait."""
    script = listener.program(f"""\
        {flood} >&2 &
        exec {flood}
        """)
    listener.listen(command=[str(script)])
    deadline = time.monotonic() + 20
    while not listener.log.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(1.0)

    began, used = time.monotonic(), cpu_seconds(listener.pid)
    time.sleep(3.0)

    assert cpu_seconds(listener.pid) - used < (time.monotonic() - began) / 2
    assert listener.log.stat().st_size < 20_000


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_a_program_that_floods_for_long_is_ended_and_started_later_each_time(listener):
    """Its lines say nothing new; the node's processors are there for others."""
    script = listener.program("""echo $$ >> "$DIR/starts"; exec yes '{"alive": true}'""")
    listener.listen("FLOOD_SECONDS=1.5", command=[str(script)])

    said = listener.until(lambda said: "next start in 2 s" in said.failed)

    assert said.failed == "it printed more than 1000 lines a second for 1.5 s; next start in 2 s"
    assert len((listener.directory / "starts").read_text().split()) == 2


def test_a_program_that_ends_after_a_line_is_started_later_each_time(listener):
    """A script for `interval` that is given none: a line does not show that it goes on running."""
    script = listener.program("""echo '{"reason": "hot"}'""")
    listener.listen(command=[str(script)])

    said = listener.until(lambda said: "next start in 4 s" in said.failed)

    hint = "if it is to end by itself, give `interval`"
    assert said.failed == f"it ended, exit status 0; {hint}; next start in 4 s"
    assert [finding.detail for finding in said.findings] == ["hot"]


def test_a_program_that_has_run_for_long_is_started_at_once_again(listener):
    """Its earlier ends are forgotten."""
    script = listener.program("""echo $$ > "$DIR/own"; echo '{"alive": true}'; exec sleep 600""")
    listener.listen("SETTLED_SECONDS=1.0", command=[str(script)])
    for _ in range(3):
        listener.until(lambda said: said.source and not said.failed)
        time.sleep(1.5)
        os.kill(int((listener.directory / "own").read_text()), signal.SIGKILL)
        ended = listener.until(lambda said: said.failed)

    assert ended.failed == "it ended, killed by SIGKILL; next start in 1 s"


def test_what_a_program_says_just_before_it_crashes_is_shown_before_its_end(listener):
    """The scanner reads the newest version of the file only, and takes nothing from a source that has failed."""
    script = listener.program("""echo '{"reason": "hot"}'; exit 3""")
    listener.listen(command=[str(script)])

    first = listener.until(lambda said: said.source)
    ended = listener.until(lambda said: said.failed)

    assert (first.failed, [finding.detail for finding in first.findings]) == ("", ["hot"])
    assert ended.failed == "it ended, exit status 3; next start in 1 s"


def test_the_complete_report_of_a_new_process_clears_what_the_last_one_raised(listener):
    """It crashed after it had raised something that is over meanwhile."""
    script = listener.program("""\
        echo '{"complete": true}'
        [ -e "$DIR/again" ] || echo '{"reason": "hot"}'
        [ -e "$DIR/again" ] || { touch "$DIR/again"; exit 1; }
        while sleep 0.2; do echo '{"alive": true}'; done
        """)
    listener.listen(command=[str(script)])

    listener.until(lambda said: said.findings)
    listener.until_it_says()


def test_a_program_that_says_again_and_again_that_it_has_failed_is_not_silent(listener):
    """It is not ended, and its reason stays."""
    script = listener.program("""\
        echo $$ >> "$DIR/starts"
        for i in 1 2 3 4 5 6 7 8 9 10; do echo '{"failed": "no driver"}'; sleep 0.2; done
        echo '{"reason": "hot"}'
        exec sleep 600
        """)
    listener.listen(command=[str(script)], max_age=1.0)

    failing = listener.until(lambda said: said.failed)
    listener.until_it_says("hot")

    assert failing.failed == "no driver"
    assert len((listener.directory / "starts").read_text().split()) == 1


def test_a_program_of_which_no_line_can_be_used_is_ended_and_the_first_one_shown(listener):
    """Silence is another mistake."""
    listener.listen(command=[str(listener.program("while sleep 0.1; do echo 'GPU 3: 91 C'; done"))], max_age=1.0)

    said = listener.until(lambda said: said.failed)

    assert said.failed == "no valid line for 1 s: it is not JSON: GPU 3: 91 C; next start in 1 s"


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


def test_a_script_that_everybody_may_write_is_not_trusted_as_an_argument_either(listener):
    """Its interpreter is root's; what runs is the script."""
    script = listener.program("exit 0", mode=0o777)
    listener.listen(command=["/bin/sh", "-e", str(script), "/dev/null", str(listener.directory)], **PERIODIC)

    distrusted = listener.until(lambda said: said.failed)
    script.chmod(0o755)
    listener.until_it_says()

    assert distrusted.failed == f"everybody may write {script}; take that right away with `chmod o-w`"


def test_a_finding_names_the_program_with_its_arguments(listener):
    """`/bin/sh` alone says nothing."""
    listener.listen(command=["/bin/sh", "-c", "echo hot; exit 1"], **PERIODIC)

    assert listener.until_it_says("hot").findings[0].file == "/bin/sh -c 'echo hot; exit 1'"


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
        from devherd.sources.program import RunningProgram, Stderr
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(33))
        os.register_at_fork(after_in_parent=lambda: os.kill(os.getpid(), signal.SIGTERM))
        RunningProgram(["/bin/true"], Stderr())
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
