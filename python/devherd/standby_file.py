"""<run-dir>/standby.json: which devherd waits for the end of the one that runs there.

Locked by the one that waits for as long as it does: a file that nobody has locked says nothing any more.
"""

import fcntl
import json
import os
from dataclasses import asdict, dataclass, fields
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """What an instance that stands by says of itself."""

    version: str
    revision: str
    since: float
    """Unix seconds."""


def opened(path: Path) -> int:
    """A descriptor for `announce`. Raises OSError."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def announce(descriptor: int, waiting: Waiting) -> bool:
    """Say so for as long as the descriptor is open; False while another one that waits says so. Raises OSError."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, json.dumps(asdict(waiting)).encode(), 0)
    return True


def read(path: Path) -> Waiting | None:
    """Who waits; None where nobody does, or another version's way of saying so is not understood."""
    try:
        with path.open("rb") as file:
            if not _is_locked(file.fileno()):
                return None
            said = json.loads(file.read())
        return Waiting(**{field.name: said[field.name] for field in fields(Waiting)})
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _is_locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False
