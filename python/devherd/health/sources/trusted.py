"""Whether a program, a file or a socket is the administrator's.

Whoever can change it could run as devherd, or empty the node. As with sshd's StrictModes,
<https://man.openbsd.org/sshd_config#StrictModes>, its directories count, too. Writing to a socket changes nothing.
"""

import errno
import os
import stat
from collections import deque
from collections.abc import Iterator
from pathlib import Path

_MOST_LINKS = 40
"""As the kernel: path_resolution(7)."""


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
    """Every file, directory and link on the way to what is there, in the order in which the kernel takes them.

    Raises OSError, also for links that lead in a circle.
    """
    place, links = Path("/"), 0
    yield place
    rest = deque(path.absolute().parts[1:])
    while rest:
        name = rest.popleft()
        if name == "..":
            place = place.parent
            continue
        found = place / name
        yield found
        if not stat.S_ISLNK(found.lstat().st_mode):
            place = found
            continue
        links += 1
        if links > _MOST_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
        target = found.readlink()
        if target.is_absolute():
            place = Path("/")
        rest.extendleft(reversed([part for part in target.parts if part != "/"]))
