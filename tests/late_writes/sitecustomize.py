"""Makes devherd's processes write late: a test that depends on who wins a race fails with this each time.

    DEVHERD_TEST_LATE='*/offers.pb' PYTHONPATH=$PWD/tests/late_writes .venv/bin/pytest --rest tests/system

Python imports this file at its start. DEVHERD_TEST_LATE has globs of files, with commas between them: each file that
is renamed into such a place, or opened there to append to it, comes half a second late. `fork` makes forked processes
wait as long before they begin. The tests' own processes stay as they are.
"""

import fnmatch
import os
import sys
import time

LATE = os.environ.get("DEVHERD_TEST_LATE", "").split(",")
SECONDS = 0.5
_OF_PYTEST = "pytest", "sys.stdin.readline"
"""Words of the command lines of pytest and of the workers of pytest-xdist."""


def wait_if_late(path):
    if any(fnmatch.fnmatch(os.fspath(path), glob) for glob in LATE):
        time.sleep(SECONDS)


def rename(source, target, *, whole=os.rename, **places):
    wait_if_late(target)
    whole(source, target, **places)


def opened(path, flags, *arguments, whole=os.open, **options):
    if flags & os.O_APPEND:
        wait_if_late(path)
    return whole(path, flags, *arguments, **options)


def fork(whole=os.fork):
    child = whole()
    if child == 0 and "fork" in LATE:
        time.sleep(SECONDS)
    return child


if not any(word in argument for argument in sys.orig_argv for word in _OF_PYTEST):
    os.rename, os.open, os.fork = rename, opened, fork
