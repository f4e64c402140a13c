"""The first scan, when the supervisor ends before it is ready."""

import subprocess
import sys

ENDS_EARLY = """
import time
from devherd.config.resolved import ResolvedConfig
from devherd.settings import Settings
from devherd.supervisor.first_scan import FirstScan
from devherd.supervisor.programs import Programs

def load(_running):
    time.sleep(0.3)
    return ResolvedConfig(common=Settings())

first_scan = FirstScan(load, Programs((), lambda config: None, lambda: None))
first_scan.close()
print(first_scan.exit_code())
"""


def test_a_start_that_is_broken_off_leaves_no_traceback():
    """SIGTERM in the first moments: the answer finds nobody, and that is no crash.

    With -X dev each Python tells of a file whose content could not be written, as 3.13 always does.
    """
    command = [sys.executable, "-X", "dev", "-c", ENDS_EARLY]

    ended = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)

    assert (ended.stdout, ended.stderr) == ("0\n", "")


SLOW_REHEARSAL = """
import os, signal, time
from devherd.config.resolved import ResolvedConfig
from devherd.settings import Settings
from devherd.supervisor.first_scan import FirstScan
from devherd.supervisor.programs import Programs

programs = Programs((), lambda config: time.sleep(600), lambda: None, rehearse=lambda config: time.sleep(1))
first_scan = FirstScan(lambda _running: ResolvedConfig(common=Settings()), programs)
assert first_scan.config() is not None
first_scan.rehearse()
assert not first_scan.rehearsed(0.1)
first_scan.begin()
first_scan.wait(3.0)
print(signal.Signals(os.WTERMSIG(os.wait()[1])).name)
"""


def test_the_scan_after_a_rehearsal_that_took_long_is_broken_off_all_the_same():
    """Defect: the late end of the rehearsal was taken for that of the scan, which was waited for without a limit."""
    ended = subprocess.run(
        [sys.executable, "-c", SLOW_REHEARSAL], capture_output=True, text=True, timeout=60, check=False
    )

    assert ended.stdout == "SIGKILL\n", ended.stderr
