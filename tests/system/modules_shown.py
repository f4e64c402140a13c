"""`devherd` whose processes say on SIGURG what they have imported: in MODULES_DIR, a file for each process id."""

import os
import signal
import sys
from pathlib import Path
from typing import Any

from devherd import _native
from devherd.cli import main

MODULES_DIR = Path(os.environ["MODULES_DIR"])
restrict = _native.restrict


def restrict_with_a_place_to_say_it(*, write: list[Path], **access: Any) -> list[str]:
    """What is said lies beside what a child may touch."""
    return restrict(write=[*write, MODULES_DIR], **access)


def show(*_: object) -> None:
    """Leave the names of all modules, one a line."""
    path = MODULES_DIR / str(os.getpid())
    path.with_suffix(".new").write_text("\n".join(sys.modules))
    path.with_suffix(".new").rename(path)


if __name__ == "__main__":
    _native.restrict = restrict_with_a_place_to_say_it
    signal.signal(signal.SIGURG, show)
    sys.exit(main())
