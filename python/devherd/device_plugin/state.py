"""The state of a resource's registration, and its child's counters: <run-dir>/state/<key>/current.pb."""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from devherd import counters, spool
from devherd.counters import Counters
from devherd.history import History
from devherd.log import Once
from devherd.proto import spool_pb2

log = logging.getLogger(__name__)


class State:
    """Writes the ResourceState; each method is named after an event. A failed write is retried."""

    def __init__(
        self,
        path: Path,
        resource_name: str,
        history: History,
        waits: Callable[[bool], object] = bool,
        allocated: Callable[[Sequence[str]], object] = len,
    ) -> None:
        """`waits` is called with True while the resource waits for the kubelet, else with False.

        `allocated` is called with the ids that a container gets.
        """
        self._path = path
        self._waits = waits
        self.history = history
        self.allocated = allocated
        before = spool.read_or_empty(path, spool_pb2.ResourceState)
        self._message = spool_pb2.ResourceState(name=resource_name, generation=before.generation)
        self.counters = Counters(counters.BY_RESOURCE_CHILDREN, before.counters)
        self.news = asyncio.Event()
        """Set while something is unwritten; `keep` clears it."""
        self.counters.counted = history.noted = self.news.set
        self._read = 0
        self._shown: dict[object, int] = {}
        self._streams: dict[object, int] = {}
        self._predecessor_lists = False
        self._is_frozen = False
        self._complaint = Once(log.warning)

    @property
    def generation(self) -> int:
        """The last server generation that was started, perhaps in an earlier process; 0 if unknown."""
        return self._message.generation

    def uses(self, generation: int) -> None:
        """Called before a socket of this generation is bound."""
        self._message.generation = generation

    def begins(self, endpoint: str, pending: str, after_failure: str) -> None:
        """A server generation starts; `after_failure` is why the one before it failed, or empty."""
        self._message.endpoint = endpoint
        self.is_not_registered(f"{pending} again after: {after_failure}" if after_failure else pending)

    def is_registered(self) -> None:
        """The kubelet has registered the resource and opened its stream."""
        self._waits(False)
        self._message.registered = True
        self._message.detail = ""
        self._message.registered_timestamp_seconds = time.time()
        self._write()

    def waits_for_the_kubelet(self, why: str) -> None:
        """No kubelet accepts registrations; `why` is the reason."""
        self._waits(True)
        self.is_not_registered(f"waiting for the kubelet: {why}")

    def is_not_registered(self, detail: str) -> None:
        """The resource is not registered; `detail` is the reason, human-readable."""
        self._message.registered = False
        self._message.detail = detail
        self._write()

    def has_streams(self, server: object, count: int) -> None:
        """`count` ListAndWatch streams of a server are open."""
        self._streams[server] = count
        self._message.streams = sum(self._streams.values())
        if not count:
            del self._streams[server]
        self._write()

    def has_read(self, version: int) -> None:
        """The resource's file was read: a stream that opens from now on carries no older list."""
        self._read = version
        self._note_sent_version()

    def shows(self, server: object, version: int | None) -> None:
        """The kubelet's stream of a server has carried the list of this version; None: that stream has ended."""
        if version is None:
            self._shown.pop(server, None)
        else:
            self._shown[server] = version
        self._note_sent_version()

    def predecessor_lists(self, *, lists: bool) -> None:
        """Whether another process sends lists of this resource to the kubelet, perhaps older than this process's."""
        self._predecessor_lists = lists
        self._note_sent_version()

    def freeze(self) -> None:
        """Write everything for the last time: from now on the file belongs to the next instance."""
        self.history.keep()
        self._write()
        self._is_frozen = True

    def _note_sent_version(self) -> None:
        sent = 0 if self._predecessor_lists else min(self._shown.values(), default=self._read)
        if sent != self._message.sent_version:
            self._message.sent_version = sent
            self._write()

    def keep(self, *, restores: bool = True) -> None:
        """Write new events and counters, and retry a failed write; called once a second.

        With `restores`, write a removed file again.
        """
        if self._is_frozen:
            return
        is_kept = self.history.keep()
        if self._complaint.lasts or self.counters.changed or (restores and not self._path.exists()):
            self._write()
        if is_kept and not self._complaint.lasts:
            self.news.clear()

    def _write(self) -> None:
        self.news.set()
        if self._is_frozen:
            return
        del self._message.counters[:]
        self._message.counters.extend(self.counters.series())
        try:
            spool.write(self._path, self._message)
            self._complaint.over()
            self.counters.changed = False
        except OSError as error:
            self._complaint.complain("cannot write %s: %s", self._path, error.strerror or error)
