"""A program of the operator that goes on running: what process `source:external-<name>` writes for the scanner."""

import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest
from external_listener import children, cpu_seconds, gone, is_running

from devherd.proto import health_pb2


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
    assert hot.report_errors == ["a line is ignored, and others like it: it is not JSON: nonsense"]


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


def test_a_program_that_floods_for_long_is_ended_and_started_later_each_time(listener):
    """Its lines say nothing new; the node's processors are there for others."""
    script = listener.program("""echo $$ >> "$DIR/starts"; exec yes '{"alive": true}'""")
    listener.listen(waits={"program_flood": 1.5}, command=[str(script)])

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
    listener.listen(waits={"program_steady": 1.0}, command=[str(script)])
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


def test_another_request_asks_for_another_process_and_the_program_ends_with_this_one(listener):
    """A reload changes what is asked; exit code 75 has the supervisor start it anew at once."""
    script = listener.program('echo $$ > "$DIR/own"; echo \'{"alive": true}\'; exec sleep 600')
    listener.listen(command=[str(script)])
    listener.until(lambda said: said.source)

    listener.order(command=[str(script)], max_age=30.0)

    assert listener._process.wait(20) == 75
    gone(listener.directory / "own")


def test_a_wish_to_end_is_not_lost_while_a_program_is_started(tmp_path):
    """SIGTERM comes in the middle of the fork, where Python drops what a handler raises."""
    code = """
        import os, signal, sys
        from devherd import signals
        from devherd.sources.program import ProgramStderr, RunningProgram
        signals.remember()
        os.register_at_fork(after_in_parent=lambda: os.kill(os.getpid(), signal.SIGTERM))
        RunningProgram(["/bin/true"], ProgramStderr())
        sys.exit(33 if signals.is_to_end() else 1)
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
