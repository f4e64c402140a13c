"""`make demo`: what people see first."""

import os
import subprocess
import sys
import time
from pathlib import Path

from devherd_sim.demo import PORT

LATE_WRITES = Path(__file__).parents[1] / "late_writes"


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


def test_the_demo_names_the_reason_where_the_kubelet_knows_it_before_the_offers_do():
    """What a child reads is written first; on a busy machine the demo said `Unhealthy` without a reason."""
    command = [sys.executable, "-m", "devherd", "demo"]
    env = os.environ | {"PYTHONPATH": str(LATE_WRITES), "DEVHERD_TEST_LATE": "*/offers.pb"}

    printed = subprocess.run(command, env=env, stdout=subprocess.PIPE, text=True, timeout=60, check=True).stdout

    assert f"the kubelet sees {PORT} Unhealthy: port-error" in printed
    assert "the kubelet sees the GPU Unhealthy: xid" in printed
