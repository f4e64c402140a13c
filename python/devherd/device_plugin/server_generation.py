"""One server generation: a fresh socket, a server on it, one registration, the watch until there is a reason to end."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc.aio

from devherd import counted, spool
from devherd.amounts import amount
from devherd.device_plugin.forgotten_check import until_forgotten
from devherd.device_plugin.resource_file import ResourceFile
from devherd.device_plugin.service import DevicePlugin
from devherd.device_plugin.state import State
from devherd.device_plugin.stream import Streams
from devherd.errors import DevherdError
from devherd.kubelet.endpoint import Endpoint, Identity, target
from devherd.kubelet.registration import NotFoundError, RegistrationError
from devherd.kubelet.registration_socket import Kubelet
from devherd.proto.deviceplugin_v1beta1_pb2_grpc import add_DevicePluginServicer_to_server

WATCH_DEADLINE_SECONDS = 5.0
"""The kubelet opens ListAndWatch when it registers and never tries again: one that has not come will not come."""
STOP_SECONDS = 0.5
"""For streams to end and answers to leave; a kubelet that does not read gets no more."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Ended:
    """Why a generation has ended, and for how long the kubelet had watched it (None: it was never registered)."""

    reason: str
    watched_seconds: float | None = None
    was_met: bool = True
    """Whether there was a kubelet at all: without one nothing has failed."""


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
        """Serve, register, and stay until the kubelet closes the stream or a new registration is needed."""
        began = time.monotonic()
        try:
            async with self._serving():
                ended = await self._live(began)
        except NotFoundError as error:
            return Ended(str(error), was_met=False)
        except (DevherdError, OSError, RegistrationError) as error:
            ended = Ended(str(error))
        if ended.watched_seconds is None:
            self._state.counters.add(counted.REGISTRATION_FAILURES, self._resource.latest.name)
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
        try:  # from the bind on, whatever ends this (SIGTERM while the server starts) removes the socket
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
        """The reason to end that comes first: one that is seen here, or devices that the kubelet has lost."""
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
        """Register and wait for the kubelet's stream; the time at which it was opened. Raises RegistrationError."""
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
        self._state.counters.add(counted.REGISTRATIONS, resource_name)
        devices = amount(len(self._resource.latest.devices), "device")
        said = f"with the kubelet: {devices} ({(since - began) * 1000:.0f} ms)"
        log.info("registered %s %s", resource_name, said)
        log.debug("registered on %s; %.1f ms of it in the kubelet", self._endpoint.name, (answered - asked) * 1000)
        self._state.history.note("registered", f"registered {said}", resource_name=resource_name)
        if self._kubelet.has_restarted():
            self._state.counters.add(counted.KUBELET_RESTARTS)
        self._state.is_registered()
        return since

    async def _over(self) -> str:
        while (reason := self._reason_to_end()) is None:
            await self._kubelet.changed.wait()
        return reason

    def _count_streams(self, count: int) -> None:
        self._state.has_streams(count)
        self._kubelet.changed.tell()

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


async def _to_the_end(work: Coroutine[Any, Any, None]) -> None:
    """Finish the work even when this task is cancelled meanwhile, and only then pass the cancellation on.

    A server that is stopped by half keeps its socket, and a thread for which the end of the process waits.
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
        raise OSError(f"cannot bind {path}: {error}") from error
