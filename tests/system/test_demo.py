"""`make demo`: what people see first."""

import subprocess
import sys
import time
from pathlib import Path


def test_the_demo_plays_every_act_and_leaves_nothing_behind():
    """Exit 0, a summary, well under half a minute, nothing left in /tmp, where another may be played meanwhile."""
    start = time.monotonic()

    command = [sys.executable, "-m", "devherd", "demo"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as played:
        printed, complaints = played.communicate(timeout=60)

    assert (played.returncode, complaints) == (0, "")
    assert printed.count("✓") == 8
    assert "Summary" in printed
    assert time.monotonic() - start < 30
    assert list(Path("/tmp").glob(f"devherd-demo-{played.pid}-*")) == []
