"""Keeps a resource registered: one server generation after another, for as long as the process lives."""

import asyncio
import logging
import time
from typing import NoReturn

from devherd.amounts import duration
from devherd.backoff import Backoff
from devherd.device_plugin.resource_file import ResourceFile
from devherd.device_plugin.server_generation import Generation
from devherd.device_plugin.state import State
from devherd.kubelet import endpoint
from devherd.kubelet.endpoint import Endpoint, Identity
from devherd.kubelet.registration_socket import Kubelet

log = logging.getLogger(__name__)

FIRST_PAUSE_SECONDS = 0.05
"""Between the end of one registration and the next."""
LONGEST_PAUSE_SECONDS = 30.0
JITTER = 0.25
STEADY_SECONDS = 5.0
"""A registration that lasted this long was good: what ends it is no failure."""
_REPEAT_SECONDS = 300.0  # the same failure is logged again after this time


class Registrar:
    """Waits for the kubelet, registers, and starts again whenever the registration is lost. It never gives up."""

    def __init__(self, resource: ResourceFile, kubelet: Kubelet, state: State) -> None:
        self._resource = resource
        self._kubelet = kubelet
        self._state = state
        self._backoff = Backoff(FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS, JITTER)
        self._failure = ""
        self._logged_at = 0.0

    async def run(self) -> NoReturn:
        """Run until cancelled; the current server generation is stopped cleanly then."""
        name = self._resource.latest.name
        number = endpoint.last_generation(self._kubelet.directories, name, self._state.generation)
        for stale in endpoint.remove_stale(self._kubelet.directories, name):
            log.info("removed the stale socket %s of an earlier process", stale)
        try:
            while True:
                number += 1
                await self._one(Endpoint(self._kubelet.directory, name, number))
        finally:
            self._state.is_not_registered("stopped")
            self._state.history.keep()

    async def _one(self, socket: Endpoint) -> None:
        met = await self._kubelet.accepting(self._is_waiting)
        self._state.begins(socket.generation, socket.name, self._kubelet.pending, self._failure)
        ended = await Generation(socket, self._resource, self._kubelet, met, self._state).run()
        if ended.was_met:
            self._state.is_not_registered(ended.reason)
        else:
            self._is_waiting(ended.reason)
        if not ended.was_met or (ended.watched_seconds is not None and ended.watched_seconds >= STEADY_SECONDS):
            self._backoff.reset()
        pause = self._backoff.seconds()
        if ended.was_met and ended.watched_seconds is None:
            self._log_failure(ended.reason, pause)
        await self._pause(pause, met)
        if ended.watched_seconds is not None:
            self._log_end(ended.reason, ended.watched_seconds, met)

    async def _pause(self, seconds: float, met: Identity | None) -> None:
        """Wait, but not longer once the kubelet has been replaced: the failures were the old one's."""
        clock = asyncio.get_running_loop().time
        until = clock() + seconds
        while (left := until - clock()) > 0:
            if self._kubelet.identity() != met:
                self._backoff.reset()
                return
            await self._kubelet.changed.wait(left)

    def _is_waiting(self, why: str) -> None:
        log.debug("waiting for the kubelet: %s", why)  # the supervisor says it once for all resources
        self._state.waits_for_the_kubelet(why)

    def _log_end(self, reason: str, watched_seconds: float, met: Identity | None) -> None:
        """After a pause, by which a kubelet that went can be told from one that is there and has dropped this resource.

        The supervisor says once for all resources that the kubelet went.
        """
        self._failure = ""
        went = self._kubelet.is_away() or self._kubelet.identity() != met
        self._say(
            f"{reason} after {duration(watched_seconds)}; registering again", logging.DEBUG if went else logging.WARNING
        )

    def _log_failure(self, reason: str, pause: float) -> None:
        now = time.monotonic()
        if reason != self._failure or now - self._logged_at > _REPEAT_SECONDS:
            self._failure, self._logged_at = reason, now
            self._say(f"not registered: {reason}; trying again in {pause:.2f} s")

    def _say(self, what: str, level: int = logging.WARNING) -> None:
        log.log(level, "%s", what)
        self._state.history.note("unregistered", what, resource_name=self._resource.latest.name)
