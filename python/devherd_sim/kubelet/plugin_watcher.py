"""Registration without Register: plugins put a socket below `plugins_registry`, and the kubelet calls GetInfo on it."""

import asyncio
import contextlib
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import grpc

from devherd.proto import pluginregistration_v1_pb2 as api
from devherd.proto.pluginregistration_v1_pb2_grpc import RegistrationStub
from devherd.text import is_resource_name
from devherd_sim.kubelet.connections import ConnectedPlugins, PluginError
from devherd_sim.kubelet.events import Events
from devherd_sim.kubelet.go_words import quoted, text

if TYPE_CHECKING:
    from devherd.proto.pluginregistration_v1_pb2_grpc import RegistrationAsyncStub

DIAL_SECONDS = 10.0
GET_INFO_SECONDS = 1.0
NOTIFY_SECONDS = 5.0
VERSION = "v1beta1"
_ERROR = "RegisterPlugin error --"


class RefusedPluginError(Exception):
    """A plugin could not be registered; the message is the one in the kubelet's log."""


@dataclass(frozen=True, slots=True)
class Registered:
    """A plugin's registration: its resource and its endpoint."""

    resource: str
    endpoint: str
    """Path of the socket at which it serves the resource."""


class PluginSocket:
    """A socket on which a plugin may listen."""

    def __init__(self, path: str) -> None:
        self._path = path

    async def register(self, connections: ConnectedPlugins) -> Registered:
        """Register the plugin. Raises RefusedPluginError; the plugin is notified if possible."""
        options = [("grpc.default_authority", quote(self._path, safe="")), ("grpc.use_local_subchannel_pool", 1)]
        async with grpc.aio.insecure_channel(f"unix:{self._path}", options=options) as channel:
            try:
                await asyncio.wait_for(channel.channel_ready(), DIAL_SECONDS)
            except TimeoutError as error:
                raise RefusedPluginError(
                    f"{_ERROR} dial failed at socket {self._path}, err: failed to dial socket {self._path}, "
                    "err: context deadline exceeded"
                ) from error
            return await self._register(RegistrationStub(channel), connections)

    async def _register(self, plugin: "RegistrationAsyncStub", connections: ConnectedPlugins) -> Registered:
        info = await self._info(plugin)
        refusal = self._refusal(info)
        if refusal is not None:
            await self._notify(plugin, refusal)
            raise RefusedPluginError(refusal)
        try:
            await connections.connect(info.name, info.endpoint or self._path, None)
        except PluginError as error:
            refusal = f"{_ERROR} plugin registration failed with err: {error}"
            await self._notify(plugin, refusal)
            raise RefusedPluginError(refusal) from error
        try:
            await self._notify(plugin)
        except RefusedPluginError:
            await connections.let_go(info.name, info.endpoint or self._path)
            raise
        return Registered(info.name, info.endpoint or self._path)

    async def _info(self, plugin: "RegistrationAsyncStub") -> api.PluginInfo:
        try:
            return await plugin.GetInfo(api.InfoRequest(), timeout=GET_INFO_SECONDS)
        except grpc.aio.AioRpcError as error:
            raise RefusedPluginError(
                f"{_ERROR} failed to get plugin info using RPC GetInfo at socket {self._path}, err: {text(error)}"
            ) from error

    def _refusal(self, info: api.PluginInfo) -> str | None:
        """The reason to refuse a plugin's description; None if it is valid."""
        if info.type != "DevicePlugin":
            return f"{_ERROR} no handler registered for plugin type: {info.type} at socket {self._path}"
        versions = list(info.supported_versions)
        if VERSION not in versions:
            wrong = f"manager version, {VERSION}, is not among plugin supported versions [{' '.join(versions)}]"
        elif not is_resource_name(info.name):
            wrong = f"invalid name of device plugin socket: the ResourceName {quoted(info.name)} is invalid"
        else:
            return None
        return f"{_ERROR} plugin validation failed with err: {wrong}"

    async def _notify(self, plugin: "RegistrationAsyncStub", error: str = "") -> None:
        """Notify the plugin. Raises RefusedPluginError when the call fails."""
        status = api.RegistrationStatus(plugin_registered=not error, error=error)
        try:
            await plugin.NotifyRegistrationStatus(status, timeout=NOTIFY_SECONDS)
        except grpc.aio.AioRpcError as failed:
            what = "error" if error else "registration status"
            raise RefusedPluginError(
                f"{_ERROR} failed to send {what} at socket {self._path}, err: {error}: {text(failed)}"
            ) from failed


PERIOD_SECONDS = 1.0
FIRST_BACKOFF_SECONDS = 0.5
LONGEST_BACKOFF_SECONDS = 122.0

Incarnation = tuple[int, int]
"""Inode and change time of a socket, which differ for a socket created again at the same path."""


@dataclass(slots=True)
class _Found:
    socket: PluginSocket
    incarnation: Incarnation
    registered: Registered | None = None
    retry_at: float = 0.0
    backoff: float = FIRST_BACKOFF_SECONDS
    attempt: asyncio.Task[None] | None = field(default=None)


class PluginWatcher:
    """Watches one directory and all below it, from `start` to `stop`."""

    def __init__(self, directory: Path, connections: ConnectedPlugins, events: Events) -> None:
        self._directory = directory
        self._connections = connections
        self._events = events
        self._found: dict[str, _Found] = {}
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start to watch. Raises OSError when the directory cannot be created."""
        self._directory.mkdir(parents=True, exist_ok=True)
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Stop watching. Registered plugins stay connected."""
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
        was = found.registered
        self._events.record("plugin-gone", was.resource if was else "", socket=path)
        if found.attempt and not found.attempt.done():
            found.attempt.cancel()
            await asyncio.gather(found.attempt, return_exceptions=True)
        if found.registered is not None:
            await self._connections.let_go(found.registered.resource, found.registered.endpoint)

    def _attend(self, path: str, incarnation: Incarnation) -> None:
        if path not in self._found:
            self._events.record("plugin-found", socket=path)
            self._found[path] = _Found(PluginSocket(path), incarnation)
        found = self._found[path]
        busy = found.attempt is not None and not found.attempt.done()
        if found.registered is None and not busy and asyncio.get_running_loop().time() >= found.retry_at:
            found.attempt = asyncio.create_task(self._register(path, found))

    async def _register(self, path: str, found: _Found) -> None:
        try:
            found.registered = await found.socket.register(self._connections)
        except RefusedPluginError as error:
            self._events.record("plugin-refused", socket=path, error=str(error))
            found.retry_at = asyncio.get_running_loop().time() + found.backoff
            found.backoff = min(2 * found.backoff, LONGEST_BACKOFF_SECONDS)
        else:
            self._events.record("registered", found.registered.resource, endpoint=path)


def _sockets(directory: Path) -> Iterator[tuple[str, Incarnation]]:
    """Yields the sockets below a directory, except hidden ones; skips entries that are removed meanwhile."""
    for where, directories, names in os.walk(directory):
        directories[:] = sorted(name for name in directories if not name.startswith("."))
        for name in sorted(names):
            path = Path(where, name)
            with contextlib.suppress(FileNotFoundError):
                status = path.stat()
                if stat.S_ISSOCK(status.st_mode) and not name.startswith("."):
                    yield str(path), (status.st_ino, status.st_ctime_ns)
