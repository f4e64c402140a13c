"""The mounts of a process: the mount of a path, whether it is writable, and whether its source was removed.

proc(5), `/proc/PID/mountinfo`. The kernel marks a mount whose root was removed, which can happen to a bind mount.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

_ESCAPE = re.compile(r"\\([0-7]{3})")  # space, tab, line feed, backslash and # of a path
_REMOVED = "//deleted"  # the kernel appends this to the path of a removed file or directory (fs/d_path.c)


@dataclass(frozen=True, slots=True)
class Mount:
    """One line of the table."""

    point: Path
    is_writable: bool
    """False if the mount, or its file system, is read-only."""
    is_removed: bool
    """True if the source of a bind mount was removed: a new directory in its place does not appear here."""


def mounts_of(pid: int | str = "self") -> list[Mount]:
    """The mounts that a process sees, in the order of the table. Raises OSError if the process has ended."""
    table = Path(f"/proc/{pid}/mountinfo").read_text("utf-8", errors="surrogateescape")
    return [_mount(line) for line in table.splitlines()]


def mount_at(path: Path, mounts: Iterable[Mount]) -> Mount | None:
    """The mount of an absolute path without links; the last one if several have the same mount point."""
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
