"""Registration without Register: plugins that put a socket below `plugins_registry` and wait to be found.

The kubelet watches the directory and puts right once a second what differs; this looks once a second. Sockets outlive a
restart of the kubelet, and are found again by it. Source: pkg/kubelet/pluginmanager, Kubernetes 1.36.
"""

import asyncio
import contextlib
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from devherd_sim.kubelet.connections import Connections
from devherd_sim.kubelet.events import Events
from devherd_sim.kubelet.plugin_socket import PluginSocket, RefusedError

PERIOD_SECONDS = 1.0
FIRST_BACKOFF_SECONDS = 0.5
LONGEST_BACKOFF_SECONDS = 122.0

Incarnation = tuple[int, int]
"""Tells a socket from one made again at the same path: inode and time of change."""


@dataclass(slots=True)
class _Found:
    socket: PluginSocket
    incarnation: Incarnation
    resource: str | None = None
    """Set while it is registered."""
    retry_at: float = 0.0
    backoff: float = FIRST_BACKOFF_SECONDS
    attempt: asyncio.Task[None] | None = field(default=None)


class PluginWatcher:
    """Watches one directory and all below it, from `start` to `stop`."""

    def __init__(self, directory: Path, connections: Connections, events: Events) -> None:
        self._directory = directory
        self._connections = connections
        self._events = events
        self._found: dict[str, _Found] = {}
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Look, and go on looking. Raises OSError when the directory cannot be made."""
        self._directory.mkdir(parents=True, exist_ok=True)
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Look no more. What is registered is left to its connection."""
        attempts = [found.attempt for found in self._found.values() if found.attempt]
        tasks = [task for task in (self._task, *attempts) if task]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._found = {}

    async def _run(self) -> None:
        while True:
            there = dict(_sockets(self._directory))
            for path, found in list(self._found.items()):
                if there.get(path) != found.incarnation:
                    await self._drop(path)
            for path, incarnation in there.items():
                self._attend(path, incarnation)
            await asyncio.sleep(PERIOD_SECONDS)

    async def _drop(self, path: str) -> None:
        found = self._found.pop(path)
        self._events.record("plugin-gone", found.resource or "", socket=path)
        if found.attempt and not found.attempt.done():
            found.attempt.cancel()
            await asyncio.gather(found.attempt, return_exceptions=True)
        if found.resource is not None:
            await self._connections.let_go(found.resource)

    def _attend(self, path: str, incarnation: Incarnation) -> None:
        if path not in self._found:
            self._events.record("plugin-found", socket=path)
            self._found[path] = _Found(PluginSocket(path), incarnation)
        found = self._found[path]
        busy = found.attempt is not None and not found.attempt.done()
        if found.resource is None and not busy and asyncio.get_running_loop().time() >= found.retry_at:
            found.attempt = asyncio.create_task(self._register(path, found))

    async def _register(self, path: str, found: _Found) -> None:
        try:
            found.resource = await found.socket.register(self._connections)
        except RefusedError as error:
            self._events.record("plugin-refused", socket=path, error=str(error))
            found.retry_at = asyncio.get_running_loop().time() + found.backoff
            found.backoff = min(2 * found.backoff, LONGEST_BACKOFF_SECONDS)
        else:
            self._events.record("registered", found.resource, endpoint=path)


def _sockets(directory: Path) -> Iterator[tuple[str, Incarnation]]:
    """Every socket below a directory whose name does not begin with a dot. What goes meanwhile is not there."""
    for where, directories, names in os.walk(directory):
        directories[:] = sorted(name for name in directories if not name.startswith("."))
        for name in sorted(names):
            path = Path(where, name)
            with contextlib.suppress(FileNotFoundError):
                status = path.stat()
                if stat.S_ISSOCK(status.st_mode) and not name.startswith("."):
                    yield str(path), (status.st_ino, status.st_ctime_ns)
