"""The first scan, when the supervisor ends before it is ready."""

import subprocess
import sys

ENDS_EARLY = """
import time
from devherd.config.resolved import Config
from devherd.settings import Settings
from devherd.supervisor.first_scan import FirstScan

def load():
    time.sleep(0.3)
    return Config(common=Settings())

first_scan = FirstScan(load, lambda config: None, lambda config: None)
first_scan.close()
print(first_scan.exit_code())
"""


def test_a_start_that_is_broken_off_leaves_no_traceback():
    """SIGTERM in the first moments: the answer finds nobody, and that is no crash."""
    ended = subprocess.run([sys.executable, "-c", ENDS_EARLY], capture_output=True, text=True, timeout=30, check=False)

    assert (ended.stdout, ended.stderr) == ("0\n", "")
