"""The ListAndWatch streams of one server: each starts with the complete list and follows what changes."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from prometheus_client import Counter

from devherd.plugin.pacing import Pacing
from devherd.plugin.resource_file import ResourceFile
from devherd.proto import deviceplugin_v1beta1_pb2 as v1beta1

SENDS = Counter("devherd_list_and_watch_sends", "Device lists sent to the kubelet.", ["resource_name"])

Send = Callable[[v1beta1.ListAndWatchResponse], Awaitable[None]]


class Streams:
    """No stream shares anything with another, so one that is stuck delays none.

    The first stream is the kubelet's: it dials a fresh socket within milliseconds and never opens a stream again. Its
    end is the sign that the kubelet has let go; others are people who look.
    """

    def __init__(self, resource: ResourceFile, count_changed: Callable[[int], None]) -> None:
        self._resource = resource
        self._count_changed = count_changed
        self._count = 0
        self._closing = False
        self.opened = asyncio.Event()
        self.lost = asyncio.Event()
        """The kubelet's stream is over."""
        self._all_closed = asyncio.Event()
        self._all_closed.set()

    async def serve(self, send: Send) -> None:
        """One stream, until this side closes it or the other is gone (then this is cancelled, or `send` fails)."""
        with self._open():
            pacing = Pacing()
            clock = asyncio.get_running_loop().time
            while True:
                latest = self._resource.latest.device_list
                due = pacing.seconds_until_due(latest, clock())
                if due is None and self._closing:
                    return
                if due == 0 or (due is not None and self._closing):
                    await send(latest)
                    pacing.sent(latest, clock())
                    SENDS.labels(self._resource.latest.name).inc()
                else:
                    await self._resource.changed.wait(due)

    def close(self) -> None:
        """End every stream with what it still has to say."""
        self._closing = True
        self._resource.changed.tell()

    async def closed(self) -> None:
        """Until the last one is over, and what had to be done at its end has been done."""
        await self._all_closed.wait()

    @contextmanager
    def _open(self) -> Iterator[None]:
        is_first = not self.opened.is_set()
        self.opened.set()
        self._add(1)
        try:
            yield
        finally:
            if is_first:
                self.lost.set()
            self._add(-1)

    def _add(self, streams: int) -> None:
        self._count += streams
        if self._count:
            self._all_closed.clear()
        else:
            self._all_closed.set()
        self._count_changed(self._count)
