"""How a server generation is registered: by the one call below, or by being found in `plugins_registry`."""

from pathlib import Path
from typing import Protocol

import grpc
import grpc.aio

from devherd.kubelet.endpoint import target
from devherd.proto import deviceplugin_v1beta1_pb2 as v1beta1
from devherd.proto.deviceplugin_v1beta1_pb2_grpc import RegistrationStub

DEADLINE_SECONDS = 15.0
"""The kubelet dials back for 10 s before it reports that it could not: its own error is worth waiting for."""


class RegistrationError(Exception):
    """The kubelet did not register the resource: the kubelet's error, or what happened to the call."""


class NotFoundError(RegistrationError):
    """The kubelet has not come to look: it may not run yet. This is no failure."""


class Registration(Protocol):
    """The registration of one server generation."""

    def serve(self, server: grpc.aio.Server) -> None:
        """Add the services that the kubelet calls, other than the device plugin itself."""

    async def done(self) -> None:
        """Return once the kubelet has registered the resource. Raises RegistrationError."""


class RegisterCall:
    """A Registration by a call of Register on a new channel."""

    def __init__(self, kubelet_socket: Path, request: v1beta1.RegisterRequest) -> None:
        self._kubelet_socket = kubelet_socket
        self._request = request

    def serve(self, server: grpc.aio.Server) -> None:
        """Add nothing: the kubelet calls the device plugin only."""

    async def done(self) -> None:
        """Return once Register is answered; by then the kubelet has called GetDevicePluginOptions here.

        Raises RegistrationError.
        """
        async with grpc.aio.insecure_channel(target(self._kubelet_socket)) as channel:
            try:
                await RegistrationStub(channel).Register(self._request, timeout=DEADLINE_SECONDS)
            except grpc.aio.AioRpcError as error:
                raise RegistrationError(_reason(error)) from error


def _reason(error: grpc.aio.AioRpcError) -> str:
    if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
        return f"the kubelet did not answer within {DEADLINE_SECONDS:.0f} s"
    if error.code() is grpc.StatusCode.UNAVAILABLE:
        return f"the kubelet closed the connection: {error.details()}"
    return f"the kubelet refused: {error.details()}"
