"""Notices that files of the run directory were replaced, in a thread. Without inotify they are looked at each round."""

import logging
import select
import threading
from collections.abc import Iterable
from pathlib import Path

from devherd._native import DirectoryWatch

log = logging.getLogger(__name__)

_MISSING_MILLISECONDS = 1000
"""Between two looks for directories that are not there yet."""


class FileWatch(threading.Thread):
    """Sets `changed` when one of the files is there anew."""

    def __init__(self, files: Iterable[Path], changed: threading.Event) -> None:
        super().__init__(name="files", daemon=True)
        files = list(files)
        self._missing = {str(file.parent) for file in files}
        self._names = {file.name for file in files}
        self._changed = changed

    def run(self) -> None:
        """Follow the files until the process ends."""
        try:
            watch = DirectoryWatch()
        except OSError as error:
            log.warning("no inotify: %s; devices are looked at each second; raise fs.inotify.max_user_instances", error)
            threading.Event().wait()
            return
        poll = select.poll()
        poll.register(watch.fileno(), select.POLLIN)
        while True:
            self._add_missing(watch)
            if poll.poll(_MISSING_MILLISECONDS if self._missing else None):
                self._take(watch.drain())

    def _add_missing(self, watch: DirectoryWatch) -> None:
        for directory in list(self._missing):
            try:
                watch.add(directory)
            except OSError:
                continue
            self._missing.discard(directory)
            self._changed.set()  # what came before is not told

    def _take(self, changes: list[tuple[str, str]]) -> None:
        """Changes are a directory and the entry's name; without a name the directory itself is gone, or all unknown."""
        self._missing |= {directory for directory, name in changes if directory and not name}
        if any(not name or name in self._names for _, name in changes):
            self._changed.set()
