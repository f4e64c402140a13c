"""One instance for a run directory, one for a kubelet directory: held by flock, which the kernel releases at exit.

No lock file is created in the kubelet's directory: the directory itself is locked. It may appear after devherd has
started, and may be removed and created again, so the lock is checked and renewed at run time.
"""

import fcntl
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from devherd import spool
from devherd.errors import AlreadyRunningError, UsageError
from devherd.proto import spool_pb2
from devherd.settings import Settings

log = logging.getLogger(__name__)


def hold_run_directory(settings: Settings) -> int:
    """Make the run directory and lock it: the descriptor that holds the lock, to be kept open.

    Raises AlreadyRunningError when another instance has it, OSError when it cannot be made or written.
    """
    _make_directories(settings)
    descriptor = os.open(settings.lock_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    if _lock(descriptor):
        return descriptor
    os.close(descriptor)
    raise AlreadyRunningError(
        f"the run directory {settings.run_dir} is in use",
        f"another instance runs here{_holder(settings)}",
        "stop it first, or name another directory with --run-dir",
    )


@contextmanager
def refusing_unusable(run_dir: Path) -> Iterator[None]:
    """Turns the OSErrors of a run directory that cannot be made or written into a UsageError."""
    try:
        yield
    except OSError as error:
        raise UsageError(
            f"cannot use the run directory {run_dir}",
            f"{error.filename}: {error.strerror}",
            "name one that can be written with --run-dir",
        ) from error


class KubeletDirectoryLock:
    """The lock on `<kubelet-dir>/device-plugins`."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._descriptor: int | None = None
        self._complaint: str | None = None

    def hold(self) -> None:
        """Lock the directory that now has the path, if it exists and is not locked yet; called repeatedly.

        Raises AlreadyRunningError when another instance has it.
        """
        try:
            if self._is_held():
                return
            self._take()
        except FileNotFoundError:
            return  # no kubelet yet
        except OSError as error:
            self._complain(error)

    def _is_held(self) -> bool:
        if self._descriptor is None:
            return False
        held, there = os.fstat(self._descriptor), self._directory.stat()
        return (held.st_dev, held.st_ino) == (there.st_dev, there.st_ino)

    def _take(self) -> None:
        descriptor = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        if not _lock(descriptor):
            os.close(descriptor)
            raise AlreadyRunningError(
                f"the kubelet directory {self._directory} is in use",
                "another instance with another run directory serves this kubelet",
                "stop it first, or name another kubelet with --kubelet-dir",
            )
        if self._descriptor is not None:
            os.close(self._descriptor)
        self._descriptor = descriptor
        self._complaint = None

    def _complain(self, error: OSError) -> None:
        if str(error) != self._complaint:
            log.warning("cannot lock the kubelet directory, a second instance would go unnoticed: %s", error)
        self._complaint = str(error)


def _make_directories(settings: Settings) -> None:
    settings.run_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    _close_to_others(settings)
    for directory in (
        settings.offers_directory,
        settings.resources_directory,
        settings.state_directory,
        settings.allocatable_directory,
        settings.logs_directory,
    ):
        directory.mkdir(mode=0o700, exist_ok=True)


def _close_to_others(settings: Settings) -> None:
    """The directory existed before: restrict it to its owner, as devherd's files are private.

    A directory with other content, such as /tmp, is left as it is.
    """
    if {path.name for path in settings.run_dir.iterdir()} <= settings.own_names:
        settings.run_dir.chmod(0o700)


def _lock(descriptor: int) -> bool:
    """False when another process has it. Raises OSError where the file system does not support locks."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _holder(settings: Settings) -> str:
    try:
        return f", process {spool.read(settings.children_file, spool_pb2.Children).supervisor_pid}"
    except (FileNotFoundError, spool.SpoolError):
        return ""
