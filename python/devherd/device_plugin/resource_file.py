"""The spool file of one resource, as its child reads it: the last good snapshot, and a pulse when that changes."""

import logging
from pathlib import Path

from devherd import spool
from devherd.device_plugin.snapshot import Snapshot
from devherd.proto import spool_pb2
from devherd.pulse import Pulse
from devherd.spool.identity import Identity, identity_of

log = logging.getLogger(__name__)


class ResourceFile:
    """A file that is torn, foreign or unreadable leaves the last snapshot in force; a deleted one empties it."""

    def __init__(self, directory: Path, key: str) -> None:
        self.path = spool.path_of(directory, key)
        self.changed = Pulse()
        self._key = key
        self._snapshot: Snapshot | None = None
        self._seen: Identity | None = None
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
        """Return once there is a first snapshot."""
        while not self.is_loaded:
            await self.changed.wait()

    def look(self) -> None:
        """Read the file if it was replaced: to be called for each event, and periodically."""
        seen = identity_of(self.path)
        if seen is None or seen != self._seen:
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
                self._complain(f"{self.path}: has resource {resource.name!r}, which belongs to another file")

    def _is_gone(self) -> None:
        if not self.path.parent.parent.is_dir():  # a run directory that was removed shows nothing about devices
            self._complain(f"{self.path.parent.parent}: does not exist")
        elif self._snapshot is None:
            self._complain(f"{self.path}: does not exist yet")
        elif self._snapshot.resource.devices:
            log.info("%s is no longer served: reported 0 devices to the kubelet", self._snapshot.resource.name)
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
