"""How the resource stands with the kubelet, told to the exporter and the commands in <run-dir>/state/<key>.pb."""

import logging
import time
from pathlib import Path

from devherd import spool
from devherd.proto import spool_pb2

log = logging.getLogger(__name__)


class State:
    """One writer's ResourceState; each method says what became true. A file that cannot be written stops nothing."""

    def __init__(self, path: Path, resource_name: str) -> None:
        self._path = path
        self._message = spool_pb2.ResourceState(name=resource_name, generation=_remembered(path))
        self._complaint = ""
        self._is_unwritten = False

    @property
    def generation(self) -> int:
        """The last one that was begun, also by an earlier process; 0 when none is known."""
        return self._message.generation

    def begins(self, generation: int, endpoint: str, pending: str, after_failure: str) -> None:
        """A server generation does what is pending, the one before it having failed (or not: empty)."""
        self._message.generation = generation
        self._message.endpoint = endpoint
        self.is_not_registered(f"{pending} again after: {after_failure}" if after_failure else pending)

    def is_registered(self) -> None:
        """Register was answered and the kubelet watches."""
        self._message.registered = True
        self._message.detail = ""
        self._message.registered_timestamp_seconds = time.time()
        self._write()

    def is_not_registered(self, detail: str) -> None:
        """Not registered, and why, for people."""
        self._message.registered = False
        self._message.detail = detail
        self._write()

    def has_streams(self, count: int) -> None:
        """So many ListAndWatch streams are open."""
        self._message.streams = count
        self._write()

    def keep(self) -> None:
        """To be called now and then: what could not be written, or was removed, is written then."""
        if self._is_unwritten or not self._path.exists():
            self._write()

    def _write(self) -> None:
        try:
            spool.write(self._path, self._message)
            self._complaint, self._is_unwritten = "", False
        except OSError as error:
            self._is_unwritten = True
            if str(error) != self._complaint:
                log.warning("the state cannot be told: %s", error)
            self._complaint = str(error)


def _remembered(path: Path) -> int:
    try:
        return spool.read(path, spool_pb2.ResourceState).generation
    except (FileNotFoundError, spool.SpoolError):
        return 0
