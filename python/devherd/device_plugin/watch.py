"""The directories of a resource child, watched for the few entries that concern it. One inotify instance a process.

What inotify does not report (its limits are reached, a watched directory was mounted over) is found once a second.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import Self

from devherd._native import DirectoryWatch

log = logging.getLogger(__name__)


class Watch:
    """Calls `changed` on the loop for entries that `concerns` accepts. Directories may come, go and come again."""

    def __init__(
        self, directories: Iterable[Path], concerns: Callable[[str], bool], changed: Callable[[], None]
    ) -> None:
        self._directories = {str(directory): directory for directory in directories}
        self._missing = set(self._directories.values())
        self._concerns = concerns
        self._changed = changed
        self._watch = _open()
        self._complaint = ""

    def __enter__(self) -> Self:
        if self._watch is not None:
            asyncio.get_running_loop().add_reader(self._watch.fileno(), self._drain)
            self.add_missing()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._watch is not None:
            asyncio.get_running_loop().remove_reader(self._watch.fileno())
            self._watch.close()

    def add_missing(self) -> None:
        """Watch the directories that were missing; those still missing are noticed through their parents."""
        for directory in list(self._missing):
            if self._add(directory):
                self._missing.discard(directory)
            else:
                self._add(directory.parent)

    def _add(self, directory: Path) -> bool:
        if self._watch is None:
            return True
        try:
            self._watch.add(str(directory))
        except FileNotFoundError:
            return False
        except OSError as error:
            if str(error) != self._complaint:
                log.warning("cannot watch %s: %s; changes are found once a second", directory, error)
            self._complaint = str(error)
            return False
        return True

    def _drain(self) -> None:
        assert self._watch is not None
        changes = self._watch.drain()
        self._missing |= {self._directories[name] for name, entry in changes if not entry and name in self._directories}
        was_missing = bool(self._missing)
        self.add_missing()
        if was_missing or any(not entry or self._concerns(entry) for _, entry in changes):
            self._changed()


def _open() -> DirectoryWatch | None:
    try:
        return DirectoryWatch()
    except OSError as error:
        log.warning(
            "inotify is not available: %s; changes are found once a second; raise fs.inotify.max_user_instances", error
        )
        return None
