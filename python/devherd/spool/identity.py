"""Whether somebody has touched a file since it was looked at last."""

import stat
from pathlib import Path

Identity = tuple[int, int, int]
"""Inode, time of the last change and size of a file."""


def identity_of(path: Path, *, follow_symlinks: bool = False) -> Identity | None:
    """None when there is no plain file, or none that can be reached."""
    try:
        status = path.stat(follow_symlinks=follow_symlinks)
    except OSError:
        return None
    return (status.st_ino, status.st_mtime_ns, status.st_size) if stat.S_ISREG(status.st_mode) else None
