"""A call of NVML behind the fence: its answer, its error, its deadline, and a signal that comes meanwhile."""

import subprocess
import sys
import time

PROGRAM = """
import os, signal, sys, threading, time
from devherd._native import Hangs, answered

def ended(*_):
    sys.exit(7)

signal.signal(signal.SIGTERM, ended)
beats = []
assert answered(lambda: time.sleep(0.5) or 42, 60, lambda: beats.append(1)) == 42
assert len(beats) >= 2, beats
try:
    answered(lambda: 1 / 0, 60, lambda: None)
except ZeroDivisionError:
    print("error", flush=True)
if sys.argv[1] == "hangs":
    try:
        answered(lambda: time.sleep(600), 0.2, lambda: None)
    except Hangs as hangs:
        print(os.path.exists(f"/proc/self/task/{hangs.args[0]}"), flush=True)
        os._exit(0)
threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGTERM)).start()
try:
    answered(lambda: time.sleep(600), 600, lambda: None)
except SystemExit as error:
    print("ended", flush=True)
    os._exit(error.code)
"""


def ran(how: str) -> tuple[int, list[str]]:
    """The exit code of the program and its words."""
    command = [sys.executable, "-c", PROGRAM, how]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.stderr == ""
    return done.returncode, done.stdout.split()


def test_a_call_that_does_not_come_back_is_given_up_at_its_deadline():
    """The error has the thread, which is still there; what returned or raised before was passed on."""
    assert ran("hangs") == (0, ["error", "True"])


def test_a_signal_ends_a_call_that_hangs_at_once():
    """A supervisor that stops must not wait until the deadline."""
    began = time.monotonic()
    assert ran("is ended") == (7, ["error", "ended"])
    assert time.monotonic() - began < 60
