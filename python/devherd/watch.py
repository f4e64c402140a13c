"""Watches directories by inotify on an asyncio loop, also those that are missing, and files that others share."""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from types import TracebackType
from typing import Self

from devherd._native import DirectoryWatch
from devherd.log import Once

log = logging.getLogger(__name__)


class Watch:
    """Calls `changed` on the loop for entries that `concerns` accepts. Directories may be created and removed.

    `files` are the relevant files in the directories `shared` with other processes. While all of them exist, only they
    are watched, not the directories: otherwise each socket of two hundred other resources would wake this process.
    """

    def __init__(
        self,
        directories: Iterable[Path],
        concerns: Callable[[str], bool],
        changed: Callable[[], None],
        *,
        shared: Collection[Path] = (),
        files: Callable[[], Iterable[Path]] = tuple,
        may_watch: bool = True,
    ) -> None:
        """Without `may_watch` it uses no inotify, and `is_blind` is True."""
        self._directories = {str(directory): directory for directory in (*directories, *shared)}
        self._missing = set(self._directories.values())
        self._concerns = concerns
        self._changed = changed
        self._shared = frozenset(shared)
        self._files = files
        self._watched: set[Path] = set()
        """The watched files, and the directories that are watched without their entries."""
        self._watch = _open() if may_watch else None
        self._complaint = Once(log.warning)

    @property
    def is_blind(self) -> bool:
        """True if a directory is missing or cannot be watched, so that not every change is reported."""
        return self._watch is None or bool(self._missing)

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
        """Watch what was missing; directories that are still missing are noticed through their parents.

        Look at everything afterwards: earlier changes are not reported.
        """
        for directory in list(self._missing):
            if self._add(directory):
                self._missing.discard(directory)
            else:
                self._add(directory.parent)
        for directory in self._shared - self._missing if self._watch else ():
            files = [file for file in self._files() if file.parent == directory]
            if files and all(map(self._add_itself, files)):
                self._add_itself(directory)
            elif directory in self._watched:
                self._watched.discard(directory)
                if not self._add(directory):
                    self._missing.add(directory)

    def _add_itself(self, path: Path) -> bool:
        assert self._watch is not None
        if path not in self._watched:
            try:
                self._watch.add_itself(str(path))
            except OSError:
                return False  # the watch on its directory reports it
            self._watched.add(path)
        return True

    def _add(self, directory: Path) -> bool:
        if self._watch is None:
            return True
        try:
            self._watch.add(str(directory))
        except FileNotFoundError:
            return False
        except OSError as error:
            text = "cannot watch %s: %s; changes are found once a second"
            self._complaint.complain(text, directory, error, about=str(error))
            return False
        return True

    def _drain(self) -> None:
        assert self._watch is not None
        changes = self._watch.drain()
        told = {name for name, entry in changes if not entry}
        if "" in told:  # the queue has overflowed: anything may have happened
            told = {*self._directories, *map(str, self._watched)}
        self._watched -= {*map(Path, told)}
        self._missing |= {self._directories[name] for name in told & self._directories.keys()}
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
