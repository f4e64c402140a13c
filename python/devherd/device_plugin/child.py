"""Process `resource:<key>`: serves one resource, one server generation after another, until SIGTERM."""

import asyncio
import contextlib
import logging
import time
from pathlib import Path

import grpc.aio

from devherd import log as logs
from devherd import signals, spool
from devherd.backoff import Backoff
from devherd.device_plugin.generation import Generation
from devherd.device_plugin.hand_over import OtherProcess, Predecessor, serve_on
from devherd.device_plugin.recipients import Recipients
from devherd.device_plugin.resource_file import ResourceFile
from devherd.device_plugin.state import State
from devherd.fork import CRASHED
from devherd.history import History
from devherd.kubelet import endpoint
from devherd.kubelet.deadline import MuteError
from devherd.kubelet.endpoint import Endpoint, Identity, prefix, target
from devherd.kubelet.plugins_registry import FindingKubelet
from devherd.kubelet.registration import KubeletSocket
from devherd.process import BEAT_PERIOD_SECONDS, LOOK_PERIOD_SECONDS, RENEW, YIELD, Child
from devherd.text import duration
from devherd.watch import Watch

log = logging.getLogger(__name__)

FIRST_PAUSE_SECONDS = 0.05
"""Shortest pause between the end of one registration and the next."""
LONGEST_PAUSE_SECONDS = 30.0
JITTER = 0.25
STEADY_SECONDS = 5.0
"""A registration that lasted this long was good: its end is not a failure."""
SOON_SECONDS = 0.2
"""Delay from an event at rest to its write, so that the write does not slow the kubelet's call."""
_REPEAT_SECONDS = 300.0  # the same failure is logged again after this time
NAME_PREFIX = "resource:"


def main(child: Child) -> int:
    """The child's main function: runs until SIGTERM, or until it has outgrown its sandbox."""
    return asyncio.run(_run(child))


async def _run(child: Child) -> int:
    # Never used: gRPC without a channel or server ends, and aborts the process if it cannot open a file to begin again.
    async with grpc.aio.insecure_channel(target(child.settings.kubelet_socket)):
        return await ResourceChild(child).run()


class ResourceChild:
    """Two tasks: one sends heartbeats and polls files, the other keeps the resource registered."""

    def __init__(self, child: Child) -> None:
        self._child = child
        self._key = child.name.removeprefix(NAME_PREFIX)
        self._resource = ResourceFile(child.settings.resources_directory, self._key)
        finds = child.settings.registration == "plugins_registry"
        self._kubelet = FindingKubelet(child.settings) if finds else KubeletSocket(child.settings)
        self._state: State | None = None
        self._registrar: Registrar | None = None
        self._recipients: Recipients | None = None
        self._stopped = asyncio.Event()
        self._exit_code = 0
        self._look_at = self._lively_until = 0.0
        """Monotonic seconds: the next poll if no event comes; the end of the time in which each beat polls."""

    async def run(self) -> int:
        """Run until SIGTERM, until a new sandbox is needed, or until gRPC ends nothing more; returns the exit code.

        An exception in either task ends the process, and the supervisor starts another.
        """
        stopped = self._stopped
        signals.on_end(asyncio.get_running_loop(), stopped.set)
        yields = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(YIELD, yields.set)
        with Watch(
            {self._resource.path.parent},
            self._concerns,
            self._look_at_event,
            shared={self._kubelet.path.parent, self._kubelet.directory},
            files=self._files,
            may_watch=self._child.may_watch,
        ) as watch:
            async with asyncio.TaskGroup() as tasks:
                work = [
                    tasks.create_task(self._beat(watch)),
                    tasks.create_task(self._keep_registered()),
                    tasks.create_task(self._yield(yields)),
                ]
                await stopped.wait()
                self._resource.look()  # a removed file becomes an empty list before the streams end
                for task in work:
                    task.cancel()
        return self._exit_code

    async def _beat(self, watch: Watch) -> None:
        was_lively = True
        while True:
            is_lively = self._is_lively(watch)
            looks = is_lively or was_lively or time.monotonic() >= self._look_at  # once more: see `_files`
            rests = not (is_lively or was_lively)
            was_lively = is_lively
            self._child.beat(int(LOOK_PERIOD_SECONDS) if rests else 0)
            if looks:
                watch.add_missing()
                self._look()
            if self._state is not None:
                self._state.keep(restores=looks)
            await self._pause(rests)

    async def _pause(self, rests: bool) -> None:
        """Sleep until the next beat; at rest, until the next poll or until there is something to write."""
        if not rests or self._state is None or self._state.news.is_set():  # set: it could not be written just now
            await asyncio.sleep(BEAT_PERIOD_SECONDS)
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._look_at - time.monotonic()):
                await self._state.news.wait()
            await asyncio.sleep(SOON_SECONDS)

    def _is_lively(self, watch: Watch) -> bool:
        """True if something happens, or if events are not reported."""
        is_settled = self._registrar is not None and self._registrar.is_settled
        return not is_settled or watch.is_blind or time.monotonic() < self._lively_until

    def _files(self) -> list[Path]:
        """The files to watch in the kubelet's directories: its socket, and our sockets once they are settled."""
        registrar = self._registrar
        return [self._kubelet.path, *(registrar.sockets if registrar is not None and registrar.is_settled else [])]

    def _look_at_event(self) -> None:
        self._lively_until = time.monotonic() + self._child.settings.waits.lively
        if self._state is not None:
            self._state.news.set()
        self._look()

    async def _keep_registered(self) -> None:
        await self._resource.loaded()
        logs.about(resource_name=self._resource.latest.name)
        path = spool.path_of(self._child.settings.state_directory, self._key)
        history = History(self._child.settings.history_directory, self._child.name)
        snapshot = self._resource.latest
        self._recipients = Recipients(self._child.settings.pod_resources_socket, history, snapshot)
        self._state = State(path, snapshot.name, history, self._child.waits_for_the_kubelet, self._recipients.allocated)
        self._state.has_read(snapshot.version)
        self._registrar = Registrar(self._resource, self._kubelet, self._state)
        asking = asyncio.create_task(self._recipients.run())
        try:
            await self._registrar.run()
        except MuteError as error:
            log.error("%s", error)
            self._exit_code = CRASHED
        finally:
            asking.cancel()
        self._stopped.set()  # also if it had to hand over, and the kubelet ended the stream earlier

    async def _yield(self, asked: asyncio.Event) -> None:
        """When asked, hand over to the next instance, or end if there is nothing to hand over."""
        await asked.wait()
        generation = await self._registrar.yields() if self._registrar else None
        if generation is not None and self._state is not None:
            self._state.freeze()
            await serve_on(self._child, generation, self._kubelet.directory, self._resource.latest.name)
        self._stopped.set()

    def _look(self) -> None:
        self._look_at = time.monotonic() + LOOK_PERIOD_SECONDS
        if self._child.is_yielding:
            self._resource.look()
            if self._resource.is_gone:
                self._stopped.set()  # the next instance does not serve it
            return
        if not self._stopped.is_set() and self._child.has_outgrown_its_sandbox():
            log.info("a directory in use was created again: restarting, in a sandbox with the new directory")
            self._exit_code = RENEW
            self._stopped.set()
            return
        self._resource.look()
        if self._state is not None:
            self._state.has_read(self._resource.latest.version)
        if self._recipients is not None:
            self._recipients.look(self._resource.latest)
        self._kubelet.changed.notify_all()

    def _concerns(self, entry: str) -> bool:
        """True if an entry concerns this process: inotify reports every entry of the directories to all children."""
        if entry in (self._resource.path.name, self._kubelet.path.name):
            return True
        return self._resource.is_loaded and entry.startswith(prefix(self._resource.latest.name))


class Registrar:
    """Waits for the kubelet, registers, and starts again when the registration is lost. It never gives up."""

    def __init__(self, resource: ResourceFile, kubelet: KubeletSocket, state: State) -> None:
        self._resource = resource
        self._kubelet = kubelet
        self._state = state
        self._backoff = Backoff(FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS, JITTER)
        self._predecessor: Predecessor | None = None
        self._current: Generation | None = None
        self._is_yielding = False
        self._number = 0
        self._failure = ""
        self._logged_at = 0.0

    async def run(self) -> None:
        """Run until cancelled, or until the end of the generation that is handed over. Nothing is served then."""
        name = self._resource.latest.name
        self._number = endpoint.last_generation(self._kubelet.directories, name, self._state.generation)
        if self._kubelet.takes_hand_overs:
            self._predecessor = await OtherProcess.find(self._kubelet.directory, name)
        self._state.predecessor_lists(lists=self._predecessor is not None)
        for stale in endpoint.remove_stale(self._kubelet.directories, name) if self._predecessor is None else ():
            log.info("removed the stale socket %s of an earlier process", stale)
        try:
            while not self._is_yielding:
                await self._one()
        finally:
            if self._predecessor is not None:
                await self._predecessor.stop()
            self._state.is_not_registered("stopped")
            self._state.keep()

    @property
    def is_settled(self) -> bool:
        """True while the kubelet watches the current server, and no other server of the resource is left."""
        return self._current is not None and self._current.is_registered and not self._is_yielding

    @property
    def sockets(self) -> list[Path]:
        """The sockets of the current server."""
        return self._current.sockets if self._current is not None else []

    async def yields(self) -> Generation | None:
        """Return the generation to hand over, after which no other starts; None if none is registered."""
        self._is_yielding = True
        while self._current is not None and self._current.is_taking_over:
            await self._kubelet.changed.wait()
        if self._current is None or not self._current.is_registered or not self._kubelet.takes_hand_overs:
            return None
        self._current.yields()
        return self._current

    def _next_endpoint(self) -> Endpoint:
        self._number += 1
        self._state.uses(self._number)
        return Endpoint(self._kubelet.directory, self._resource.latest.name, self._number)

    async def _one(self) -> None:
        met = await self._kubelet.accepting(self._is_waiting)
        predecessor = await self._living_predecessor(met)
        self._current = Generation(self._next_endpoint, self._resource, self._kubelet, met, self._state)
        self._state.begins(self._current.endpoint.name, self._kubelet.pending, self._failure)
        ended = await self._current.run(predecessor)
        if self._is_yielding:
            return
        if ended.lives:
            self._predecessor = self._current
            log.info("%s; replacing the server", ended.reason)
            return
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

    async def _living_predecessor(self, met: Identity | None) -> Predecessor | None:
        predecessor = self._predecessor
        if predecessor is not None and not predecessor.lives(met):
            await predecessor.stop()
            self._predecessor = None
            self._state.predecessor_lists(lists=False)
        return self._predecessor

    async def _pause(self, seconds: float, met: Identity | None) -> None:
        """Wait, but stop once the kubelet has been replaced: only the old one caused the failures."""
        clock = asyncio.get_running_loop().time
        until = clock() + seconds
        while (left := until - clock()) > 0:
            if self._kubelet.identity() != met:
                self._backoff.reset()
                return
            await self._kubelet.changed.wait(left)

    def _is_waiting(self, why: str) -> None:
        log.debug("waiting for the kubelet: %s", why)  # the supervisor logs it once for all resources
        self._state.waits_for_the_kubelet(why)

    def _log_end(self, reason: str, watched_seconds: float, met: Identity | None) -> None:
        """Log the end of a registration, after a pause that shows whether the kubelet stopped or dropped this resource.

        The supervisor logs once for all resources that the kubelet has stopped.
        """
        self._failure = ""
        has_stopped = self._kubelet.is_away() or self._kubelet.identity() != met
        self._say(
            f"{reason} after {duration(watched_seconds)}; registering again",
            logging.DEBUG if has_stopped else logging.WARNING,
        )

    def _log_failure(self, reason: str, pause: float) -> None:
        now = time.monotonic()
        if reason != self._failure or now - self._logged_at > _REPEAT_SECONDS:
            self._failure, self._logged_at = reason, now
            self._say(f"not registered: {reason}; trying again in {pause:.2f} s")

    def _say(self, what: str, level: int = logging.WARNING) -> None:
        log.log(level, "%s", what)
        self._state.history.note("unregistered", what, resource_name=self._resource.latest.name)
