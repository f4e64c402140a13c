"""Who gives a command, and what the history has of it."""

import contextlib
import fcntl
import getpass
import os

from devherd.history.record import History, Kind
from devherd.settings import Settings

PROCESS = "operator"
"""The writer of all commands' events."""


def operator() -> str:
    """Who calls, also through sudo."""
    return os.environ.get("SUDO_USER") or getpass.getuser()


def record(settings: Settings, kind: Kind, what: str, resource_name: str, device_id: str) -> None:
    """Leave in the history what a command has done; one that cannot be written does not undo it."""
    history = History(settings.history_directory, PROCESS)
    history.note(kind, what, resource_name=resource_name, device_id=device_id, details={"operator": operator()})
    directory = settings.history_directory
    with contextlib.suppress(OSError):
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        with (directory / f".{PROCESS}.lock").open("w") as lock:  # beside the operator's events: those are forgotten
            fcntl.flock(lock, fcntl.LOCK_EX)  # commands may run at the same time
            history.keep()
