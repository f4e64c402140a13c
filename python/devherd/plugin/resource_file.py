"""The spool file of one resource, as its child sees it: the last good snapshot told when it changes."""

import logging
from pathlib import Path

from devherd import spool
from devherd.plugin.pulse import Pulse
from devherd.plugin.snapshot import Snapshot
from devherd.proto import spool_pb2

log = logging.getLogger(__name__)


class ResourceFile:
    """One that is torn, foreign or out of reach leaves the last snapshot in force; one that is deleted empties it."""

    def __init__(self, directory: Path, key: str) -> None:
        self.path = spool.path_of(directory, key)
        self.changed = Pulse()
        self._key = key
        self._snapshot: Snapshot | None = None
        self._seen: tuple[int, int, int] | None = None
        self._complaint = ""

    @property
    def is_loaded(self) -> bool:
        """Whether there has been a good file yet."""
        return self._snapshot is not None

    @property
    def latest(self) -> Snapshot:
        """The snapshot in force; there is one once `is_loaded`."""
        assert self._snapshot is not None
        return self._snapshot

    async def loaded(self) -> None:
        """Until there is a first snapshot."""
        while not self.is_loaded:
            await self.changed.wait()

    def look(self) -> None:
        """Read the file if it is another than last time: to be called for each event and now and then."""
        try:
            status = self.path.stat()
        except FileNotFoundError:
            self._is_gone()
        except OSError as error:
            self._complain(f"{self.path}: {error.strerror}")
        else:
            seen = (status.st_ino, status.st_mtime_ns, status.st_size)
            if seen != self._seen:
                self._seen = seen
                self._read()

    def _read(self) -> None:
        try:
            resource = spool.read(self.path, spool_pb2.Resource)
        except FileNotFoundError:
            self._is_gone()
        except spool.SpoolError as error:
            self._complain(str(error))
        else:
            if spool.key_of(resource.name) == self._key:
                self._complaint = ""
                self._put(Snapshot(resource))
            else:
                self._complain(f"{self.path}: tells of {resource.name!r}, which belongs elsewhere")

    def _is_gone(self) -> None:
        self._seen = None
        if not self.path.parent.is_dir():  # a run directory that is swept away says nothing about devices
            self._complain(f"{self.path.parent}: not there")
        elif self._snapshot is None:
            self._complain(f"{self.path}: not there yet")
        elif self._snapshot.resource.devices:
            log.info("%s is gone: the list is empty from now on", self.path)
            self._put(self._snapshot.without_devices())

    def _put(self, snapshot: Snapshot) -> None:
        if self._snapshot is None or self._snapshot.resource != snapshot.resource:
            self._snapshot = snapshot
            self.changed.tell()

    def _complain(self, complaint: str) -> None:
        if complaint != self._complaint:
            last = "waiting for it" if self._snapshot is None else "the last good one stays in force"
            log.warning("%s; %s", complaint, last)
        self._complaint = complaint
