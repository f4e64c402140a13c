"""devherd, with a clock that can be set under it and exceptions that can be thrown into it.

Usage: rigged_devherd.py DIRECTORY ARGS…. The file `clock` in DIRECTORY/rig, when it is there, holds seconds by which
the wall clock is off. A file `raise-NAME` makes the next turn of the child of that name raise; the file is used up.
"""

import sys
import time
from pathlib import Path

from devherd import _native
from devherd.process import Child

directory = Path(sys.argv[1]) / "rig"
directory.mkdir(exist_ok=True)
clock = directory / "clock"
right_time, beat, restrict = time.time, Child.beat, _native.restrict


def wrong_time():
    if sys._getframe(1).f_globals.get("__name__", "").startswith("grpc"):
        return right_time()  # it hands deadlines to its C core, whose clock is not rigged
    try:
        return right_time() + float(clock.read_text())
    except (OSError, ValueError):
        return right_time()


def beat_or_raise(self, rest_seconds=0):
    """Every child beats in its main loop: what is raised here is raised in its midst."""
    order = directory / f"raise-{self.name}"
    if order.exists():
        order.unlink()
        raise RuntimeError("thrown by a test")
    beat(self, rest_seconds)


def restrict_to_the_rig_too(*, write, **access):
    """The orders are beside what a child may touch."""
    return restrict(write=[*write, directory], **access)


time.time = wrong_time
_native.restrict = restrict_to_the_rig_too
Child.beat = beat_or_raise

from devherd.cli import main  # noqa: E402 - after the clock is rigged, for those who import `time` by name

sys.exit(main(sys.argv[2:]))
