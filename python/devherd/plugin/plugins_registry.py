"""Registration without a call: a socket in `plugins_registry`, which the kubelet finds, asks and tells.

The kubelet looks at what changes there once a second, and at its start at all that lies there. It gives GetInfo one
second, so the answer is made beforehand. Source: pkg/kubelet/pluginmanager, Kubernetes 1.36.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import grpc.aio

from devherd.plugin.endpoint import Endpoint, Identity
from devherd.plugin.kubelet import Kubelet
from devherd.plugin.registration import NotFoundError, RegistrationError
from devherd.proto import deviceplugin_v1beta1_pb2 as v1beta1
from devherd.proto import pluginregistration_v1_pb2 as api
from devherd.proto.pluginregistration_v1_pb2_grpc import RegistrationServicer, add_RegistrationServicer_to_server
from devherd.settings import Settings

FIND_SECONDS = 30.0
"""A running kubelet comes within a second or two. One that has missed the file's creation only sees another file."""
DEADLINE_SECONDS = 15.0
"""From its first question on: it dials for up to 10 s, and tells for up to 5 s."""

_T = TypeVar("_T")


class FindingKubelet(Kubelet):
    """A kubelet that finds sockets. It need not be there first, and looks again by itself when it was restarted.

    Where kubelet.sock can be seen, it still says whether the kubelet is another; no more than that depends on it.
    """

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.pending = f"waiting for the kubelet to look into {self.directory}"

    async def accepting(self, waiting: Callable[[str], None]) -> Identity | None:
        """Until there is a directory to put a socket into."""
        if not self.directory.is_dir():
            waiting(f"{self.directory} is not there")
        while not self.directory.is_dir():
            await self.changed.wait()
        return self.identity()

    def needs_another(self, met: Identity | None) -> bool:
        """Never: the next kubelet finds the same socket, and the stream's end says when there is nothing to find."""
        del met
        return False

    def registration(self, endpoint: Endpoint, resource_name: str, options: v1beta1.DevicePluginOptions) -> "Found":
        """For one generation."""
        del endpoint, options
        return Found(resource_name, str(self.directory))


class Found(RegistrationServicer):
    """A Registration by being found. The names of the methods are the protocol's."""

    def __init__(self, resource_name: str, directory: str) -> None:
        self._directory = directory
        # No endpoint: the device plugin is served on the same socket.
        self._info = api.PluginInfo(type="DevicePlugin", name=resource_name, supported_versions=["v1beta1"])
        self._asked = asyncio.Event()
        self._told: asyncio.Future[api.RegistrationStatus] = asyncio.get_running_loop().create_future()

    def serve(self, server: grpc.aio.Server) -> None:
        """Beside the device plugin."""
        add_RegistrationServicer_to_server(self, server)

    async def done(self) -> None:
        """Until the kubelet has said that it went well. Raises RegistrationError with what it says otherwise."""
        not_found = NotFoundError(f"the kubelet has not looked into {self._directory} for {FIND_SECONDS:.0f} s")
        await _within(FIND_SECONDS, self._asked.wait(), not_found)
        silence = RegistrationError(f"the kubelet asked, and did not say for {DEADLINE_SECONDS:.0f} s how it went")
        status = await _within(DEADLINE_SECONDS, self._told, silence)
        if not status.plugin_registered:
            raise RegistrationError(f"the kubelet refused: {status.error}")

    async def GetInfo(  # noqa: N802
        self, request: api.InfoRequest, context: grpc.aio.ServicerContext[api.InfoRequest, api.PluginInfo]
    ) -> api.PluginInfo:
        """Who waits here."""
        del request, context
        self._asked.set()
        return self._info

    async def NotifyRegistrationStatus(  # noqa: N802
        self,
        request: api.RegistrationStatus,
        context: grpc.aio.ServicerContext[api.RegistrationStatus, api.RegistrationStatusResponse],
    ) -> api.RegistrationStatusResponse:
        """How it went, the device plugin having been asked for its options by then."""
        del context
        if not self._told.done():
            self._told.set_result(request)
        return api.RegistrationStatusResponse()


async def _within(seconds: float, awaited: Awaitable[_T], otherwise: RegistrationError) -> _T:
    try:
        return await asyncio.wait_for(awaited, seconds)
    except TimeoutError:
        raise otherwise from None
