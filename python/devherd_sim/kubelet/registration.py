"""The Registration service: who is let in, with the kubelet's own checks in their order and its own words."""

import os
from collections import Counter
from pathlib import Path
from typing import Any, NoReturn

import grpc

from devherd import resource_name
from devherd.proto import deviceplugin_v1beta1_pb2 as api
from devherd.proto.deviceplugin_v1beta1_pb2_grpc import RegistrationServicer
from devherd_sim.kubelet.connections import Connections
from devherd_sim.kubelet.endpoint import PluginError
from devherd_sim.kubelet.events import Events

VERSION = "v1beta1"


class Registration(RegistrationServicer):
    """Answers Register after it has dialled the plugin back and has its options."""

    def __init__(self, directory: Path, connections: Connections, events: Events) -> None:
        self.calls: Counter[str] = Counter()
        """`kubelet_device_plugin_registration_total`: counted before any check."""
        self._directory = directory
        self._connections = connections
        self._events = events

    async def Register(  # noqa: N802 - the service's own name
        self, request: api.RegisterRequest, context: "grpc.aio.ServicerContext[Any, Any]"
    ) -> api.Empty:
        """Let a plugin in. Every refusal has the status UNKNOWN."""
        self.calls[request.resource_name] += 1
        self._events.record("register-called", request.resource_name, endpoint=request.endpoint)
        refused = _refusal(request)
        if refused is None:
            try:
                await self._connect(request, context)
            except PluginError as error:
                refused = str(error)
        if refused is not None:
            await self._refuse(request, context, refused)
        self._events.record("registered", request.resource_name, endpoint=request.endpoint)
        return api.Empty()

    async def _connect(self, request: api.RegisterRequest, context: "grpc.aio.ServicerContext[Any, Any]") -> None:
        socket = _joined(self._directory, request.endpoint)
        await self._connections.connect(request.resource_name, socket, context.time_remaining())

    async def _refuse(
        self, request: api.RegisterRequest, context: "grpc.aio.ServicerContext[Any, Any]", text: str
    ) -> NoReturn:
        self._events.record("register-refused", request.resource_name, error=text)
        await context.abort(grpc.StatusCode.UNKNOWN, text)
        raise AssertionError("abort has raised")


def _refusal(request: api.RegisterRequest) -> str | None:
    """What is wrong with the request itself."""
    if request.version != VERSION:
        return (
            f'requested API version "{request.version}" is not supported by kubelet. Supported version is ["{VERSION}"]'
        )
    if not resource_name.is_valid(request.resource_name):
        return f'the ResourceName "{request.resource_name}" is invalid'
    return None


def _joined(directory: Path, endpoint: str) -> str:
    """As Go joins paths: a leading slash means nothing, `..` leads out of the directory."""
    return os.path.normpath(f"{directory}/{endpoint}")
