"""A program of the operator that runs at intervals: what process `source:external-<name>` writes for the scanner."""

import json
import re

import pytest
from external_listener import PERIODIC, children, gone, is_running

from devherd import spool
from devherd.proto import health_pb2


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
    assert re.fullmatch(named, said.report_errors[0]), said.report_errors
    assert children(listener.pid) == []
    assert not is_running(listener.directory / "daemon")


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


def test_a_finding_names_the_program_with_its_arguments(listener):
    """`/bin/sh` alone says nothing."""
    listener.listen(command=["/bin/sh", "-c", "echo hot; exit 1"], **PERIODIC)

    assert listener.until_it_says("hot").findings[0].file == "/bin/sh -c 'echo hot; exit 1'"


def test_a_program_that_is_not_there_is_tried_again(listener):
    """It may be installed later."""
    path = listener.directory / "check"
    listener.listen(command=[str(path)], **PERIODIC)
    missing = listener.until(lambda said: said.failed)
    listener.program("exit 0")
    listener.until_it_says()

    assert missing.failed == f"{path} cannot be started: No such file or directory"
