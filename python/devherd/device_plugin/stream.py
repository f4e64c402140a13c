"""The ListAndWatch streams of one server: each starts with the complete list and follows what changes."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from devherd import counted
from devherd.amounts import amount
from devherd.counters import Counters
from devherd.device_plugin.snapshot import Offered
from devherd.proto import deviceplugin_v1beta1_pb2 as v1beta1
from devherd.spool import HEALTHY

log = logging.getLogger(__name__)

REST_SECONDS = 0.25
"""Between two lists on a stream. A device that fails and recovers within it is not worth a message."""

Send = Callable[[v1beta1.ListAndWatchResponse], Awaitable[None]]


class Streams:
    """The streams are independent, so one that is stuck delays no other.

    The first stream is the kubelet's: it connects to a new socket within milliseconds and opens no second stream. When
    that one ends, the kubelet has dropped the resource; the others belong to people with debugging tools.
    """

    def __init__(
        self,
        resource: Offered,
        counters: Counters,
        count_changed: Callable[[int], None],
        shows: Callable[[int | None], None],
    ) -> None:
        """`shows` is called with the version of the list that the kubelet's stream carries, None at its end."""
        self._resource = resource
        self._counters = counters
        self._count_changed = count_changed
        self._shows = shows
        self._count = 0
        self._closing = False
        self.opened = asyncio.Event()
        self.lost = asyncio.Event()
        """The kubelet's stream has ended."""
        self._all_closed = asyncio.Event()
        self._all_closed.set()

    async def serve(self, send: Send) -> None:
        """One stream, until this side closes it or the peer is gone (then this is cancelled, or `send` fails)."""
        with self._open() as is_kubelet:
            pacing = Pacing()
            clock = asyncio.get_running_loop().time
            while True:
                snapshot = self._resource.latest
                due = pacing.seconds_until_due(snapshot.device_list, clock())
                if due is None and is_kubelet:
                    self._shows(snapshot.version)
                if due is None and self._closing:
                    return
                if due == 0 or (due is not None and self._closing):
                    await send(snapshot.device_list)
                    pacing.sent(snapshot.device_list, clock())
                    self._counters.add(counted.LISTS_SENT, snapshot.name)
                    if log.isEnabledFor(logging.DEBUG):  # ten thousand devices are not counted for nobody
                        whom = "the kubelet" if is_kubelet else "another client"
                        log.debug("sent a list to %s: %s", whom, _told(snapshot.device_list))
                else:
                    await self._resource.changed.wait(due)

    def close(self) -> None:
        """End every stream, after the lists that are still due."""
        self._closing = True
        self._resource.changed.tell()

    async def closed(self) -> None:
        """Return once the last stream has ended and was cleaned up."""
        await self._all_closed.wait()

    @contextmanager
    def _open(self) -> Iterator[bool]:
        """Whether it is the kubelet's."""
        is_first = not self.opened.is_set()
        self.opened.set()
        self._add(1)
        if is_first:
            self._shows(self._resource.latest.version)  # the first list is not older
        try:
            yield is_first
        finally:
            if is_first:
                self._shows(None)
                self.lost.set()
            self._add(-1)

    def _add(self, streams: int) -> None:
        self._count += streams
        if self._count:
            self._all_closed.clear()
        else:
            self._all_closed.set()
        self._count_changed(self._count)


def _told(device_list: v1beta1.ListAndWatchResponse) -> str:
    unhealthy = sum(device.health != HEALTHY for device in device_list.devices)
    return f"{amount(len(device_list.devices), 'device')}, {unhealthy} unhealthy"


class Pacing:
    """When a list is due on a stream: at once when it differs and the stream has rested, never when it is the same.

    Each list costs the kubelet a checkpoint and an fsync. Pure: the time is given.
    """

    def __init__(self) -> None:
        self._sent: v1beta1.ListAndWatchResponse | None = None
        self._rested_at = 0.0

    def seconds_until_due(self, latest: v1beta1.ListAndWatchResponse, now: float) -> float | None:
        """0.0: send it now. None: the peer has it."""
        if self._sent is None:
            return 0.0
        if latest is self._sent or latest == self._sent:
            return None
        return max(0.0, self._rested_at - now)

    def sent(self, device_list: v1beta1.ListAndWatchResponse, now: float) -> None:
        """Remember the list that was sent."""
        self._sent = device_list
        self._rested_at = now + REST_SECONDS
