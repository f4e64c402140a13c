"""Register, the one call that a plugin makes to the kubelet."""

from pathlib import Path

import grpc
import grpc.aio

from devherd.plugin.endpoint import target
from devherd.plugin.registration import RegistrationError
from devherd.proto import deviceplugin_v1beta1_pb2 as v1beta1
from devherd.proto.deviceplugin_v1beta1_pb2_grpc import RegistrationStub

DEADLINE_SECONDS = 15.0
"""The kubelet dials back for 10 s before it says that it could not: its own words are worth waiting for."""


class RegisterCall:
    """A Registration by a call on a fresh channel."""

    def __init__(self, kubelet_socket: Path, request: v1beta1.RegisterRequest) -> None:
        self._kubelet_socket = kubelet_socket
        self._request = request

    def serve(self, server: grpc.aio.Server) -> None:
        """The device plugin is all that the kubelet asks for."""

    async def done(self) -> None:
        """Before it returns, the kubelet has asked this process's server for its options. Raises RegistrationError."""
        async with grpc.aio.insecure_channel(target(self._kubelet_socket)) as channel:
            try:
                await RegistrationStub(channel).Register(self._request, timeout=DEADLINE_SECONDS)
            except grpc.aio.AioRpcError as error:
                raise RegistrationError(_words(error)) from error


def _words(error: grpc.aio.AioRpcError) -> str:
    if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
        return f"the kubelet gave no answer for {DEADLINE_SECONDS:.0f} s"
    if error.code() is grpc.StatusCode.UNAVAILABLE:
        return f"the kubelet went away: {error.details()}"
    return f"the kubelet refused: {error.details()}"
