"""One server generation: a new socket, a server on it, one registration, and the watch for a reason to end."""

import asyncio
import logging
import random
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import grpc.aio

from devherd import counters
from devherd.device_plugin.hand_over import PluginConnections, Predecessor, replaced
from devherd.device_plugin.resource_file import ResourceFile
from devherd.device_plugin.service import Calls, DevicePlugin, Streams
from devherd.device_plugin.state import State
from devherd.errors import DevherdError
from devherd.kubelet import deadline
from devherd.kubelet.deadline import MuteError
from devherd.kubelet.endpoint import Endpoint, Identity, Traces, traces_of_others
from devherd.kubelet.pod_resources import allocatable_ids
from devherd.kubelet.registration import KubeletSocket, NotFoundError, RegistrationError, bind
from devherd.proto.deviceplugin_v1beta1_pb2_grpc import add_DevicePluginServicer_to_server
from devherd.text import amount

MISSES = 2
"""Consecutive answers without our devices that count as a loss: the first may precede our list's arrival."""
SHORTEST_PERIOD = 0.8
"""Shortest wait, as a part of a period; the rest is random, so that not all resources ask at once."""
QUIET_PERIODS = 10
"""After this number of periods the kubelet is asked even if nothing indicates that it forgot our devices."""

WATCH_DEADLINE_SECONDS = 5.0
"""The kubelet opens ListAndWatch once, when it registers; after this time it will not come."""
REMOVED_SECONDS = 1.0
"""A kubelet that restarts removes the socket as well, and ends the stream within this time."""
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
    lives: bool = False
    """True if the kubelet still watches it: it continues to serve, as the Predecessor of the next generation."""


class Generation:
    """Runs once. Afterwards it is a Predecessor if `Ended.lives`, otherwise it is fully stopped.

    `next_endpoint` returns an Endpoint that was never used.
    """

    def __init__(
        self,
        next_endpoint: Callable[[], Endpoint],
        resource: ResourceFile,
        kubelet: KubeletSocket,
        met: Identity | None,
        state: State,
    ) -> None:
        self.endpoint = next_endpoint()
        self.is_registered = False
        """True while the kubelet watches it, and no predecessor is left."""
        self.is_taking_over = False
        self._next_endpoint = next_endpoint
        self._second: Endpoint | None = None
        self._resource = resource
        self._kubelet = kubelet
        self._met = met
        self._state = state
        self._options = resource.latest.options
        self._registration = kubelet.registration(self.endpoint, resource.latest.name, self._options)
        self._calls = Calls()
        self._streams = Streams(resource, state.counters, self._count_streams, partial(state.shows, self))
        self._server: grpc.aio.Server | None = None
        self._starting: asyncio.Task[None] | None = None
        self._is_yielding = self._is_released = self._is_removal_said = False
        self._releasing: asyncio.Task[bool] | None = None
        self._removed_at: float | None = None

    async def run(self, predecessor: Predecessor | None = None) -> Ended:
        """Serve and register, until the kubelet closes the stream or a new registration is needed.

        A `predecessor` is released once this one is registered; it still lives if that has failed. Raises MuteError if
        gRPC ends nothing any more: no later generation of this process would be registered.
        """
        began = time.monotonic()
        ended = Ended("stopped")
        try:
            await self._start(predecessor)
            ended = await self._live(began, predecessor)
        except NotFoundError as error:
            return Ended(str(error), was_met=False)
        except MuteError:
            raise
        except (DevherdError, OSError, RegistrationError) as error:
            ended = Ended(str(error))
        finally:
            if not ended.lives:
                await _to_the_end(self.stop())
        if ended.watched_seconds is None:
            self._state.counters.add(counters.REGISTRATION_FAILURES, self._resource.latest.name)
        return ended

    def lives(self, met: Identity | None) -> bool:
        """True while this kubelet watches it."""
        return self._server is not None and not self._streams.lost.is_set() and met == self._met

    def yields(self) -> None:
        """From now on only the end of the stream, or `release`, ends it: the next instance does everything else."""
        self._is_yielding = True

    async def release(self) -> bool:
        """As a Predecessor: end the stream, then the server. Each caller gets the same answer."""
        if self._releasing is None:
            self._releasing = asyncio.create_task(self._release())
        return await asyncio.shield(self._releasing)

    async def _release(self) -> bool:
        await self._calls.idle()
        connections = PluginConnections(self.sockets)
        self._streams.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(STOP_SECONDS):
                await self._streams.closed()
        stay_open = await connections.stay_open()
        await self.stop()
        self._is_released = True
        self._kubelet.changed.notify_all()
        return stay_open

    async def stop(self) -> None:
        """End the server after it has answered the calls that have arrived. Later calls do nothing.

        Raises MuteError if gRPC does not end it.
        """
        server, self._server = self._server, None
        if server is None or self._starting is None:
            return
        await deadline.over(self._starting)  # gRPC cannot stop a server that has not started
        await self._calls.idle()
        self._streams.close()
        await deadline.stop(server, STOP_SECONDS)
        await self._streams.closed()
        for each in self._endpoints:
            each.remove()

    @property
    def sockets(self) -> list[Path]:
        """The paths of its sockets."""
        return [each.path for each in self._endpoints]

    @property
    def _endpoints(self) -> list[Endpoint]:
        return [self.endpoint, *([self._second] if self._second else [])]

    async def _start(self, predecessor: Predecessor | None) -> None:
        self._second = self._next_endpoint() if predecessor else None
        self.endpoint.check()
        server = grpc.aio.server()
        plugin = DevicePlugin(
            self._resource,
            self._streams,
            self._calls,
            self._state.counters,
            self._state.history,
            pre_start=self._kubelet.settings.pre_start_socket,
            allocated=self._state.allocated,
        )
        add_DevicePluginServicer_to_server(plugin, server)
        self._registration.serve(server)
        for each in self._endpoints:
            bind(server, each.path)
        # From the bind on, every way to end (SIGTERM while the server starts) removes the sockets.
        self._server, self._starting = server, asyncio.create_task(server.start())
        for each in self._endpoints:
            each.bound()
        await deadline.over(self._starting)
        self._starting.result()

    async def _live(self, began: float, predecessor: Predecessor | None) -> Ended:
        over, joined = asyncio.create_task(self._over()), asyncio.create_task(self._join(began, predecessor))
        try:
            await asyncio.wait((over, joined), return_when=asyncio.FIRST_COMPLETED)
            if not joined.done():
                return replace(over.result(), lives=False)
            since = joined.result()
            return replace(await self._first(over), watched_seconds=time.monotonic() - since)
        finally:
            self.is_registered = False
            over.cancel()
            joined.cancel()
            await asyncio.gather(over, joined, return_exceptions=True)

    async def _first(self, over: asyncio.Task[Ended]) -> Ended:
        """The first reason to end: the result of `over`, or that the kubelet has lost the devices."""
        settings = self._kubelet.settings
        check = until_forgotten(
            settings.pod_resources_socket,
            self._resource,
            settings.kubelet_check,
            lambda: traces_of_others(settings.socket_directories, self._resource.latest.name, self.sockets),
        )
        forgotten = asyncio.create_task(check)
        try:
            await asyncio.wait((over, forgotten), return_when=asyncio.FIRST_COMPLETED)
            return over.result() if over.done() else Ended(forgotten.result())
        finally:
            forgotten.cancel()
            await asyncio.gather(forgotten, return_exceptions=True)

    async def _join(self, began: float, predecessor: Predecessor | None) -> float:
        """Register and wait for the kubelet's stream; returns the monotonic second at which it was there.

        Raises RegistrationError if the kubelet refuses, or opens no stream in time.
        """
        resource_name = self._resource.latest.name
        asked = time.monotonic()
        await self._registration.done()
        answered = time.monotonic()
        await _opened(self._streams.opened)
        since = time.monotonic()
        self._state.counters.add(counters.REGISTRATIONS, resource_name)
        devices = amount(len(self._resource.latest.device_list.devices), "device")
        result = f"with the kubelet: {devices} ({(since - began) * 1000:.0f} ms)"
        log.info("registered %s %s", resource_name, result)
        log.debug("registered on %s; %.1f ms of it in the kubelet", self.endpoint.name, (answered - asked) * 1000)
        self._state.history.note("registered", f"registered {result}", resource_name=resource_name)
        if self._kubelet.has_restarted():
            self._state.counters.add(counters.KUBELET_RESTARTS)
        self._state.is_registered()
        if predecessor is not None:
            self.is_taking_over = True
            try:
                await self._take_over(predecessor, since)
            finally:
                self.is_taking_over = False
                self._kubelet.changed.notify_all()
        self.is_registered = True
        return since

    async def _take_over(self, predecessor: Predecessor, since: float) -> None:
        assert self._second is not None
        name = self._resource.latest.name
        leaves_open = await replaced(predecessor, self._kubelet, self._next_endpoint(), name)
        self._state.predecessor_lists(lists=False)
        if leaves_open:
            expected = self._streams.expect()
            await self._kubelet.registration(self._second, name, self._options).done()
            await _opened(expected)
        else:
            self._second.remove()
        log.info("took over from the server before, without a gap (%.0f ms)", (time.monotonic() - since) * 1000)

    async def _over(self) -> Ended:
        while (ended := self._reason_to_end()) is None:
            await self._kubelet.changed.wait()
        return ended

    def _count_streams(self, count: int) -> None:
        self._state.has_streams(self, count)
        self._kubelet.changed.notify_all()

    def _reason_to_end(self) -> Ended | None:
        if self._releasing is not None:
            return Ended("handed over") if self._is_released else None
        if self._streams.lost.is_set():
            return Ended("the kubelet closed the stream")
        if self._is_yielding:
            return None
        if self._kubelet.needs_another(self._met):
            return Ended("the kubelet was restarted: kubelet.sock was replaced")
        reason = self._reason_to_be_replaced()
        return Ended(reason, lives=self._kubelet.takes_hand_overs) if reason else None

    def _reason_to_be_replaced(self) -> str:
        if self._is_removed() and not self._kubelet.is_away():  # the stream is of use until there is another one
            return f"{self.endpoint.name} was removed"
        if self._resource.latest.options != self._options:
            return "the options changed, and the kubelet reads them at registration only"
        return ""

    def _is_removed(self) -> bool:
        """True if the socket was removed; logged once if no kubelet accepts registrations for a while."""
        if self.endpoint.is_there():
            self._removed_at = None
            return False
        now = time.monotonic()
        self._removed_at = self._removed_at or now
        if not self._is_removal_said and now - self._removed_at >= REMOVED_SECONDS and self._kubelet.is_away():
            self._is_removal_said = True
            log.warning("%s was removed; the kubelet's stream is still open, and is kept", self.endpoint.name)
        return True


async def _opened(stream: asyncio.Event) -> None:
    """Return once the kubelet has opened a stream. Raises RegistrationError if it does not in time."""
    try:
        async with asyncio.timeout(WATCH_DEADLINE_SECONDS):
            await stream.wait()
    except TimeoutError as error:
        raise RegistrationError(f"the kubelet opened no stream within {WATCH_DEADLINE_SECONDS:.0f} s") from error


async def until_forgotten(
    pod_resources: Path, resource: ResourceFile, period_seconds: float, traces_of_others: Callable[[], Traces | None]
) -> str:
    """Return the reason to register again once the kubelet lists none of the healthy devices.

    A kubelet forgets the devices of an open stream when another plugin registers the resource, sends a list or ends.
    So it is asked when the traces of other plugins have changed since its last answer, while these are unknown, and
    every QUIET_PERIODS. It is not asked more often, because a question costs as much as all else of a period at rest.

    If the period is 0, or if the kubelet does not answer (no PodResources API, no permission for its socket, too slow),
    this never returns.
    """
    misses = quiet = 0
    asked_at: Traces | None = None
    while misses < MISSES:
        part = random.uniform(SHORTEST_PERIOD, 1.0)  # noqa: S311 - chance, not secrecy
        await asyncio.sleep(period_seconds * part or float("inf"))
        traces, quiet = traces_of_others(), quiet + 1
        if traces is not None and traces == asked_at and quiet < QUIET_PERIODS:
            continue
        asked_at = None
        if not _is_there(pod_resources):
            continue
        try:
            listed = (await allocatable_ids(pod_resources)).get(resource.latest.name, set())
        except grpc.aio.AioRpcError as error:
            log.debug("cannot ask %s which devices are allocatable: %s", pod_resources, error.details())
            continue
        healthy = resource.latest.healthy
        misses = misses + 1 if healthy and healthy.isdisjoint(listed) else 0
        asked_at, quiet = None if misses else traces, 0
    return "the kubelet has lost our devices, although the stream is still open"


def _is_there(path: Path) -> bool:
    return path.exists()


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
