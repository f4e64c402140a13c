"""The mounts of a process: which of them a path is in, whether it may be written, and whether its source was removed.

proc(5), `/proc/PID/mountinfo`. The kernel marks a mount whose root was removed, as a bind mount's can be.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

_ESCAPE = re.compile(r"\\([0-7]{3})")  # space, tab, line feed, backslash and # of a path
_REMOVED = "//deleted"  # appended by the kernel to the path of what has no name any more (fs/d_path.c)


@dataclass(frozen=True, slots=True)
class Mount:
    """One line of the table."""

    point: Path
    is_writable: bool
    """False if the mount, or its file system, is read-only."""
    is_removed: bool
    """True if what was bound here has been removed from its own place: a new directory there is not seen here."""


def mounts_of(pid: int | str = "self") -> list[Mount]:
    """The mounts that a process sees, as `point` names them. Raises OSError if the process has ended."""
    table = Path(f"/proc/{pid}/mountinfo").read_text("utf-8", errors="surrogateescape")
    return [_mount(line) for line in table.splitlines()]


def mount_at(path: Path, mounts: Iterable[Mount]) -> Mount | None:
    """The mount that an absolute path without links is in; of several at one point the last is seen."""
    around = [mount for mount in mounts if path.is_relative_to(mount.point)]
    return max(enumerate(around), key=lambda each: (len(each[1].point.parts), each[0]))[1] if around else None


def _mount(line: str) -> Mount:
    before, _, after = line.partition(" - ")
    root, point, options = before.split(" ")[3:6]
    of_the_file_system = after.split(" ")[2]
    return Mount(
        Path(_plain(point)),
        is_writable="ro" not in (*options.split(","), *of_the_file_system.split(",")),
        is_removed=root.endswith(_REMOVED),
    )


def _plain(path: str) -> str:
    return _ESCAPE.sub(lambda found: chr(int(found[1], 8)), path)
