"""Locks (flock) that allow one instance per run directory and per kubelet directory. The kernel releases them at exit.

No lock file is created in the kubelet's directory: the directory itself is locked. It may be created after devherd has
started, or removed and created again, so the lock is checked and renewed at run time.

Locks work between pods that share the directory; process ids would not, because pods do not share them.
"""

import errno
import fcntl
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from devherd import signals, spool
from devherd.errors import AlreadyRunningError, UsageError
from devherd.log import Once
from devherd.proto import spool_pb2
from devherd.settings import Settings

LOOK_SECONDS = 0.02
"""Pause between two attempts at a lock that another instance holds."""

log = logging.getLogger(__name__)


class Lock:
    """A lock on the file or directory at a path; the file may be removed and created again."""

    def __init__(
        self, path: Path, in_use: Callable[[], AlreadyRunningError], make: Callable[[], None] | None = None
    ) -> None:
        """`in_use`: the refusal if another instance holds it; `make`: prepares the place of a file of devherd's own.

        Without `make` it is the kubelet's directory: if that is absent, nothing is locked; if it cannot be locked, that
        is logged. With `make`, all methods but `release` raise OSError.
        """
        self._path = path
        self._in_use = in_use
        self._make = make
        self._descriptor: int | None = None
        self._complaint = Once(log.warning)

    def hold(self) -> None:
        """Lock the file or directory that is now at the path, if it is not locked yet; called repeatedly.

        Raises AlreadyRunningError if another instance holds it.
        """
        with self._tolerance():
            if self._is_held():
                return
            descriptor, is_locked = self._opened(), False
            try:
                is_locked = _lock(descriptor)
            finally:
                if not is_locked:
                    os.close(descriptor)
            if not is_locked:
                raise self._in_use()
            self._keep(descriptor)

    def is_free(self) -> bool:
        """True if no other instance holds it, or if that is unknown."""
        with self._tolerance():
            descriptor = self._opened()
            try:
                return _lock(descriptor)
            finally:
                os.close(descriptor)
        return True

    def wait(self) -> None:
        """Wait until no other instance holds it, and lock it. Raises SystemExit if a signal has asked for the end."""
        with self._tolerance():
            while not self._is_held():
                descriptor = self._opened()
                while not _lock(descriptor):  # a blocking `flock` would go on after a signal that is only noted
                    signals.rest(LOOK_SECONDS)
                    signals.end_if_asked()
                self._keep(descriptor)

    def release(self) -> None:
        """Release the lock."""
        if self._descriptor is not None:
            os.close(self._descriptor)
        self._descriptor = None

    def _opened(self) -> int:
        if self._make is None:
            return os.open(self._path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._make()
        return os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def _is_held(self) -> bool:
        """True if the locked file is still the one at the path."""
        if self._descriptor is None:
            return False
        try:
            held, there = os.fstat(self._descriptor), self._path.stat()
        except FileNotFoundError:
            return False
        return (held.st_dev, held.st_ino) == (there.st_dev, there.st_ino)

    def _keep(self, descriptor: int) -> None:
        self.release()
        self._descriptor = descriptor
        self._complaint.over()

    @contextmanager
    def _tolerance(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if self._make is not None:
                raise
            if not isinstance(error, FileNotFoundError):
                why = f"{self._path}: {error.strerror or error}"
                self._complaint.complain(
                    "cannot lock the kubelet directory, a second instance would go unnoticed: %s", why
                )


class Locks:
    """Both locks of an instance."""

    def __init__(self, settings: Settings) -> None:
        self._run_directory = Lock(
            settings.lock_file, lambda: _run_directory_in_use(settings), lambda: _make_directories(settings)
        )
        self._kubelet_directory = Lock(
            settings.plugin_directory,
            lambda: AlreadyRunningError(
                f"the kubelet directory {settings.plugin_directory} is in use",
                "another instance with another run directory serves this kubelet",
                "stop it first, or name another kubelet with --kubelet-dir",
            ),
        )
        self.are_held = False
        """True from `take` to `release`."""

    def take(self, stand_by: Callable[[AlreadyRunningError, Callable[[], bool]], None] | None = None) -> None:
        """Take both locks. If another instance holds one, call `stand_by`, then wait for the lock.

        `stand_by` gets the refusal and a function that returns True if the lock is free; it may be called twice.

        Without `stand_by`, raises AlreadyRunningError if another instance holds a lock. Raises OSError if the run
        directory cannot be created or written, SystemExit if a signal has asked for the end during the wait.
        """
        for lock in (self._run_directory, self._kubelet_directory):
            try:
                lock.hold()
            except AlreadyRunningError as refusal:
                if stand_by is None:
                    raise
                stand_by(refusal, lock.is_free)
                lock.wait()
        self.are_held = True

    def renew(self) -> None:
        """Lock the kubelet's directory again if it was replaced; call it each few seconds.

        Raises AlreadyRunningError if another instance holds it.
        """
        self._kubelet_directory.hold()

    def release(self) -> None:
        """Release both locks. Call it before the slow end of the process: another instance may be waiting."""
        self.are_held = False
        self._kubelet_directory.release()
        self._run_directory.release()


def _run_directory_in_use(settings: Settings) -> AlreadyRunningError:
    try:
        holder = f", process {spool.read(settings.children_file, spool_pb2.Children).supervisor_pid}"
    except (OSError, spool.SpoolError):
        holder = ""
    return AlreadyRunningError(
        f"the run directory {settings.run_dir} is in use",
        f"another instance runs here{holder}",
        "stop it first, or name another directory with --run-dir",
    )


@contextmanager
def refusing_unusable(run_dir: Path) -> Iterator[None]:
    """Turn the OSErrors of a run directory that cannot be created or written into a UsageError."""
    try:
        yield
    except OSError as error:
        is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        raise UsageError(
            f"cannot use the run directory {run_dir}",
            f"{error.filename or run_dir}: {error.strerror}",
            "make room there" if is_full else "name one that can be written with --run-dir",
        ) from error


def _make_directories(settings: Settings) -> None:
    settings.run_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    _close_to_others(settings)
    for directory in (
        settings.offers_directory,
        settings.resources_directory,
        settings.state_directory,
        settings.requests_directory,
        settings.logs_directory,
    ):
        directory.mkdir(mode=0o700, exist_ok=True)


def _close_to_others(settings: Settings) -> None:
    """Restrict an existing directory to its owner, because devherd's files are private.

    A directory with other content, such as /tmp, keeps its mode.
    """
    names = {path.name for path in settings.run_dir.iterdir()}
    if names - {name for name in names if name.startswith(".") and name.endswith(".new")} <= settings.own_names:
        settings.run_dir.chmod(0o700)


def _lock(descriptor: int) -> bool:
    """Take the lock; returns False if another process holds it. Raises OSError if the file system has no locks."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
