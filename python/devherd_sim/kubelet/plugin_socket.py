"""One plugin that waits at a socket below `plugins_registry`: asks who it is, and reports the result."""

import asyncio
from typing import TYPE_CHECKING
from urllib.parse import quote

import grpc

from devherd import resource_name
from devherd.proto import pluginregistration_v1_pb2 as api
from devherd.proto.pluginregistration_v1_pb2_grpc import RegistrationStub
from devherd_sim.kubelet import go_error
from devherd_sim.kubelet.connections import Connections
from devherd_sim.kubelet.endpoint import PluginError

if TYPE_CHECKING:
    from devherd.proto.pluginregistration_v1_pb2_grpc import RegistrationAsyncStub

DIAL_SECONDS = 10.0
GET_INFO_SECONDS = 1.0
NOTIFY_SECONDS = 5.0
VERSION = "v1beta1"
_ERROR = "RegisterPlugin error --"


class RefusedError(Exception):
    """Why a plugin is not registered now, in the words of the kubelet's log."""


class PluginSocket:
    """A socket that may have a plugin behind it."""

    def __init__(self, path: str) -> None:
        self._path = path

    async def register(self, connections: Connections) -> str:
        """Register the plugin for its resource. Raises RefusedError; the plugin gets the reason where possible."""
        options = [("grpc.default_authority", quote(self._path, safe="")), ("grpc.use_local_subchannel_pool", 1)]
        async with grpc.aio.insecure_channel(f"unix:{self._path}", options=options) as channel:
            try:
                await asyncio.wait_for(channel.channel_ready(), DIAL_SECONDS)
            except TimeoutError as error:
                raise RefusedError(
                    f"{_ERROR} dial failed at socket {self._path}, err: failed to dial socket {self._path}, "
                    "err: context deadline exceeded"
                ) from error
            return await self._register(RegistrationStub(channel), connections)

    async def _register(self, plugin: "RegistrationAsyncStub", connections: Connections) -> str:
        info = await self._info(plugin)
        refusal = self._refusal(info)
        if refusal is not None:
            await self._notify(plugin, refusal)
            raise RefusedError(refusal)
        try:
            await connections.connect(info.name, info.endpoint or self._path, None)
        except PluginError as error:
            refusal = f"{_ERROR} plugin registration failed with err: {error}"
            await self._notify(plugin, refusal)
            raise RefusedError(refusal) from error
        try:
            await self._notify(plugin)
        except RefusedError:
            await connections.let_go(info.name)
            raise
        return info.name

    async def _info(self, plugin: "RegistrationAsyncStub") -> api.PluginInfo:
        try:
            return await plugin.GetInfo(api.InfoRequest(), timeout=GET_INFO_SECONDS)
        except grpc.aio.AioRpcError as error:
            raise RefusedError(
                f"{_ERROR} failed to get plugin info using RPC GetInfo at socket {self._path}, "
                f"err: {go_error.text(error)}"
            ) from error

    def _refusal(self, info: api.PluginInfo) -> str | None:
        """What is wrong with the plugin's own description."""
        if info.type != "DevicePlugin":
            return f"{_ERROR} no handler registered for plugin type: {info.type} at socket {self._path}"
        versions = list(info.supported_versions)
        if VERSION not in versions:
            wrong = f"manager version, {VERSION}, is not among plugin supported versions [{' '.join(versions)}]"
        elif not resource_name.is_valid(info.name):
            wrong = f'invalid name of device plugin socket: the ResourceName "{info.name}" is invalid'
        else:
            return None
        return f"{_ERROR} plugin validation failed with err: {wrong}"

    async def _notify(self, plugin: "RegistrationAsyncStub", error: str = "") -> None:
        """Notify the plugin. Raises RefusedError when the call fails."""
        status = api.RegistrationStatus(plugin_registered=not error, error=error)
        try:
            await plugin.NotifyRegistrationStatus(status, timeout=NOTIFY_SECONDS)
        except grpc.aio.AioRpcError as failed:
            what = "error" if error else "registration status"
            raise RefusedError(
                f"{_ERROR} failed to send {what} at socket {self._path}, err: {error}: {go_error.text(failed)}"
            ) from failed
