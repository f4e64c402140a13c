"""What a forked child asks of the kernel, through the native module."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from devherd._native import die_with_parent, set_process_name

ORPHAN = """
import os, signal, sys, time
from devherd._native import die_with_parent
if os.fork() == 0:
    die_with_parent(signal.SIGKILL)
    print(os.getpid(), flush=True)
    time.sleep(60)
time.sleep(60)
"""


def in_a_child(work):
    """What `work()` answers in a forked child."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(writer, str(work()).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as answer:
        text = answer.read()
    os.waitpid(pid, 0)
    return text


def test_a_process_is_shown_by_its_name():
    """Cut to what the kernel keeps, between two characters."""

    def named(name):
        set_process_name(name)
        return Path("/proc/self/comm").read_text().strip()

    assert in_a_child(lambda: named("scanner")) == "scanner"
    assert in_a_child(lambda: named("resource:nvidia.com_gpu")) == "resource:nvidia"


def test_a_child_ends_with_its_parent_however_that_ends():
    """SIGKILL gives the parent no chance to tell it."""
    parent = subprocess.Popen([sys.executable, "-c", ORPHAN], stdout=subprocess.PIPE, text=True)
    child = int(parent.stdout.readline())
    parent.kill()
    parent.wait()
    parent.stdout.close()
    deadline = time.monotonic() + 30
    while Path(f"/proc/{child}/stat").exists() and state_of(child) not in "ZX":
        assert time.monotonic() < deadline, "the child outlived its parent"
        time.sleep(0.01)


def state_of(pid):
    """The letter that the kernel gives a process's state; X for one that is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "X"


def test_an_unknown_signal_is_refused():
    """And with it a name that the kernel could not keep."""
    with pytest.raises(OSError, match="no signal 1000"):
        die_with_parent(1000)
    with pytest.raises((OSError, ValueError)):
        set_process_name("a\0b")
    assert signal.SIGKILL == 9
