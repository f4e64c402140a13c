"""One driver in one of the two processes: its two sockets, and what the kubelet reports.

    starts    waits while the last instance's process still answers at the service socket, if that holds it back
    serves    registration socket, then, once the kubelet asks there, service socket; either is made again within a
              second once it is not its own
    hands over, to the same process of the next instance, so that one of the pair is registered at each moment:
              the one that the kubelet does not call gives its service socket away at once, and is replaced while the
              kubelet calls the other; that one ends once the kubelet calls the successor of the first
    ends      when no call is in progress: connections end first, and the kubelet turns to the twin, then the files go

A registration that is replaced cuts the calls that are in progress over the old one (`remove` of
pkg/kubelet/cm/dra/plugin/dra_plugin_manager.go, Kubernetes 1.37); that is why the order is the kubelet's.
"""

import asyncio
import logging
import time
from typing import NoReturn

import grpc.aio

from devherd.backoff import Backoff
from devherd.dra.health import VERSIONS as HEALTH_VERSIONS
from devherd.dra.health import DriverHealth
from devherd.dra.registrations import Registrations, twin_of
from devherd.dra.service import VERSIONS, ClaimCalls
from devherd.dra.sockets import SocketServer, registration_socket, service_socket
from devherd.errors import DevherdError
from devherd.kubelet.deadline import MuteError
from devherd.kubelet.plugins_registry import FIND_SECONDS, Found
from devherd.kubelet.registration import knock
from devherd.proto import pluginregistration_v1_pb2 as api
from devherd.settings import Settings

log = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 5.0
PREDECESSOR_SECONDS = 15.0
"""Limit for the wait for the last instance's process."""
LATE_SECONDS = 0.25
"""A call that the kubelet was about to make to a replaced process arrives within this time."""
DRAIN_SECONDS = 4.0
"""Limit for the calls in progress at the end: the supervisor kills after 5 s."""
STOP_SECONDS = 0.2
"""Grace for an answer of a registration on its way."""
LOOK_AT_NEXT_SECONDS = 0.05
"""Between two looks whether the next instance, or the last one, has come so far."""

SERVICES = [f"{version}.DRAPlugin" for version in VERSIONS]
SERVICES += [f"{version}.DRAResourceHealth" for version in HEALTH_VERSIONS]
"""What the kubelet may choose from."""


class Driver:
    """Serves one driver: `run` until it is cancelled, then `end`."""

    def __init__(
        self,
        name: str,
        letter: str,
        settings: Settings,
        registrations: Registrations,
        *,
        calls: ClaimCalls,
        health: DriverHealth,
    ) -> None:
        self._name = name
        self._letter = letter
        self._settings = settings
        self._registrations = registrations
        self._calls = calls
        self._health = health
        self._service: SocketServer | None = None
        self._registration: SocketServer | None = None
        self._found: Found | None = None
        self._opened_at = 0.0
        self._opening = asyncio.Lock()
        """Held while the service's server is made."""

    async def run(self) -> NoReturn:
        """Serve, and never give up. Raises MuteError if gRPC ends nothing any more."""
        await self._until_free()
        pauses = Backoff(LOOK_SECONDS, LONGEST_PAUSE_SECONDS)
        while True:
            try:
                await self._look()
            except MuteError:
                raise
            except (OSError, DevherdError) as error:
                self._registrations.fails(self._name, str(error))
            except Exception as error:  # one driver must not cost the others
                log.exception("%s cannot be served", self._name)
                self._registrations.fails(self._name, f"a defect: {error!r}")
            else:
                pauses.reset()
            await asyncio.sleep(pauses.seconds())

    async def hand_over(self) -> None:
        """Return once the next instance serves the driver in this process's place; `run` is cancelled before."""
        states, twin = self._registrations, twin_of(self._letter)
        is_called = states.was_last(self._name)
        if self._service is not None and not is_called:
            self._service.remove()
        while not states.has_next(twin if is_called else self._letter, self._name):  # noqa: ASYNC110 - a file
            await asyncio.sleep(LOOK_AT_NEXT_SECONDS)
        await asyncio.sleep(LATE_SECONDS)
        await self.end()

    async def end(self) -> None:
        """Return when no call is in progress, with no file left that is their own. The process ends at once then.

        The servers end with it. gRPC would end the streams first and connections after them, and the kubelet would call
        meanwhile where nobody listens any more; the kernel ends all connections at once, and the twin is called.
        """
        if self._service is not None:
            await self._calls.idle(DRAIN_SECONDS)
            self._service.remove()
        if self._registration is not None:
            self._registration.remove()

    async def _until_free(self) -> None:
        """Return once no other process answers at the service socket, or after PREDECESSOR_SECONDS."""
        path = service_socket(self._settings, self._name, self._letter)
        until = time.monotonic() + PREDECESSOR_SECONDS
        while knock(path) is None and time.monotonic() < until:
            self._registrations.is_not_registered(self._name, "waiting for the process before to hand over")
            await asyncio.sleep(LOOK_AT_NEXT_SECONDS)

    async def _look(self) -> None:
        self._new_service().check()
        async with self._opening:
            if self._service is not None and not self._service.is_there():
                await self._serve()
        if self._registration is None or not self._registration.is_there() or self._is_overlooked():
            await self._show()

    def _is_overlooked(self) -> bool:
        """Whether no kubelet has found the socket in time: it has missed the file, and needs a new one."""
        is_asked = self._found is not None and self._found.was_asked
        return not is_asked and time.monotonic() - self._opened_at >= FIND_SECONDS

    async def _is_ready(self) -> bool:
        """Serve, if not yet, before the kubelet is told where: it has cut its connection to an earlier process by then.

        While it has that, it would connect to this one in its place, and cut calls that are in progress here.
        """
        try:
            async with self._opening:
                if self._service is None:
                    await self._serve()
        except (OSError, DevherdError) as error:
            self._registrations.fails(self._name, str(error))
        return self._service is not None

    def _new_service(self) -> SocketServer:
        path = service_socket(self._settings, self._name, self._letter)
        if path.parent.parent.is_dir():  # that is the kubelet's own
            path.parent.mkdir(mode=0o750, exist_ok=True)
        return SocketServer(path, self._add_services)

    async def _serve(self) -> None:
        before, service = self._service, self._new_service()
        await service.open()
        self._service = service
        if before is not None:
            log.warning("%s was removed; it was made again", service.path)
            await self._calls.idle(DRAIN_SECONDS)
            await before.close(0)

    async def _show(self) -> None:
        """Make a registration socket, which a kubelet takes for a new plugin."""
        before, self._registration = self._registration, None
        path = registration_socket(self._settings, self._name, self._letter)
        info = api.PluginInfo(
            type="DRAPlugin",
            name=self._name,
            endpoint=str(service_socket(self._settings, self._name, self._letter)),
            supported_versions=SERVICES,
        )
        found = Found(info, str(path.parent), self._told, self._is_ready)
        registration = SocketServer(path, found.serve)
        if before is None:
            why = f"waiting for the kubelet to look into {path.parent}"
        elif before.is_there():
            why = f"the kubelet has not looked into {path.parent} for {FIND_SECONDS:.0f} s"
        else:
            why = f"{path} was removed; it was made again"
            log.warning("%s", why)
        self._registrations.is_not_registered(self._name, why)
        await registration.open()
        self._registration, self._found, self._opened_at = registration, found, time.monotonic()
        if before is not None:
            await before.close(STOP_SECONDS)

    def _told(self, status: api.RegistrationStatus) -> None:
        if status.plugin_registered:
            self._registrations.registered(self._name)
        else:
            self._registrations.fails(self._name, f"the kubelet refused: {status.error}")

    def _add_services(self, server: grpc.aio.Server) -> None:
        self._calls.serve(server)
        self._health.serve(server)
