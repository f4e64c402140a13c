"""What ends the supervisor's poll at once, besides its children's output and supervisorctl: signals and the spool."""

import logging
import os
import signal
from collections.abc import Iterable
from pathlib import Path

from devherd import _native

log = logging.getLogger(__name__)


class SignalWakeup:
    """A pipe that signals write to: Python repeats an interrupted poll (PEP 475), unless there is something to read."""

    def __init__(self) -> None:
        self._read, write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(write, False)
        signal.set_wakeup_fd(write, warn_on_full_buffer=False)

    def fileno(self) -> int:
        """For the poll."""
        return self._read

    def readable(self) -> bool:
        """Always of interest."""
        return True

    def writable(self) -> bool:
        """Never of interest."""
        return False

    def handle_read_event(self) -> None:
        """Only wakes: supervisord's own handlers have noted the signals."""
        os.read(self._read, 4096)

    def handle_error(self) -> None:
        """Nothing was there to read after all."""


class SpoolWatch:
    """Notices spool files that come and go; without inotify they are looked for with every tick only."""

    def __init__(self, directories: Iterable[Path]) -> None:
        self._directories = [str(directory) for directory in directories]
        self._watch: _native.DirectoryWatch | None = None
        self._complained_of: set[str] = set()
        self.changed = True
        try:
            self._watch = _native.DirectoryWatch()
        except OSError as error:
            log.warning("the spool is polled, not watched: %s; raise fs.inotify.max_user_instances", error)

    def fileno(self) -> int | None:
        """For the poll; None when there is nothing to poll."""
        return self._watch.fileno() if self._watch else None

    def renew(self) -> None:
        """Watch the directories that now have the paths: they may have been removed and made again."""
        if self._watch is None:
            return
        for directory in self._directories:
            try:
                self._watch.add(directory)
            except FileNotFoundError:
                pass  # it is not needed yet; those that are there are watched
            except OSError as error:
                if directory not in self._complained_of:
                    log.warning("cannot watch %s: %s; it is looked at now and then", directory, error)
                self._complained_of.add(directory)
            else:
                self._complained_of.discard(directory)

    def readable(self) -> bool:
        """Always of interest."""
        return True

    def writable(self) -> bool:
        """Never of interest."""
        return False

    def handle_read_event(self) -> None:
        """Something changed."""
        self.changed = True
        if self._watch:
            self._watch.drain()

    def handle_error(self) -> None:
        """Look at the directory itself, for what inotify could not report."""
        self.changed = True
