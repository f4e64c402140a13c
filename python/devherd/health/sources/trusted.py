"""Whether a program, a file or a socket is the administrator's.

Whoever can change it could run as devherd, or empty the node. As with sshd's StrictModes,
<https://man.openbsd.org/sshd_config#StrictModes>, its directories count, too. Writing to a socket changes nothing.
"""

import os
import stat
from collections.abc import Iterator
from pathlib import Path


def distrusted(path: Path) -> str | None:
    """Why somebody else could have written what is at a path; None when only root and this user can. Raises OSError."""
    for place in _ways_to(path):
        status = place.lstat()
        if stat.S_ISLNK(status.st_mode):
            continue  # changed only through its directory
        if status.st_uid not in {0, os.geteuid()}:
            return f"{place} belongs to user {status.st_uid}; have root own it"
        is_shared = stat.S_ISSOCK(status.st_mode) or (stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX)
        if status.st_mode & stat.S_IWOTH and not is_shared:
            return f"everybody may write {place}; take that right away with `chmod o-w`"
        if status.st_mode & stat.S_IWGRP and status.st_gid not in {0, os.getegid()} and not is_shared:
            return f"group {status.st_gid} may write {place}; take that right away with `chmod g-w`"
    return None


def _ways_to(path: Path) -> Iterator[Path]:
    """The file and all directories above it, as it is named and as it is found. Raises OSError."""
    found = path.resolve(strict=True)
    yield from dict.fromkeys([found, *found.parents, path, *path.parents])
