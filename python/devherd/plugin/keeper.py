"""Keeps a resource registered: one server generation after another, for as long as the process lives."""

import asyncio
import logging
import time
from typing import NoReturn

from devherd.plugin import endpoint
from devherd.plugin.backoff import Backoff
from devherd.plugin.endpoint import Endpoint, Identity
from devherd.plugin.generation import Ended, Generation
from devherd.plugin.kubelet import Kubelet
from devherd.plugin.resource_file import ResourceFile
from devherd.plugin.state import State

log = logging.getLogger(__name__)

STEADY_SECONDS = 5.0
"""A registration that lasted this long was good: what ends it is no failure."""
_REPEAT_SECONDS = 300.0  # the same failure is logged again after this time


class Keeper:
    """Waits for the kubelet, registers, and begins anew whenever that is lost. It never gives up."""

    def __init__(self, resource: ResourceFile, kubelet: Kubelet, state: State) -> None:
        self._resource = resource
        self._kubelet = kubelet
        self._state = state
        self._backoff = Backoff()
        self._failure = ""
        self._logged_at = 0.0

    async def run(self) -> NoReturn:
        """Until it is cancelled; then the generation of the moment has stopped cleanly."""
        name = self._resource.latest.name
        number = endpoint.last_generation(self._kubelet.directories, name, self._state.generation)
        for stale in endpoint.remove_stale(self._kubelet.directories, name):
            log.info("removed %s, which an earlier process left behind", stale)
        try:
            while True:
                number += 1
                await self._one(Endpoint(self._kubelet.directory, name, number))
        finally:
            self._state.is_not_registered("stopped")

    async def _one(self, socket: Endpoint) -> None:
        met = await self._kubelet.accepting(self._is_waiting)
        self._state.begins(socket.generation, socket.name, self._kubelet.pending, self._failure)
        ended = await Generation(socket, self._resource, self._kubelet, met, self._state).run()
        self._state.is_not_registered(ended.reason)
        if not ended.was_met or (ended.watched_seconds is not None and ended.watched_seconds >= STEADY_SECONDS):
            self._backoff.reset()
        pause = self._backoff.seconds()
        self._log(ended, pause)
        await self._pause(pause, met)

    async def _pause(self, seconds: float, met: Identity | None) -> None:
        """Wait, unless the kubelet is another by then: what the old one did is not held against it."""
        clock = asyncio.get_running_loop().time
        until = clock() + seconds
        while (left := until - clock()) > 0:
            if self._kubelet.identity() != met:
                self._backoff.reset()
                return
            await self._kubelet.changed.wait(left)

    def _is_waiting(self, why: str) -> None:
        log.warning("waiting for the kubelet: %s", why)
        self._state.is_not_registered(f"waiting for the kubelet: {why}")

    def _log(self, ended: Ended, pause: float) -> None:
        if ended.watched_seconds is not None:
            self._failure = ""
            log.warning("%s; it was registered for %.1f s; registering anew", ended.reason, ended.watched_seconds)
            return
        now = time.monotonic()
        if ended.reason != self._failure or now - self._logged_at > _REPEAT_SECONDS:
            self._failure, self._logged_at = ended.reason, now
            log.warning("not registered: %s; trying again in %.2f s", ended.reason, pause)
