"""PreStartContainer by the rules of a configuration, beside the kubelet's own device manager."""

import os
import signal
import stat
import subprocess
import sys
import textwrap
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from not_tested import not_tested
from real_kubelet import Container, pod
from resource_child import eventually

from devherd import spool
from devherd.history import events
from devherd.proto import spool_pb2
from devherd_sim.node import faults

LEVER = "example.com/lever"
FPGA = "fpga.intel.com/af-695.d84.aVKNtusxV3qMNmj5-qCB9thCTcSko8QT-J5DNoP5BAs"
QUICK = {"health": {"poll": "100ms", "recover_after": 2}, "scan": {"period": "500ms"}}
REFUSED = "device plugin PreStartContainer rpc failed with err: rpc error: code = FailedPrecondition desc = "


def levers(**pre_start):
    """A configuration with a generic device that has a node, and these rules."""
    generic = [{"name": LEVER, "groups": [{"paths": [{"path": "/dev/lever"}]}]}]
    return QUICK | {"generic": generic, "resources": [{"match": {"vendor": "generic"}, "pre_start": pre_start}]}


@pytest.fixture
def program(directory):
    """Writes a program and returns its path; one that was written is replaced."""

    def write(body):
        path = directory / "reset"
        beside = path.with_suffix(".new")
        beside.write_text("#!/bin/sh\n" + textwrap.dedent(body))
        beside.chmod(0o755)
        beside.rename(path)
        return [str(path)]

    return write


@contextmanager
def terminal(herd_node):
    """The lever's node as a device that nobody else has: a terminal of the test's own. Yields its path."""
    if os.geteuid() != 0:
        not_tested("only root makes device nodes")
    master, slave = os.openpty()
    try:
        path = herd_node.directory / "node/dev/lever"
        path.unlink(missing_ok=True)
        os.mknod(path, stat.S_IFCHR | 0o600, os.fstat(slave).st_rdev)
        name = os.ttyname(slave)
        os.close(slave)
        yield name
    finally:
        os.close(master)


@contextmanager
def holding(terminal_name):
    """A process that has it open, and nothing to do with devherd."""
    with Path(terminal_name).open("rb+", buffering=0) as node:
        process = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"], stdin=node)
    try:
        eventually(lambda: Path(f"/proc/{process.pid}/comm").read_text().startswith("python"))
        yield process
    finally:
        process.kill()
        process.wait()


def children(herd_node):
    """The names of devherd's processes."""
    return {child.name for child in spool.read(herd_node.directory / "run/children.pb", spool_pb2.Children).children}


def pid_of_pre_start(herd_node):
    """0 while the supervisor has told of none, or of one that has ended."""
    known = spool.read(herd_node.directory / "run/children.pb", spool_pb2.Children).children
    [pid] = [child.pid for child in known if child.name == "pre-start"]
    return pid if Path(f"/proc/{pid}").exists() else 0


def is_looked_at(herd_node):
    """Whether process pre-start has a process of its own for a start."""
    pid = pid_of_pre_start(herd_node)
    return pid and Path(f"/proc/{pid}/task/{pid}/children").read_text()


def start(herd_node, config, preset="generic", resource=LEVER):
    """The node with one device; its pod `a`, admitted but for what stops its container."""
    herd_node.prepare(preset, config)
    if resource == LEVER:
        (herd_node.directory / "node/dev").mkdir(exist_ok=True)
        (herd_node.directory / "node/dev/lever").touch()
    herd_node.kubelet.start()
    herd_node.start_herd()
    herd_node.until_capacity(resource, 1, 1)
    eventually(lambda: herd_node.is_registered(resource))


def run_again(herd_node, resource=LEVER):
    """What becomes of another start of the container of pod `a`."""
    return Container(**herd_node.kubelet.ask("run", pod=pod("a", {resource: 1}))["main"])


def history(herd_node):
    """The messages of allocations."""
    return [event.message for event in events(herd_node.directory / "run", kinds={"allocation"})]


def test_without_the_key_no_process_runs_and_the_kubelet_is_not_asked_to_call(herd_node):
    """Off by default."""
    start(herd_node, QUICK | {"generic": levers()["generic"]})
    assert herd_node.kubelet.admit(pod("a", {LEVER: 1})).main.error == ""
    assert "pre-start" not in children(herd_node)
    assert "PreStartContainer" not in herd_node.kubelet.log.read_text()


def test_a_container_starts_after_a_program_that_ends_with_0(herd_node, program):
    """It knows the devices, and what it has printed is in the history."""
    command = program('echo "$DEVHERD_RESOURCE_NAME $DEVHERD_DEVICE_IDS $DEVHERD_NODES lives"')
    start(herd_node, levers(program=command))
    main = herd_node.kubelet.admit(pod("a", {LEVER: 1})).main
    assert (main.error, main.paths) == ("", ["/dev/lever"])
    (device_id,) = main.device_ids[LEVER]
    expected = f"before the start: {command[0]} ended with 0: {LEVER} {device_id} /dev/lever lives"
    eventually(lambda: expected in history(herd_node))
    assert "pre-start" in children(herd_node)


def test_a_container_does_not_start_while_a_program_fails_and_starts_when_it_does_not(herd_node, program):
    """The pod's event shows exit status and output; the kubelet tries again, and the pod keeps its device."""
    command = program("echo no answer from the lever; exit 3")
    start(herd_node, levers(program=command))
    admitted = herd_node.kubelet.admit(pod("a", {LEVER: 1}))
    refusal = f"{command[0]}: exit status 3: no answer from the lever"
    assert admitted.admitted
    assert admitted.main.error == REFUSED + refusal
    eventually(lambda: f"start refused: {refusal}" in history(herd_node))
    program("exit 0")
    assert run_again(herd_node).error == ""


def test_a_program_that_hangs_is_ended_with_all_that_it_has_started(herd_node, program):
    """The kubelet gets its answer before its own deadline, and nothing is left."""
    left = herd_node.directory / "left"
    command = program(f"setsid sleep 1000 & echo $! > {left}; trap '' TERM; echo tried; while true; do sleep 1; done")
    start(herd_node, levers(program=command, timeout="1s"))
    began = time.monotonic()
    assert herd_node.kubelet.admit(pod("a", {LEVER: 1})).main.error == (
        f"{REFUSED}{command[0]} took longer than 1 s: tried"
    )
    assert time.monotonic() - began < 20
    eventually(lambda: not Path(f"/proc/{left.read_text().strip()}").exists())
    program("exit 0")
    assert run_again(herd_node).error == ""


def test_what_a_program_has_started_ends_also_when_its_process_is_killed(herd_node, program):
    """The supervisor finds it, starts another process, and the next start is answered."""
    left = herd_node.directory / "left"
    command = program(f"setsid sleep 1000 & echo $! > {left}.new; mv {left}.new {left}; sleep 1000")
    start(herd_node, levers(program=command, timeout="20s"))
    answer = herd_node.kubelet.send("admit", pod=pod("a", {LEVER: 1}))
    eventually(left.exists)
    os.kill(eventually(lambda: pid_of_pre_start(herd_node)), signal.SIGKILL)
    assert "process pre-start cannot be asked" in answer.result(30)["containers"]["main"]["error"]
    eventually(lambda: not Path(f"/proc/{left.read_text().strip()}").exists())
    program("exit 0")
    eventually(lambda: run_again(herd_node).error == "")


def test_a_container_does_not_start_while_a_process_has_its_device_open(herd_node):
    """The error names process and node; it starts once that has ended."""
    start(herd_node, levers(occupied="refuse"))
    with terminal(herd_node) as name, holding(name) as process:
        error = herd_node.kubelet.admit(pod("a", {LEVER: 1})).main.error
        command = Path(f"/proc/{process.pid}/comm").read_text().strip()
        assert error.startswith(f"{REFUSED}device ")
        assert error.endswith(f" is in use: process {process.pid} ({command}) has /dev/lever open")
        process.kill()
        process.wait()
        assert run_again(herd_node).error == ""


def test_a_process_that_the_ledger_ignores_occupies_nothing(herd_node):
    """Monitors may keep a device open."""
    start(herd_node, levers(occupied="refuse") | {"ledger": {"ignore": ["pyth*"]}})
    with terminal(herd_node) as name, holding(name):
        assert herd_node.kubelet.admit(pod("a", {LEVER: 1})).main.error == ""


def test_a_container_that_waits_starts_as_soon_as_its_device_is_free(herd_node):
    """No error, no back-off of the kubelet."""
    start(herd_node, levers(occupied="wait"))
    with terminal(herd_node) as name, holding(name) as process:
        answer = herd_node.kubelet.send("admit", pod=pod("a", {LEVER: 1}))
        eventually(lambda: is_looked_at(herd_node))
        time.sleep(1)
        assert not answer.done()
        process.kill()
        process.wait()
        assert answer.result(30)["containers"]["main"]["error"] == ""
    eventually(lambda: any(text.startswith("before the start: waited ") for text in history(herd_node)))


def test_a_container_that_waits_in_vain_does_not_start(herd_node, program):
    """25 s less the time of the program, so that the kubelet is answered in time."""
    start(herd_node, levers(occupied="wait", program=program("exit 0"), timeout="24s"))
    with terminal(herd_node) as name, holding(name) as process:
        error = herd_node.kubelet.admit(pod("a", {LEVER: 1})).main.error
        assert f"is in use: process {process.pid} (" in error


def test_a_region_of_an_fpga_that_is_being_programmed_is_not_given_to_a_container(herd_node):
    """By what the scanner knows; it starts once the region is operating."""
    rules = {"resources": [{"match": {"vendor": "intel_fpga"}, "pre_start": {"unhealthy": "refuse"}}]}
    start(herd_node, QUICK | rules, "fpga-1", FPGA)
    assert herd_node.kubelet.admit(pod("a", {FPGA: 1})).main.error == ""
    manager = herd_node.node.path_of("dfl-fme.0") / "dfl-fme-mgr.0/fpga_manager/fpga0/state"
    manager.write_text("write\n")
    herd_node.until_capacity(FPGA, 1, 0)
    eventually(lambda: "is unhealthy: unprogrammed" in run_again(herd_node, FPGA).error)
    manager.write_text("operating\n")
    herd_node.until_capacity(FPGA, 1, 1)
    eventually(lambda: run_again(herd_node, FPGA).error == "")


def test_a_program_for_suspects_runs_for_a_device_that_has_had_a_finding_until_it_ends_with_0(herd_node, program):
    """Before the finding it does not run, after its success neither."""
    command = program("echo broken; exit 1")
    rule = {"match": {"vendor": "intel_fpga"}, "pre_start": {"program": command, "when": "suspect"}}
    start(herd_node, QUICK | {"resources": [rule]}, "fpga-1", FPGA)
    assert herd_node.kubelet.admit(pod("a", {FPGA: 1})).main.error == ""
    faults.inject(herd_node.node, "fpga-errors", "dfl-port.0")
    herd_node.until_capacity(FPGA, 1, 0)
    eventually((herd_node.directory / "run/pre-start/suspects.json").exists)
    faults.clear(herd_node.node, "fpga-errors", "dfl-port.0")
    herd_node.until_capacity(FPGA, 1, 1)
    assert run_again(herd_node, FPGA).error.endswith("exit status 1: broken")
    program("exit 0")
    assert run_again(herd_node, FPGA).error == ""
    program("exit 1")
    eventually(lambda: run_again(herd_node, FPGA).error == "")


def test_it_ends_at_once_when_it_is_told_to_while_starts_are_being_answered(herd_node, program):
    """SIGTERM in the middle of a fork was lost: the supervisor had to kill it after 5 s."""
    start(herd_node, levers(program=program("exit 0")))
    assert herd_node.kubelet.admit(pod("a", {LEVER: 1})).main.error == ""
    for _ in range(4):
        answers = [herd_node.kubelet.send("run", pod=pod("a", {LEVER: 1})) for _ in range(3)]
        pid = eventually(lambda: pid_of_pre_start(herd_node))
        os.kill(pid, signal.SIGTERM)
        eventually(lambda pid=pid: not Path(f"/proc/{pid}").exists(), 4)
        for answer in answers:
            answer.result(30)
    assert "did not stop" not in herd_node.log
