"""Registration without Register: plugins put a socket below `plugins_registry`, and the kubelet calls GetInfo on it."""

import asyncio
import contextlib
import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, Protocol
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


class PluginHandler(Protocol):
    """What the kubelet does with plugins of one type, by what they have said at the socket."""

    def refusal(self, info: api.PluginInfo) -> str | None:
        """Why a plugin's description is refused; None if it is valid."""

    async def register(self, info: api.PluginInfo, socket: str) -> None:
        """Use the plugin from now on. Raises PluginError."""

    async def deregister(self, info: api.PluginInfo, socket: str) -> None:
        """Use it no longer: its socket is gone, or is another one."""


class DevicePlugins:
    """The PluginHandler of device plugins; without an endpoint they serve where they were found."""

    def __init__(self, connections: ConnectedPlugins) -> None:
        self._connections = connections

    def refusal(self, info: api.PluginInfo) -> str | None:
        """Why a device plugin's description is refused; None if it is valid."""
        versions = list(info.supported_versions)
        if VERSION not in versions:
            return f"manager version, {VERSION}, is not among plugin supported versions [{' '.join(versions)}]"
        if not is_resource_name(info.name):
            return f"invalid name of device plugin socket: the ResourceName {quoted(info.name)} is invalid"
        return None

    async def register(self, info: api.PluginInfo, socket: str) -> None:
        """Connect to it. Raises PluginError."""
        await self._connections.connect(info.name, info.endpoint or socket, None)

    async def deregister(self, info: api.PluginInfo, socket: str) -> None:
        """Disconnect it."""
        await self._connections.let_go(info.name, info.endpoint or socket)


@dataclass(frozen=True, slots=True)
class Registered:
    """A plugin's registration: what it has said, and who uses it."""

    info: api.PluginInfo
    handler: PluginHandler


class PluginSocket:
    """A socket on which a plugin may listen."""

    def __init__(self, path: str) -> None:
        self._path = path

    async def register(self, handlers: Mapping[str, PluginHandler]) -> Registered:
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
            return await self._register(RegistrationStub(channel), handlers)

    async def _register(self, plugin: "RegistrationAsyncStub", handlers: Mapping[str, PluginHandler]) -> Registered:
        info = await self._info(plugin)
        handler = handlers.get(info.type)
        if handler is None:
            await self._refuse(plugin, f"no handler registered for plugin type: {info.type} at socket {self._path}")
        if refusal := handler.refusal(info):
            await self._refuse(plugin, f"plugin validation failed with err: {refusal}")
        try:
            await handler.register(info, self._path)
        except PluginError as error:
            await self._refuse(plugin, f"plugin registration failed with err: {error}")
        try:
            await self._notify(plugin)
        except RefusedPluginError:
            await handler.deregister(info, self._path)
            raise
        return Registered(info, handler)

    async def _info(self, plugin: "RegistrationAsyncStub") -> api.PluginInfo:
        try:
            return await plugin.GetInfo(api.InfoRequest(), timeout=GET_INFO_SECONDS)
        except grpc.aio.AioRpcError as error:
            raise RefusedPluginError(
                f"{_ERROR} failed to get plugin info using RPC GetInfo at socket {self._path}, err: {text(error)}"
            ) from error

    async def _refuse(self, plugin: "RegistrationAsyncStub", why: str) -> NoReturn:
        refusal = f"{_ERROR} {why}"
        await self._notify(plugin, refusal)
        raise RefusedPluginError(refusal)

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

    def __init__(self, directory: Path, handlers: Mapping[str, PluginHandler], events: Events) -> None:
        """`handlers` are those of each type of plugin."""
        self._directory = directory
        self._handlers = handlers
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
        self._events.record("plugin-gone", was.info.name if was else "", socket=path)
        if found.attempt and not found.attempt.done():
            found.attempt.cancel()
            await asyncio.gather(found.attempt, return_exceptions=True)
        if found.registered is not None:
            await found.registered.handler.deregister(found.registered.info, path)

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
            found.registered = await found.socket.register(self._handlers)
        except RefusedPluginError as error:
            self._events.record("plugin-refused", socket=path, error=str(error))
            found.retry_at = asyncio.get_running_loop().time() + found.backoff
            found.backoff = min(2 * found.backoff, LONGEST_BACKOFF_SECONDS)
        else:
            self._events.record("registered", found.registered.info.name, endpoint=path)


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
