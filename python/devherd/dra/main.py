"""Processes `dra:a` and `dra:b`: each serves every DRA driver of the node, until SIGTERM.

The kubelet knows both as plugins of each driver, and calls the one that it has registered last. It makes a pod wait for
a minute and more if it finds none, so that the end of one of them must cost nothing.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import grpc.aio

from devherd import signals, spool
from devherd.config.api_access import ApiAccess
from devherd.config.resolved import ConfigPart, ResolvedConfig, awaited_config
from devherd.dra.driver import Driver
from devherd.dra.health import DriverHealth
from devherd.dra.pool_files import PoolFiles, node_name
from devherd.dra.preparation import Preparation
from devherd.dra.registrations import LETTERS, Registrations, twin_of
from devherd.dra.service import ClaimCalls
from devherd.dra.sockets import service_socket
from devherd.errors import DevherdError
from devherd.fork import CRASHED, end
from devherd.history import History
from devherd.kubelet import pod_resources
from devherd.kubelet.deadline import MuteError
from devherd.kubelet.endpoint import target
from devherd.kubelet.registration import Broadcast
from devherd.log import Once
from devherd.process import BEAT_PERIOD_SECONDS, RENEW, YIELD, Child
from devherd.proto import spool_pb2
from devherd.spool import Identity, identity_of
from devherd.watch import Watch

if TYPE_CHECKING:
    from devherd.dra.pools import Pools

log = logging.getLogger(__name__)

NAME_PREFIX = "dra:"
TWIN_SECONDS = 15.0
"""Limit for the wait until the twin serves, before this process ends for another one."""
RESTORE_SECONDS = 30.0
"""Between two looks at the CDI specs of claims."""
KUBELET_SECONDS = 3.0
"""A running kubelet finds a socket within one second, or two where it replaces another one."""


def main(child: Child) -> int:
    """The child's main function: runs until SIGTERM, or until another process of its kind is needed."""
    try:
        return asyncio.run(_run(child))
    except DevherdError as error:  # the node has no name that the kubelet could have
        log.error("%s", error)
        return error.exit_code


async def _run(child: Child) -> int:
    # Never used: gRPC without a channel or server ends, and aborts the process if it cannot open a file to begin again.
    async with grpc.aio.insecure_channel(target(child.settings.kubelet_socket)):
        return await DraChild(child).run()


@dataclass(frozen=True, slots=True)
class _Used:
    """What of the configuration the process depends on: it is replaced when that changes."""

    access: ApiAccess | None
    cdi_directory: Path


def _used(config: ResolvedConfig) -> _Used:
    return _Used(config.api_access(), config.cdi_directory)


class DraChild:
    """The drivers of one process. One task looks at files and sends heartbeats, another one serves each driver."""

    def __init__(self, child: Child) -> None:
        self._child = child
        self._letter = child.name.removeprefix(NAME_PREFIX)
        settings = child.settings
        self._config = ConfigPart(settings.resolved_config_file, _used, child.beat)
        self._node = node_name()
        self._pools = PoolFiles(settings)
        config = awaited_config(settings.resolved_config_file, child.beat)
        self._preparation = Preparation(settings, config, self._node, self._pools)
        history = History(settings.history_directory, child.name)
        self._registrations = Registrations(settings.dra_directory, self._letter, history)
        self._accessible = frozenset(self._registrations.names)
        """The drivers that the supervisor knew when it made this process's sandbox."""
        self._drivers: dict[str, Driver] = {}
        self._serving: dict[str, asyncio.Task[None]] = {}
        self._health_changed = Broadcast()
        self._known: Pools | None = None
        self._restored_at = float("-inf")
        self._with_claims: set[str] = set()
        self._twin = TwinProcess(settings.children_file, NAME_PREFIX + twin_of(self._letter))
        self._stopped = asyncio.Event()
        self._exit_code = 0
        self._complaint = Once(log.warning)
        self._waits_since: float | None = None
        self._renewal: tuple[float, float] | None = None
        """Since when another process is needed, as monotonic and as Unix seconds."""

    async def run(self) -> int:
        """Run until SIGTERM, or until another process is needed; returns the exit code.

        An exception in the task that looks at files ends the process, and the supervisor starts another.
        """
        yields, loop = asyncio.Event(), asyncio.get_running_loop()
        signals.on_end(loop, self._stopped.set)
        loop.add_signal_handler(YIELD, yields.set)
        run_dir, may_watch = self._child.settings.run_dir, self._child.may_watch
        with Watch({run_dir}, self._concerns, self._look, may_watch=may_watch) as watch:
            async with asyncio.TaskGroup() as tasks:
                work = [tasks.create_task(self._beat(watch)), tasks.create_task(self._yield(yields))]
                await self._stopped.wait()
                for task in [*work, *self._serving.values()]:
                    task.cancel()
        await asyncio.gather(*self._serving.values(), return_exceptions=True)
        if self._exit_code != CRASHED:
            await self._all(Driver.end)
        self._preparation.close()
        self._registrations.end()
        end(self._exit_code)  # before the loop ends its servers: see Driver.end

    async def _beat(self, watch: Watch) -> None:
        while True:
            self._child.beat()
            watch.add_missing()
            if not self._child.is_yielding:
                self._restore()
            self._look()
            if not self._child.is_yielding:
                self._registrations.keep()
                self._report_wait()
            await asyncio.sleep(BEAT_PERIOD_SECONDS)

    def _restore(self) -> None:
        """Before anything is served, and from time to time, so that removed CDI specs of claims are there again."""
        if time.monotonic() - self._restored_at >= RESTORE_SECONDS:
            self._preparation.restore()
            self._with_claims = self._preparation.drivers()
            self._restored_at = time.monotonic()

    def _report_wait(self) -> None:
        """Report that the kubelet is awaited once it is later than a running one can be."""
        now = time.monotonic()
        self._waits_since = (self._waits_since or now) if self._registrations.waits else None
        self._child.waits_for_the_kubelet(self._waits_since is not None and now - self._waits_since > KUBELET_SECONDS)

    async def _yield(self, asked: asyncio.Event) -> None:
        """When asked, serve on until the next instance does, then end."""
        await asked.wait()
        for task in self._serving.values():
            task.cancel()
        await asyncio.gather(*self._serving.values(), return_exceptions=True)
        self._registrations.freeze()
        self._child.yields()
        await self._all(Driver.hand_over)
        self._stopped.set()

    async def _all(self, do: Callable[[Driver], Awaitable[None]]) -> None:
        """Do it for all drivers at once."""
        try:
            await asyncio.gather(*map(do, self._drivers.values()))
        except MuteError as error:
            self._is_mute(error)

    def _concerns(self, entry: str) -> bool:
        settings = self._child.settings
        return entry in (settings.devices_file.name, settings.offers_file.name, settings.children_file.name)

    def _look(self) -> None:
        if self._stopped.is_set():
            return
        if not self._child.is_yielding and (why := self._why_renewed()):
            self._renew(why)
            if self._stopped.is_set():
                return
        try:
            pod_resources.check()
            self._pools.look()
            self._complaint.over()
        except MuteError as error:
            self._is_mute(error)
            return
        except OSError as error:
            self._complaint.complain("cannot read the devices: %s", error)
        pools = self._pools.pools
        if self._twin.has_changed() or pools is not self._known:  # Prepare looks, too
            self._known = pools
            self._health_changed.notify_all()
        if not self._child.is_yielding:
            self._add_drivers()

    def _why_renewed(self) -> str:
        if self._child.has_outgrown_its_sandbox():
            return "a directory in use was created again"
        return "the configuration has changed" if self._config.has_changed() else ""

    def _renew(self, why: str) -> None:
        """End for another process once the twin serves its drivers: both have the same reason, and `a` goes first."""
        began, at = self._renewal = self._renewal or (time.monotonic(), time.time())
        since = 0.0 if self._letter == LETTERS[0] else at
        is_needed = self._registrations.has_registered
        if is_needed and not self._registrations.twin_serves(since) and time.monotonic() - began < TWIN_SECONDS:
            return
        log.info("%s: restarting", why)
        self._end_with(RENEW)

    def _add_drivers(self) -> None:
        """Serve those that have devices here or have had, and those that have prepared claims."""
        pools = self._pools.pools
        wanted = self._registrations.names | self._with_claims | set(pools.devices if pools else ())
        added = sorted(wanted - self._drivers.keys())
        for name in added:
            self._registrations.begins(name)
        outside = [name for name in added if not self._has_access(name)]
        if outside and self._registrations.keep():  # from this file the supervisor knows them
            self._renew(f"a new sandbox has the directories of {', '.join(outside)}")
        for name in [name for name in added if name not in outside]:
            calls = ClaimCalls(name, self._preparation)
            health = DriverHealth(name, self._node, self._pools, self._health_changed)
            self._drivers[name] = Driver(
                name, self._letter, self._child.settings, self._registrations, calls=calls, health=health
            )
            self._serving[name] = asyncio.create_task(self._serve(self._drivers[name]))

    def _has_access(self, driver: str) -> bool:
        """Whether the sandbox has its directory, or another one would not have it, either."""
        path = service_socket(self._child.settings, driver, self._letter)
        return driver in self._accessible or self._child.may_serve_in(path.parent)

    async def _serve(self, driver: Driver) -> None:
        try:
            await driver.run()
        except MuteError as error:
            self._is_mute(error)

    def _is_mute(self, error: MuteError) -> None:
        log.error("%s", error)
        self._end_with(CRASHED)

    def _end_with(self, exit_code: int) -> None:
        self._exit_code = exit_code
        self._stopped.set()


class TwinProcess:
    """The other process, as the supervisor has it. When it ends, the kubelet forgets the health of all devices."""

    def __init__(self, children_file: Path, name: str) -> None:
        self._file = children_file
        self._name = name
        self._seen: Identity | None = None
        self._pid: int | None = None

    def has_changed(self) -> bool:
        """Whether it is another process than before, or none; that of the first look is no change."""
        seen = identity_of(self._file)
        if seen is None or seen == self._seen:
            return False
        try:
            children = spool.read(self._file, spool_pb2.Children).children
        except (OSError, spool.SpoolError):
            return False
        self._seen, before = seen, self._pid
        self._pid = next((child.pid for child in children if child.name == self._name), 0)
        return before is not None and before != self._pid
