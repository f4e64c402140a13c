"""SIGTERM and SIGINT while an instance starts, at any moment: it ends with 0 and leaves nothing behind."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from instance import PATIENCE_SECONDS, until

from devherd_sim.node.presets import preset
from devherd_sim.node.simulated_node import SimulatedNode

SIGTERMS, SIGINTS = 24, 8
STEADY_LOOKS = 20
CLEAN = (0, "", [])
"""Exit code, what is wrong on stderr, sockets that are left."""


def answers(process, number):
    """Whether the process has a handler for the signal."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    [caught] = [line.split()[1] for line in status.splitlines() if line.startswith("SigCgt:")]
    return bool(int(caught, 16) >> (number - 1) & 1)


def state_of(pid):
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def of_session(leader):
    """The processes that are left of what a process has started."""
    left = []
    for stat in Path("/proc").glob("[0-9]*"):
        try:
            state, _parent, _group, session, *_ = state_of(stat.name)
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(session) == leader and state not in "ZX":
            left.append(int(stat.name))
    return left


class Start:
    """`devherd run` on a simulated node of two FPGA cards, with directories of its own."""

    def __init__(self, directory: Path, node: Path) -> None:
        self.run_dir, self.kubelet_dir = directory / "run", directory / "kubelet"
        (self.kubelet_dir / "device-plugins").mkdir(parents=True)
        options = {"host-root": node, "run-dir": self.run_dir, "kubelet-dir": self.kubelet_dir, "listen": "127.0.0.1:0"}
        command = [sys.executable, "-m", "devherd", "run", *(f"--{name}={value}" for name, value in options.items())]
        self._stderr = directory / "stderr"
        with self._stderr.open("wb") as stderr:
            self.process = subprocess.Popen(command, stderr=stderr, start_new_session=True)

    def is_up(self) -> bool:
        """Whether its children are there."""
        return (self.run_dir / "children.pb").exists()

    def ended(self) -> tuple[int, str, list[str]]:
        """How it ended, as CLEAN, once nothing of it runs any more."""
        code = self.process.wait(PATIENCE_SECONDS)
        until(lambda: not of_session(self.process.pid), "the end of all processes")
        said = self._stderr.read_text()
        sockets = [path.name for place in (self.run_dir, self.kubelet_dir) for path in place.rglob("*")]
        return (
            code,
            said if "Traceback" in said or "crashed" in said else "",
            [name for name in sockets if name.endswith(".sock")],
        )


@pytest.fixture
def started(directory):
    """Makes starts, all of which have ended after the test."""
    node = SimulatedNode.create(directory / "node", preset("fpga-opae-2")).root
    starts = []

    def start():
        starts.append(Start(directory / str(len(starts)), node))
        return starts[-1]

    yield start
    for each in starts:
        each.process.kill()
        each.process.wait()
        until(lambda pid=each.process.pid: not of_session(pid), "the end of all processes")


def seconds_of(start):
    """How long a start takes."""
    began = time.monotonic()
    until(start.is_up, "a herd")
    seconds = time.monotonic() - began
    start.process.terminate()
    assert start.ended() == CLEAN
    return seconds


@pytest.mark.timeout(400)  # as many starts as that take their time on a busy machine
def test_sigterm_at_any_moment_of_a_start_ends_it_cleanly(started):
    """Defect: its handler raised SystemExit into the import of C extensions: one start in fifty ended by SIGSEGV."""
    whole = seconds_of(started())
    ends, expected = {}, {}
    for part in range(SIGTERMS):
        start = started()
        time.sleep(whole * part / SIGTERMS)
        is_answered = answers(start.process, signal.SIGTERM)
        start.process.terminate()
        ends[part] = start.ended()
        expected[part] = CLEAN
        if not is_answered and ends[part][0] == -signal.SIGTERM:
            expected[part] = (-signal.SIGTERM, *CLEAN[1:])  # Python had not come to the handler yet
    assert ends == expected


def test_ctrl_c_at_any_moment_of_a_start_ends_it_cleanly(started):
    """The terminal sends it to the first scan as well, whose end is no error then."""
    whole = seconds_of(started())
    ends = {}
    for part in range(SIGINTS):
        start = started()
        until(lambda start=start: answers(start.process, signal.SIGTERM), "the handler")
        time.sleep(whole * part / SIGINTS)
        os.killpg(start.process.pid, signal.SIGINT)
        ends[part] = start.ended()
    assert ends == dict.fromkeys(range(SIGINTS), CLEAN)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_while_the_supervisor_imports_raises_nothing_there_and_ends_the_start(instance, number):
    """Defect: what the handler raised was lost or crashed. The herd gets no children."""
    instance.order(f"{number.name.lower()}-while-importing")
    instance.start()
    assert instance.ended() == 0
    assert "the import goes on" in instance.stderr()
    assert instance.children() == {}


def waits(pid):
    """Whether a process sleeps, for long enough to be no longer busy with its start."""
    for _ in range(STEADY_LOOKS):
        if state_of(pid)[0] != "S":
            return False
        time.sleep(0.01)
    return True


@pytest.mark.parametrize(("order", "said"), [("slow-load", "loads"), ("slow-scan", "scans")])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_wait_for_the_first_scan_at_once(instance, order, said, number):
    """While it reads the configuration, and while it scans: neither is waited for."""
    instance.order(order)
    instance.start()
    until(lambda: f"the first scan {said}\n" in instance.stderr(), "the first scan")
    until(lambda: waits(instance.process.pid), "the wait for it")
    os.kill(instance.process.pid, number)
    assert instance.ended() == 0
    assert instance.stderr() == f"the first scan {said}\n"
    assert instance.children() == {}
