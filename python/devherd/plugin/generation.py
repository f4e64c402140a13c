"""One server generation: a fresh socket, a server on it, one registration, the watch until there is a reason to end."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import grpc.aio
from prometheus_client import Counter

from devherd.errors import DevherdError
from devherd.plugin.endpoint import Endpoint, Identity, target
from devherd.plugin.kubelet import Kubelet
from devherd.plugin.registration import NotFoundError, RegistrationError
from devherd.plugin.resource_file import ResourceFile
from devherd.plugin.service import DevicePlugin
from devherd.plugin.state import State
from devherd.plugin.stream import Streams
from devherd.proto.deviceplugin_v1beta1_pb2_grpc import add_DevicePluginServicer_to_server

REGISTRATIONS = Counter("devherd_registrations", "Registrations with the kubelet.", ["resource_name"])
REGISTRATION_FAILURES = Counter("devherd_registration_failures", "Registrations that failed.", ["resource_name"])

WATCH_DEADLINE_SECONDS = 5.0
"""The kubelet opens ListAndWatch when it registers and never tries again: one that has not come will not come."""
STOP_SECONDS = 0.5
"""For streams to end and answers to leave; a kubelet that does not read gets no more."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Ended:
    """Why a generation is over, and for how long the kubelet had watched it (None: it never was registered)."""

    reason: str
    watched_seconds: float | None = None
    was_met: bool = True
    """Whether there was a kubelet at all: what nobody has asked for has not failed."""


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
        self._streams = Streams(resource, self._count_streams)

    async def run(self) -> Ended:
        """Serve, register, and stay until the kubelet has let go or must be told anew."""
        began = time.monotonic()
        try:
            async with self._serving():
                ended = await self._live(began)
        except NotFoundError as error:
            return Ended(str(error), was_met=False)
        except (DevherdError, OSError, RegistrationError) as error:
            ended = Ended(str(error))
        if ended.watched_seconds is None:
            REGISTRATION_FAILURES.labels(self._resource.latest.name).inc()
        return ended

    @asynccontextmanager
    async def _serving(self) -> AsyncIterator[None]:
        self._endpoint.check()
        server = grpc.aio.server()
        add_DevicePluginServicer_to_server(DevicePlugin(self._resource, self._streams), server)
        self._registration.serve(server)
        await _listen(server, self._endpoint.path)
        try:
            self._endpoint.bound()
            yield
        finally:
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
        """Why it is over: what this side sees, or what the kubelet has to be asked for."""
        forgotten = asyncio.create_task(self._kubelet.forgets(self._resource))
        try:
            await asyncio.wait((over, forgotten), return_when=asyncio.FIRST_COMPLETED)
            return over.result() if over.done() else forgotten.result()
        finally:
            forgotten.cancel()
            await asyncio.gather(forgotten, return_exceptions=True)

    async def _join(self, began: float) -> float:
        """Be registered and see the kubelet watch; the time since which it does. Raises RegistrationError."""
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
        REGISTRATIONS.labels(resource_name).inc()
        log.info(
            "registered %s on %s in %.1f ms, of which the kubelet took %.1f ms",
            resource_name,
            self._endpoint.name,
            (since - began) * 1000,
            (answered - asked) * 1000,
        )
        self._kubelet.has_registered()
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
            return "the kubelet was restarted: kubelet.sock is another one"
        if not self._endpoint.is_there():
            return f"{self._endpoint.name} was removed"
        if self._resource.latest.options != self._options:
            return "the options changed, and the kubelet asks for them only when a server registers"
        return None


async def _listen(server: grpc.aio.Server, path: Path) -> None:
    try:
        server.add_insecure_port(target(path))
    except RuntimeError as error:
        raise OSError(f"{path}: cannot be bound: {error}") from error
    await server.start()
