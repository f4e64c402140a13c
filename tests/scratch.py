"""Where tests put their files: in memory where there is room.

A simulated node has thousands of small files. On disk they take four times as long to write, and on ext4 with `discard`
a millisecond each to remove: minutes in a run of all tests.
"""

import os
import tempfile
from pathlib import Path

_IN_MEMORY, _ON_DISK = Path("/dev/shm"), Path("/tmp")
_ENOUGH_BYTES = 4 << 30


def place() -> Path:
    """A directory with a short path, because sockets are made below it: a socket's path has at most 107 bytes.

    In memory only where programs can be run and device nodes be opened, as in /tmp. Containers often have neither room
    nor right there.
    """
    try:
        status = os.statvfs(_IN_MEMORY)
    except OSError:
        return _ON_DISK
    is_restricted = status.f_flag & (os.ST_NODEV | os.ST_NOEXEC | os.ST_RDONLY)
    has_room = status.f_bavail * status.f_frsize >= _ENOUGH_BYTES
    return _IN_MEMORY if has_room and not is_restricted and os.access(_IN_MEMORY, os.W_OK) else _ON_DISK


def directory(prefix: str = "dh") -> Path:
    """A new directory there; whoever makes it removes it."""
    return Path(tempfile.mkdtemp(prefix=prefix, dir=place()))
