"""What benches/processes.py measures of a process."""

import os
import subprocess
import sys

import pytest
from not_tested import not_tested
from processes import children, cpu_seconds, memory_of

WORK = """
import sys, threading, time

def work():
    until = time.thread_time() + 0.3
    while time.thread_time() < until:
        pass

{started}
print("done", flush=True)
sys.stdin.read()
"""
IN_A_THREAD = WORK.format(started="thread = threading.Thread(target=work); thread.start(); thread.join()")
IN_A_CHILD = WORK.format(started="import os\nif os.fork() == 0:\n    work()\n    os._exit(0)\nos.wait()")
MEBIBYTE = 1 << 20
SHARED = """
import os, signal, sys
pages = bytearray(os.urandom(32 << 20))
asleep, sleeps = os.pipe()
for _ in range(2):
    if os.fork() == 0:
        own = bytearray(os.urandom(8 << 20))
        os.write(sleeps, b".")
        signal.pause()
    os.read(asleep, 1)
print("done", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def process(request):
    """A process that has done what the parameter says, and waits."""
    command = [sys.executable, "-c", request.param]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True) as started:
        assert started.stdout.readline() == b"done\n"
        yield started.pid
        os.killpg(started.pid, 9)


@pytest.mark.parametrize("process", [IN_A_THREAD], indirect=True)
def test_the_time_of_a_thread_that_has_ended_is_counted(process):
    """Defect: the time was that of the threads that live, and the scanner's workers end: a tenth of it was seen."""
    assert cpu_seconds(process) >= 0.3


@pytest.mark.parametrize("process", [IN_A_CHILD], indirect=True)
def test_the_time_of_a_child_that_was_waited_for_is_counted(process):
    """In ticks of 10 ms."""
    assert cpu_seconds(process) >= 0.29


@pytest.mark.parametrize("process", [SHARED], indirect=True)
def test_a_page_is_shared_by_the_processes_that_are_measured_alone(process):
    """Others that have it too, such as this interpreter or a plugin's parent, make no share smaller."""
    if os.geteuid() != 0:
        not_tested("only root sees page frames")

    family, [alone] = memory_of([process, *children(process)]), memory_of([process])

    assert sum(one.total for one in family) > 48 * MEBIBYTE
    assert sum(one.anonymous for one in family) < 60 * MEBIBYTE
    assert [one.own > 8 * MEBIBYTE for one in family] == [False, True, True]
    assert alone.own == pytest.approx(alone.total)
    assert alone.anonymous > 32 * MEBIBYTE > family[0].anonymous > 10 * MEBIBYTE
