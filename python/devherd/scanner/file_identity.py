"""Whether somebody has touched a file since it was looked at last."""

import stat
from pathlib import Path

Identity = tuple[int, int, int]
"""Inode, time of the last change and size of a file."""


def identity_of(path: Path) -> Identity | None:
    """None when there is no plain file."""
    try:
        status = path.lstat()
    except OSError:
        return None
    return (status.st_ino, status.st_mtime_ns, status.st_size) if stat.S_ISREG(status.st_mode) else None
