"""One instance for a run directory, one for a kubelet directory: held by flock, which the kernel releases at exit.

No lock file is created in the kubelet's directory: the directory itself is locked. It may appear after devherd has
started, and may be removed and created again, so the lock is checked and renewed at run time.

What is locked is a file that all see who share the directory, as the pods of a node do; process ids they do not share.
"""

import fcntl
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from devherd import spool
from devherd.errors import AlreadyRunningError, UsageError
from devherd.proto import spool_pb2
from devherd.settings import Settings

log = logging.getLogger(__name__)


class RunDirectoryLock:
    """The lock on `<run-dir>/lock`."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._descriptor: int | None = None

    def hold(self) -> None:
        """Make the run directory and lock it.

        Raises AlreadyRunningError when another instance has it, OSError when it cannot be made or written.
        """
        descriptor = self._opened()
        if not _lock(descriptor):
            os.close(descriptor)
            raise AlreadyRunningError(
                f"the run directory {self._settings.run_dir} is in use",
                f"another instance runs here{_holder(self._settings)}",
                "stop it first, or name another directory with --run-dir",
            )
        self._descriptor = descriptor

    def is_free(self) -> bool:
        """Whether no other instance has it. Raises OSError when it cannot be made or written."""
        return _is_free(self._opened())

    def wait(self) -> None:
        """Lock it as soon as no other instance has it. Raises OSError when it cannot be made or written."""
        while True:
            descriptor = self._opened()
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if _is_at(descriptor, self._settings.lock_file):
                self._descriptor = descriptor
                return
            os.close(descriptor)  # the directory was removed meanwhile

    def release(self) -> None:
        """Let another instance have it."""
        if self._descriptor is not None:
            os.close(self._descriptor)
        self._descriptor = None

    def _opened(self) -> int:
        _make_directories(self._settings)
        return os.open(self._settings.lock_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


@contextmanager
def refusing_unusable(run_dir: Path) -> Iterator[None]:
    """Turns the OSErrors of a run directory that cannot be made or written into a UsageError."""
    try:
        yield
    except OSError as error:
        raise UsageError(
            f"cannot use the run directory {run_dir}",
            f"{error.filename or run_dir}: {error.strerror}",
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

    def is_free(self) -> bool:
        """Whether no other instance has it, or it cannot be told."""
        try:
            return _is_free(self._opened())
        except OSError:
            return True

    def wait(self) -> None:
        """Lock it as soon as no other instance has it, if it exists."""
        try:
            while not self._is_held():
                descriptor = self._opened()
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                self._keep(descriptor)
        except FileNotFoundError:
            return
        except OSError as error:
            self._complain(error)

    def release(self) -> None:
        """Let another instance have it."""
        if self._descriptor is not None:
            os.close(self._descriptor)
        self._descriptor = None

    def _is_held(self) -> bool:
        return self._descriptor is not None and _is_at(self._descriptor, self._directory)

    def _opened(self) -> int:
        return os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def _take(self) -> None:
        descriptor = self._opened()
        if not _lock(descriptor):
            os.close(descriptor)
            raise AlreadyRunningError(
                f"the kubelet directory {self._directory} is in use",
                "another instance with another run directory serves this kubelet",
                "stop it first, or name another kubelet with --kubelet-dir",
            )
        self._keep(descriptor)

    def _keep(self, descriptor: int) -> None:
        self.release()
        self._descriptor = descriptor
        self._complaint = None

    def _complain(self, error: OSError) -> None:
        if str(error) != self._complaint:
            why = f"{self._directory}: {error.strerror or error}"
            log.warning("cannot lock the kubelet directory, a second instance would go unnoticed: %s", why)
        self._complaint = str(error)


class Locks:
    """Both of an instance."""

    def __init__(self, settings: Settings) -> None:
        self._kubelet_directory = KubeletDirectoryLock(settings.plugin_directory)
        self._run_directory = RunDirectoryLock(settings)

    def take(self, stand_by: Callable[[AlreadyRunningError, Callable[[], bool]], None] | None = None) -> None:
        """Have them, if need be with a wait for the end of who has one: `stand_by` is called first, and may be again.

        It is told who has one, and may ask whether nobody has it any more.

        Raises AlreadyRunningError when another instance has one, without `stand_by`; OSError when the run directory
        cannot be made or written.
        """
        for lock in (self._run_directory, self._kubelet_directory):
            try:
                lock.hold()
            except AlreadyRunningError as refusal:
                if stand_by is None:
                    raise
                stand_by(refusal, lock.is_free)
                lock.wait()

    def renew(self) -> None:
        """Look whether the kubelet's directory is still the one that is locked; to be called now and then.

        Raises AlreadyRunningError when another instance has it.
        """
        self._kubelet_directory.hold()

    def release(self) -> None:
        """At the end of an instance, before that of its process, which takes its time: another one may be waiting."""
        self._kubelet_directory.release()
        self._run_directory.release()


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


def _is_free(descriptor: int) -> bool:
    """Of a file opened for this."""
    try:
        return _lock(descriptor)
    finally:
        os.close(descriptor)


def _is_at(descriptor: int, path: Path) -> bool:
    """Whether what is open is still what has the path."""
    try:
        held, there = os.fstat(descriptor), path.stat()
    except FileNotFoundError:
        return False
    return (held.st_dev, held.st_ino) == (there.st_dev, there.st_ino)


def _holder(settings: Settings) -> str:
    try:
        return f", process {spool.read(settings.children_file, spool_pb2.Children).supervisor_pid}"
    except (FileNotFoundError, spool.SpoolError):
        return ""
