"""The spool file of one resource as read by its child: the last good snapshot, and a notification of changes."""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from types import TracebackType
from typing import Self

from devherd import spool
from devherd._native import DirectoryWatch
from devherd.device_plugin.snapshot import Snapshot
from devherd.kubelet.registration import Broadcast
from devherd.log import Once
from devherd.proto import spool_pb2
from devherd.spool import Identity, identity_of

log = logging.getLogger(__name__)


class ResourceFile:
    """Reads the file. A torn, foreign or unreadable file keeps the last snapshot in force; a deleted one empties it."""

    def __init__(self, directory: Path, key: str) -> None:
        self.path = spool.path_of(directory, key)
        self.changed = Broadcast()
        self._key = key
        self._snapshot: Snapshot | None = None
        self._seen: Identity | None = None
        self._complaint = Once(log.warning)

    @property
    def is_loaded(self) -> bool:
        """True if a good file has been read."""
        return self._snapshot is not None

    @property
    def is_gone(self) -> bool:
        """True if the file is missing, and its directory is not."""
        return self._seen is None and self.path.parent.parent.is_dir()

    @property
    def latest(self) -> Snapshot:
        """The snapshot in force; only valid once `is_loaded`."""
        assert self._snapshot is not None
        return self._snapshot

    async def loaded(self) -> None:
        """Return once there is a first snapshot."""
        while not self.is_loaded:
            await self.changed.wait()

    def look(self) -> None:
        """Read the file if it was replaced or is missing; called for each event, and periodically."""
        seen = identity_of(self.path)
        if (seen is None or seen != self._seen) and self._has_read():
            self._seen = seen

    def _has_read(self) -> bool:
        """Read the file; False if no descriptor is left for it, so that it must be read again."""
        try:
            resource = spool.read(self.path, spool_pb2.Resource)
        except FileNotFoundError:
            self._empty()
        except OSError as error:
            self._complain(f"{self.path}: {error.strerror}")
            return False
        except spool.SpoolError as error:
            self._complain(str(error))
        else:
            if spool.key_of(resource.name) == self._key:
                self._complaint.over()
                self._put(Snapshot(resource))
            else:
                self._complain(f"{self.path}: has resource {resource.name!r}, which belongs to another file")
        return True

    def _empty(self) -> None:
        if not self.path.parent.parent.is_dir():  # a removed run directory does not mean that devices are gone
            self._complain(f"{self.path.parent.parent}: does not exist")
        elif self._snapshot is None:
            self._complain(f"{self.path}: does not exist yet")
        elif self._snapshot.resource.devices:
            log.info("%s is no longer served: reported 0 devices to the kubelet", self._snapshot.resource.name)
            self._put(self._snapshot.without_devices())

    def _put(self, snapshot: Snapshot) -> None:
        if self._snapshot is None or self._snapshot.resource != snapshot.resource:
            self._snapshot = snapshot
            self.changed.notify_all()

    def _complain(self, complaint: str) -> None:
        last = "waiting for it" if self._snapshot is None else "the last good one stays in force"
        self._complaint.complain("%s; %s", complaint, last)


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
