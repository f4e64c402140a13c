"""The device plugin API of one server: its five calls, answered from memory, and the ListAndWatch streams."""

import asyncio
import json
import logging
import os
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import grpc
import grpc.aio

from devherd.counters import (
    ALLOCATION_DURATION,
    ALLOCATION_FAILURES,
    ALLOCATIONS,
    LISTS_SENT,
    PRE_START_REFUSALS,
    PREFERRED_ALLOCATION_DURATION,
    Counters,
)
from devherd.device_plugin.allocation import RefusedError, container_response
from devherd.device_plugin.snapshot import ServedResource
from devherd.history import History
from devherd.process import PRE_START_SECONDS
from devherd.proto import deviceplugin_v1beta1_pb2 as v1beta1
from devherd.proto.deviceplugin_v1beta1_pb2_grpc import DevicePluginServicer
from devherd.spool import HEALTHY
from devherd.text import amount

log = logging.getLogger(__name__)

REST_SECONDS = 0.25
"""Shortest time between two lists on a stream, unless a device has failed since the last one: that is sent at once."""

IDLE_SECONDS = 0.05
"""If a server gets no call for this time, it has answered all that the kubelet has sent."""
_START_SECONDS = 3.0
"""Limit for the start of process `pre-start`."""
LONGEST_WAIT_SECONDS = 2.0
"""Limit for `Calls.idle`: a server that is still called is ended after this time."""

Send = Callable[[v1beta1.ListAndWatchResponse], Awaitable[None]]
Context = grpc.aio.ServicerContext


class Streams:
    """The ListAndWatch streams of a server. They are independent: one that is stuck delays no other.

    The first stream is the kubelet's: it connects to a new socket within milliseconds, and opens another only if a
    second socket of the server is registered (`expect`). When one of them ends, the kubelet has dropped the resource.
    Further streams belong to debugging tools.
    """

    def __init__(
        self,
        resource: ServedResource,
        counters: Counters,
        count_changed: Callable[[int], None],
        shows: Callable[[int | None], None],
    ) -> None:
        """`shows` is called with the version of the list that the kubelet's streams carry, None at their end."""
        self._resource = resource
        self._counters = counters
        self._count_changed = count_changed
        self._shows = shows
        self._shown: dict[asyncio.Event, int] = {}
        """The kubelet's streams, by the event of their opening, and the version of the list that each carries."""
        self._count = 0
        self._closing = False
        self.opened = self._expected = asyncio.Event()
        self.lost = asyncio.Event()
        """Set when a stream of the kubelet has ended."""
        self._all_closed = asyncio.Event()
        self._all_closed.set()

    async def serve(self, send: Send) -> None:
        """Serve one stream until this side closes it or the peer is gone (then this is cancelled, or `send` fails)."""
        with self._open() as kubelets:
            pacing = Pacing()
            clock = asyncio.get_running_loop().time
            while True:
                snapshot = self._resource.latest
                due = pacing.seconds_until_due(snapshot.device_list, clock())
                if due is None and kubelets:
                    self._show(kubelets, snapshot.version)
                if due is None and self._closing:
                    return
                if due == 0 or (due is not None and self._closing):
                    await send(snapshot.device_list)
                    pacing.sent(snapshot.device_list, clock())
                    self._counters.add(LISTS_SENT, snapshot.name)
                    if log.isEnabledFor(logging.DEBUG):  # counting ten thousand devices takes time
                        client = "the kubelet" if kubelets else "another client"
                        log.debug("sent a list to %s: %s", client, _summary(snapshot.device_list))
                else:
                    await self._resource.changed.wait(due)

    def expect(self) -> asyncio.Event:
        """Treat the next stream as the kubelet's, too; returns the event of its opening."""
        self._expected = asyncio.Event()
        return self._expected

    def close(self) -> None:
        """End every stream, after the lists that are still due."""
        self._closing = True
        self._resource.changed.notify_all()

    async def closed(self) -> None:
        """Return once the last stream has ended."""
        await self._all_closed.wait()

    @contextmanager
    def _open(self) -> Iterator[asyncio.Event | None]:
        """Count a stream while it is open; yields the event of its opening if it is the kubelet's."""
        kubelets = None if self._expected.is_set() else self._expected
        self._add(1)
        if kubelets:
            kubelets.set()
            self._show(kubelets, self._resource.latest.version)  # the first list is not older
        try:
            yield kubelets
        finally:
            if kubelets:
                self._show(kubelets, None)
                self.lost.set()
            self._add(-1)

    def _show(self, kubelets: asyncio.Event, version: int | None) -> None:
        if version is None:
            del self._shown[kubelets]
        else:
            self._shown[kubelets] = version
        self._shows(min(self._shown.values(), default=None))

    def _add(self, streams: int) -> None:
        self._count += streams
        if self._count:
            self._all_closed.clear()
        else:
            self._all_closed.set()
        self._count_changed(self._count)


class Calls:
    """Records when the kubelet last called a server, except for ListAndWatch. Answers are quick: they are in memory."""

    def __init__(self) -> None:
        self._last = -IDLE_SECONDS

    def came(self) -> None:
        """Record a call."""
        self._last = time.monotonic()

    async def idle(self) -> None:
        """Return once no call has come for IDLE_SECONDS, or after LONGEST_WAIT_SECONDS."""
        now = time.monotonic()
        until = now + LONGEST_WAIT_SECONDS
        while now < min(until, self._last + IDLE_SECONDS):
            await asyncio.sleep(self._last + IDLE_SECONDS - now)
            now = time.monotonic()


def _summary(device_list: v1beta1.ListAndWatchResponse) -> str:
    unhealthy = sum(device.health != HEALTHY for device in device_list.devices)
    return f"{amount(len(device_list.devices), 'device')}, {unhealthy} unhealthy"


class Pacing:
    """Decides when a list is due on a stream: only if it differs, and REST_SECONDS after the last list at the earliest.

    Each list costs the kubelet a checkpoint and an fsync. A list in which a device is no longer Healthy does not wait:
    the kubelet could give the device to a pod. Pure: time is an argument.
    """

    def __init__(self) -> None:
        self._sent: v1beta1.ListAndWatchResponse | None = None
        self._rested_at = 0.0

    def seconds_until_due(self, latest: v1beta1.ListAndWatchResponse, now: float) -> float | None:
        """Seconds until the list is to be sent, 0.0 for now; None if the peer has it."""
        if self._sent is None:
            return 0.0
        if latest is self._sent or latest == self._sent:
            return None
        rest = max(0.0, self._rested_at - now)
        return 0.0 if rest and _has_lost_health(self._sent, latest) else rest

    def sent(self, device_list: v1beta1.ListAndWatchResponse, now: float) -> None:
        """Record the list that was sent."""
        self._sent = device_list
        self._rested_at = now + REST_SECONDS


def _has_lost_health(before: v1beta1.ListAndWatchResponse, latest: v1beta1.ListAndWatchResponse) -> bool:
    """True if a device that was Healthy is now Unhealthy or missing from the list."""
    healthy = {device.ID for device in latest.devices if device.health == HEALTHY}
    return any(device.health == HEALTHY and device.ID not in healthy for device in before.devices)


class DevicePlugin(DevicePluginServicer):
    """The calls of the kubelet. The methods' names are the protocol's."""

    def __init__(
        self,
        resource: ServedResource,
        streams: Streams,
        calls: Calls,
        counters: Counters,
        history: History,
        *,
        pre_start: Path = Path(os.devnull),
        allocated: Callable[[Sequence[str]], object] = len,
    ) -> None:
        """`pre_start` is the socket of the process that is asked before a container starts.

        `allocated` is called with the ids that a container gets.
        """
        self._resource = resource
        self._pre_start = pre_start
        self._allocated = allocated
        self._calls = calls
        self._counters = counters
        self._history = history
        self._streams = streams

    async def GetDevicePluginOptions(  # noqa: N802
        self, request: v1beta1.Empty, context: Context[v1beta1.Empty, v1beta1.DevicePluginOptions]
    ) -> v1beta1.DevicePluginOptions:
        """Return the options; the kubelet calls this before it answers Register."""
        del request, context
        return self._resource.latest.options

    async def ListAndWatch(  # type: ignore[override]  # noqa: N802 - writes to the stream, so that its end is seen here
        self, request: v1beta1.Empty, context: Context[v1beta1.Empty, v1beta1.ListAndWatchResponse]
    ) -> None:
        """Send the complete list at once, then every list that differs."""
        del request
        await self._streams.serve(context.write)

    async def GetPreferredAllocation(  # noqa: N802
        self,
        request: v1beta1.PreferredAllocationRequest,
        context: Context[v1beta1.PreferredAllocationRequest, v1beta1.PreferredAllocationResponse],
    ) -> v1beta1.PreferredAllocationResponse:
        """Return the devices that fit together best."""
        del context
        self._calls.came()
        began = time.perf_counter()
        snapshot = self._resource.latest
        response = v1beta1.PreferredAllocationResponse()
        for container in request.container_requests:
            chosen = snapshot.preference.choose(
                container.available_deviceIDs, container.must_include_deviceIDs, max(0, container.allocation_size)
            )
            response.container_responses.add(deviceIDs=chosen)
            log.debug(
                "GetPreferredAllocation: %d of %d%s: %s",
                container.allocation_size,
                len(container.available_deviceIDs),
                _including(container.must_include_deviceIDs),
                ", ".join(chosen),
            )
        self._counters.observe(PREFERRED_ALLOCATION_DURATION, time.perf_counter() - began, snapshot.name)
        return response

    async def Allocate(  # noqa: N802
        self, request: v1beta1.AllocateRequest, context: Context[v1beta1.AllocateRequest, v1beta1.AllocateResponse]
    ) -> v1beta1.AllocateResponse:
        """Return the edits of each container. The kubelet may repeat a call, and never reports that ids are free."""
        self._calls.came()
        began = time.perf_counter()
        snapshot = self._resource.latest
        try:
            responses = [container_response(snapshot, list(one.devices_ids)) for one in request.container_requests]
        except RefusedError as refusal:
            self._counters.add(ALLOCATION_FAILURES, snapshot.name)
            self._history.note("allocation", f"refused: {refusal}", resource_name=snapshot.name)
            log.debug("Allocate: refused: %s", refusal)
            await context.abort(refusal.status, str(refusal))
        else:
            self._counters.add(ALLOCATIONS, snapshot.name, amount=len(responses))
            for one in request.container_requests:
                self._note_allocation(snapshot.name, sorted(one.devices_ids))
            return v1beta1.AllocateResponse(container_responses=responses)
        finally:
            self._counters.observe(ALLOCATION_DURATION, time.perf_counter() - began, snapshot.name)

    def _note_allocation(self, resource_name: str, device_ids: list[str]) -> None:
        alone = device_ids[0] if len(device_ids) == 1 else ""
        log.debug("Allocate: %s", ", ".join(device_ids))
        message = f"allocated {', '.join(device_ids)}" if not alone else "allocated"
        self._history.note("allocation", message, resource_name=resource_name, device_id=alone)
        self._allocated(device_ids)

    async def PreStartContainer(  # noqa: N802
        self,
        request: v1beta1.PreStartContainerRequest,
        context: Context[v1beta1.PreStartContainerRequest, v1beta1.PreStartContainerResponse],
    ) -> v1beta1.PreStartContainerResponse:
        """Ask process `pre-start` whether a container with these devices may start, if their rules want that."""
        self._calls.came()
        snapshot = self._resource.latest
        ids = [each for each in request.devices_ids if each in snapshot.devices]
        if any(snapshot.devices[each].asks_before_start for each in ids):
            refusal, done = await may_start(self._pre_start, snapshot.name, ids)
            if refusal:
                self._counters.add(PRE_START_REFUSALS, snapshot.name)
                self._note_start(snapshot.name, ids, f"start refused: {refusal}")
                log.warning("a container may not start with %s: %s", ", ".join(ids), refusal)
                await context.abort(grpc.StatusCode.FAILED_PRECONDITION, refusal)
            if done:
                self._note_start(snapshot.name, ids, f"before the start: {done}")
        return v1beta1.PreStartContainerResponse()

    def _note_start(self, resource_name: str, ids: Sequence[str], message: str) -> None:
        self._history.note(
            "allocation", message, resource_name=resource_name, device_id=ids[0] if len(ids) == 1 else ""
        )


async def may_start(socket: Path, resource_name: str, device_ids: Sequence[str]) -> tuple[str, str]:
    """Process `pre-start`'s answer: why a container with these devices may not start, and what was done for it.

    Each text is empty if there is nothing to report.
    """
    request = {"resource_name": resource_name, "device_ids": [*device_ids]}
    try:
        async with asyncio.timeout(PRE_START_SECONDS):
            reader, writer = await _connected(socket)
            try:
                writer.write(json.dumps(request).encode() + b"\n")
                answer = await reader.readline()
            finally:
                writer.close()
        if answer:
            parts = json.loads(answer)
            return parts["refusal"], parts["done"]
        why = "it has ended"
    except TimeoutError:
        why = f"no answer within {PRE_START_SECONDS:g} s"
    except (OSError, ValueError, KeyError, TypeError) as error:
        why = str(error)
    return f"process pre-start cannot be asked: {why}: see `devherd ctl tail pre-start`", ""


async def _connected(socket: Path) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection to the process, which may be about to start. Raises OSError."""
    until = time.monotonic() + _START_SECONDS
    while True:
        try:
            return await asyncio.open_unix_connection(socket)
        except (FileNotFoundError, ConnectionRefusedError):
            if time.monotonic() > until:
                raise
        await asyncio.sleep(_START_SECONDS / 50)


def _including(ids: Sequence[str]) -> str:
    return f" with {', '.join(ids)}" if ids else ""
