"""The spool file of one resource as read by its child: the last good snapshot, and a notification of changes."""

import logging
from pathlib import Path

from devherd import spool
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
