"""Files that describe the running instance and a standby instance."""

import fcntl
import os
from pathlib import Path

from google.protobuf.message import DecodeError

from devherd.config.resolved import ResolvedConfig
from devherd.proto import spool_pb2
from devherd.settings import Settings
from devherd.text import revision, version


def instance_of(settings: Settings, config: ResolvedConfig, pid: int, started: float) -> spool_pb2.Instance:
    """The message about an instance that started at this Unix second with these settings and this configuration."""
    return spool_pb2.Instance(
        version=version(),
        revision=revision(),
        pid=pid,
        started=started,
        config=str(config.source or ""),
        host_root=str(settings.host_root),
        kubelet_dir=str(settings.kubelet_dir),
        run_dir=str(settings.run_dir),
        listen=config.settings().listen,  # of these values, a reload can change only this one
        registration=settings.registration,
    )


def refusal_of(address: spool_pb2.Address) -> str:
    """The error text for an address that is not served."""
    return f"not serving {address.address}: {address.refusal} — {address.cure}"


def open_standby_file(path: Path) -> int:
    """A descriptor for `announce_standby`. Raises OSError."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def announce_standby(descriptor: int, standby: spool_pb2.Standby) -> bool:
    """Write the message, valid while the descriptor is open. Raises OSError.

    Returns False, and writes nothing, if another standby holds the file.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, standby.SerializeToString(), 0)
    return True


def read_standby(path: Path) -> spool_pb2.Standby | None:
    """The standby instance; None if no instance stands by."""
    try:
        with path.open("rb") as file:
            return spool_pb2.Standby.FromString(file.read()) if _is_locked(file.fileno()) else None
    except (OSError, DecodeError):
        return None


def _is_locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False
