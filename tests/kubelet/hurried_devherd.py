"""devherd for which hours pass at once.

Usage: hurried_devherd.py FILE ARGS…. FILE holds seconds by which the policy of health is ahead of the clock. What is
asked each half minute (NVML, monitors of vendors) is asked each second.
"""

import sys
import time
from pathlib import Path
from types import SimpleNamespace

from devherd import _native
from devherd.cli import cordon
from devherd.scanner import observer

forward = Path(sys.argv[1])
restrict = _native.restrict


def ahead():
    return time.monotonic() + float(forward.read_text())


def restrict_but_for_the_clock(*, write, **access):
    return restrict(write=[*write, forward.parent], **access)


_native.restrict = restrict_but_for_the_clock
observer.time = cordon.time = SimpleNamespace(time=time.time, monotonic=ahead)

sys.path.insert(0, str(Path(__file__).parents[1]))
from hurried import main  # noqa: E402 - after the clock is ahead

sys.exit(main(sys.argv[2:], nvml_look=1.0, monitor_look=1.0))
