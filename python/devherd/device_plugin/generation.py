"""One server generation: a new socket, a server on it, one registration, and the watch for a reason to end."""

import asyncio
import logging
import socket
import time
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc.aio

from devherd import counters, spool
from devherd.device_plugin.resource_file import ResourceFile
from devherd.device_plugin.service import DevicePlugin, Streams
from devherd.device_plugin.state import State
from devherd.errors import DevherdError
from devherd.kubelet.endpoint import Endpoint, Identity, target
from devherd.kubelet.registration import Kubelet, NotFoundError, RegistrationError
from devherd.proto import spool_pb2
from devherd.proto.deviceplugin_v1beta1_pb2_grpc import add_DevicePluginServicer_to_server
from devherd.text import amount

MISSES = 2
"""Consecutive answers without our devices that count as a loss: one may precede our list's arrival at the kubelet."""
LOOKS_A_PERIOD = 4
"""Number of reads of the file in the time between two answers."""

WATCH_DEADLINE_SECONDS = 5.0
"""The kubelet opens ListAndWatch once, when it registers; after this time it will not come."""
STOP_SECONDS = 0.5
"""Grace for streams to end and answers to be sent; a kubelet that does not read gets no more time."""
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Ended:
    """Why a generation has ended, and how long the kubelet had watched it (None: it was never registered)."""

    reason: str
    watched_seconds: float | None = None
    was_met: bool = True
    """True if a kubelet was found: without one, the end is not a failure."""


class Generation:
    """Runs once. It is fully stopped (streams ended, server down, socket unlinked) before `run` returns."""

    def __init__(
        self, endpoint: Endpoint, resource: ResourceFile, kubelet: Kubelet, met: Identity | None, state: State
    ) -> None:
        self._endpoint = endpoint
        self._resource = resource
        self._kubelet = kubelet
        self._met = met
        self._state = state
        self._options = resource.latest.options
        self._registration = kubelet.registration(endpoint, resource.latest.name, self._options)
        self._streams = Streams(resource, state.counters, self._count_streams, state.shows)

    async def run(self) -> Ended:
        """Serve and register, until the kubelet closes the stream or a new registration is needed."""
        began = time.monotonic()
        try:
            async with self._serving():
                ended = await self._live(began)
        except NotFoundError as error:
            return Ended(str(error), was_met=False)
        except (DevherdError, OSError, RegistrationError) as error:
            ended = Ended(str(error))
        if ended.watched_seconds is None:
            self._state.counters.add(counters.REGISTRATION_FAILURES, self._resource.latest.name)
        return ended

    @asynccontextmanager
    async def _serving(self) -> AsyncIterator[None]:
        self._endpoint.check()
        server = grpc.aio.server()
        plugin = DevicePlugin(self._resource, self._streams, self._state.counters, self._state.history)
        add_DevicePluginServicer_to_server(plugin, server)
        self._registration.serve(server)
        _bind(server, self._endpoint.path)
        starting = asyncio.create_task(server.start())
        try:  # from the bind on, every way to end (SIGTERM while the server starts) removes the socket
            self._endpoint.bound()
            await asyncio.shield(starting)
            yield
        finally:
            await _to_the_end(self._stop(server, starting))

    async def _stop(self, server: grpc.aio.Server, starting: asyncio.Task[None]) -> None:
        await asyncio.wait([starting])  # gRPC cannot stop a server that has not started
        self._streams.close()
        await server.stop(STOP_SECONDS)
        await self._streams.closed()
        self._endpoint.remove()

    async def _live(self, began: float) -> Ended:
        over, joined = asyncio.create_task(self._over()), asyncio.create_task(self._join(began))
        try:
            await asyncio.wait((over, joined), return_when=asyncio.FIRST_COMPLETED)
            if not joined.done():
                return Ended(over.result())
            since = joined.result()
            return Ended(await self._first(over), time.monotonic() - since)
        finally:
            over.cancel()
            joined.cancel()
            await asyncio.gather(over, joined, return_exceptions=True)

    async def _first(self, over: asyncio.Task[str]) -> str:
        """The first reason to end: that of `over`, or devices that the kubelet has lost."""
        settings = self._kubelet.settings
        answers = spool.path_of(settings.allocatable_directory, spool.key_of(self._resource.latest.name))
        forgotten = asyncio.create_task(until_forgotten(answers, self._resource, settings.kubelet_check))
        try:
            await asyncio.wait((over, forgotten), return_when=asyncio.FIRST_COMPLETED)
            return over.result() if over.done() else forgotten.result()
        finally:
            forgotten.cancel()
            await asyncio.gather(forgotten, return_exceptions=True)

    async def _join(self, began: float) -> float:
        """Register and wait for the kubelet's stream; returns the monotonic second at which it was there.

        Raises RegistrationError if the kubelet refuses, or opens no stream in time.
        """
        resource_name = self._resource.latest.name
        asked = time.monotonic()
        await self._registration.done()
        answered = time.monotonic()
        try:
            async with asyncio.timeout(WATCH_DEADLINE_SECONDS):
                await self._streams.opened.wait()
        except TimeoutError as error:
            raise RegistrationError(f"the kubelet opened no stream within {WATCH_DEADLINE_SECONDS:.0f} s") from error
        since = time.monotonic()
        self._state.counters.add(counters.REGISTRATIONS, resource_name)
        devices = amount(len(self._resource.latest.devices), "device")
        result = f"with the kubelet: {devices} ({(since - began) * 1000:.0f} ms)"
        log.info("registered %s %s", resource_name, result)
        log.debug("registered on %s; %.1f ms of it in the kubelet", self._endpoint.name, (answered - asked) * 1000)
        self._state.history.note("registered", f"registered {result}", resource_name=resource_name)
        if self._kubelet.has_restarted():
            self._state.counters.add(counters.KUBELET_RESTARTS)
        self._state.is_registered()
        return since

    async def _over(self) -> str:
        while (reason := self._reason_to_end()) is None:
            await self._kubelet.changed.wait()
        return reason

    def _count_streams(self, count: int) -> None:
        self._state.has_streams(count)
        self._kubelet.changed.notify_all()

    def _reason_to_end(self) -> str | None:
        if self._streams.lost.is_set():
            return "the kubelet closed the stream"
        if self._kubelet.needs_another(self._met):
            return "the kubelet was restarted: kubelet.sock was replaced"
        if not self._endpoint.is_there():
            return f"{self._endpoint.name} was removed"
        if self._resource.latest.options != self._options:
            return "the options changed, and the kubelet reads them at registration only"
        return None


async def until_forgotten(answers: Path, resource: ResourceFile, period_seconds: float) -> str:
    """Return the reason to register again once the kubelet lists none of the healthy devices.

    Only answers to requests made after this call count. If the period is 0, without an exporter, or if the kubelet
    does not answer (no PodResources API, no permission for its socket, too slow), this never returns.
    """
    misses, last = 0, time.monotonic()
    while misses < MISSES:
        await asyncio.sleep(period_seconds / LOOKS_A_PERIOD if period_seconds else float("inf"))
        answer = spool.read_or_empty(answers, spool_pb2.Allocatable)
        if last < answer.asked_monotonic_seconds <= time.monotonic():
            last = answer.asked_monotonic_seconds
            healthy = resource.latest.healthy
            misses = misses + 1 if healthy and healthy.isdisjoint(answer.device_ids) else 0
    return "the kubelet has lost our devices, although the stream is still open"


async def _to_the_end(work: Coroutine[Any, Any, None]) -> None:
    """Finish the work even if this task is cancelled, and only then pass the cancellation on.

    A server that is not stopped completely keeps its socket, and a thread that delays the end of the process.
    """
    task = asyncio.create_task(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            cancelled = error
    task.result()
    if cancelled is not None:
        raise cancelled


def _bind(server: grpc.aio.Server, path: Path) -> None:
    try:
        server.add_insecure_port(target(path))
    except RuntimeError as error:
        raise OSError(f"cannot bind {path}: {_refusal(path) or error}") from error


def _refusal(path: Path) -> str | None:
    """The kernel's own word for why a socket cannot be bound, which gRPC does not pass on; None if it can by now."""
    try:
        with socket.socket(socket.AF_UNIX) as probe:
            probe.bind(str(path))
    except OSError as error:
        return error.strerror
    path.unlink(missing_ok=True)
    return None
