"""`make demo`: what people see first."""

import time
from pathlib import Path

from outside import devherd


def test_the_demo_plays_every_act_and_leaves_nothing_behind():
    """Exit 0, a summary, well under half a minute, nothing left in /tmp."""
    before = set(Path("/tmp").glob("devherd-demo-*"))
    start = time.monotonic()

    played = devherd("demo")

    assert (played.returncode, played.stderr) == (0, "")
    assert played.stdout.count("✓") == 8
    assert "Summary" in played.stdout
    assert time.monotonic() - start < 30
    assert set(Path("/tmp").glob("devherd-demo-*")) <= before
