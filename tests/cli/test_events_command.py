"""`devherd events`: the history of an instance, past and as it goes on."""

import json
import subprocess
import time

import pytest
from command_line import COMMAND, devherd

from devherd.history import History

NAME = "example.com/gpu"


@pytest.fixture
def run_dir(tmp_path):
    """The run directory of an instance that no longer runs, with events of two processes."""
    scanner, child = History(tmp_path / "history", "scanner"), History(tmp_path / "history", "resource:example.com_gpu")
    child.note("registered", "registered with the kubelet: 2 devices (5 ms)", resource_name=NAME)
    child.keep()
    time.sleep(0.002)
    scanner.note(
        "verdict",
        "Unhealthy: xid: /dev/kmsg: 48",
        resource_name=NAME,
        device_id="GPU-0",
        reasons=("xid",),
        details={"health": "Unhealthy", "file": "/dev/kmsg"},
    )
    scanner.keep()
    return tmp_path


def test_a_line_says_when_what_and_about_which_device(run_dir):
    """Of all processes, in order; also of an instance that has ended."""
    outcome = devherd("events", "--run-dir", run_dir)

    assert (outcome.code, outcome.stderr) == (0, "")
    lines = [line.split(maxsplit=2) for line in outcome.stdout.splitlines()]
    assert [words[1:] for words in lines] == [
        ["registered", f"{NAME}: registered with the kubelet: 2 devices (5 ms)"],
        ["verdict", f"{NAME} GPU-0: Unhealthy: xid: /dev/kmsg: 48"],
    ]
    assert all(len(words[0]) == len("2026-11-22T18:00:00.123Z") and words[0].endswith("Z") for words in lines)


def test_json_has_every_key_in_every_object(run_dir):
    """One object a line, for programs."""
    lines = devherd("events", "--output", "json", "--run-dir", run_dir).stdout.splitlines()
    registered, verdict = map(json.loads, lines)

    assert list(registered) == list(verdict)
    assert registered["device_id"] is None
    assert {name: verdict[name] for name in verdict if name != "time"} == {
        "kind": "verdict",
        "message": "Unhealthy: xid: /dev/kmsg: 48",
        "resource_name": NAME,
        "device_id": "GPU-0",
        "reasons": ["xid"],
        "process": "scanner",
        "details": {"health": "Unhealthy", "file": "/dev/kmsg"},
    }


@pytest.mark.parametrize(
    ("options", "count"),
    [
        (("--kind", "verdict"), 1),
        (("--kind", "verdict", "--kind", "registered"), 2),
        (("--resource", "example.com/other"), 0),
        (("--limit", "1"), 1),
        (("--limit", "0"), 2),
        (("--since", "1h"), 2),
        (("--since", "0s"), 0),
        (("--since", "2d"), 2),
        (("--since", "2001-01-01T00:00:00Z"), 2),
        (("--since", "2101-01-01"), 0),
    ],
)
def test_events_can_be_chosen(run_dir, options, count):
    """By kind, resource, number and time."""
    assert len(devherd("events", *options, "--run-dir", run_dir).stdout.splitlines()) == count


def test_follow_prints_what_happens_from_then_on_once(run_dir):
    """After what has happened before."""
    command = [*COMMAND, "events", "--follow", "--kind", "problem", "--kind", "verdict", "--run-dir", str(run_dir)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as following:
        assert following.stdout is not None
        assert "Unhealthy: xid" in following.stdout.readline()
        later = History(run_dir / "history", "supervisor")
        later.note("process", "not asked for")
        later.note("problem", "asked for")
        later.keep()
        assert following.stdout.readline().endswith("problem       asked for\n")
        following.terminate()
        assert following.stdout.read() == ""


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (("--since", "yesterday"), "`--since yesterday` is not a time"),
        (("--limit", "-1"), "`--limit -1` is not a number of events"),
        (("--kind", "verdicts"), "did you mean `verdict`?"),
    ],
)
def test_a_wrong_option_is_an_error_with_the_right_form(run_dir, options, complaint):
    """No traceback, and nothing is printed."""
    outcome = devherd("events", *options, "--run-dir", run_dir)

    assert outcome.code == 2
    assert complaint in outcome.error_line


def test_where_no_instance_has_run_it_exits_with_4(tmp_path):
    """As every command that asks an instance."""
    outcome = devherd("events", "--run-dir", tmp_path)

    assert outcome.code == 4
    assert f"no instance has left a history in {tmp_path}" in outcome.error_line
