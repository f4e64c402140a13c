"""Registration without a call: the kubelet finds a socket in `plugins_registry`, calls it and reports the result.

The kubelet handles changes of the directory once a second, and reads all of it when it starts. It waits one second for
GetInfo, so the answer is prepared beforehand. Source: pkg/kubelet/pluginmanager, Kubernetes 1.36.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import grpc
import grpc.aio

from devherd.kubelet.endpoint import Endpoint, Identity
from devherd.kubelet.registration import KubeletSocket, NotFoundError, RegistrationError, knock
from devherd.proto import deviceplugin_v1beta1_pb2 as v1beta1
from devherd.proto import pluginregistration_v1_pb2 as api
from devherd.proto.pluginregistration_v1_pb2_grpc import RegistrationServicer, add_RegistrationServicer_to_server
from devherd.settings import Settings

FIND_SECONDS = 30.0
"""A running kubelet calls within two seconds; after this time it has missed the file, and needs a new one."""
DEADLINE_SECONDS = 15.0
"""From GetInfo to the result: the kubelet connects for up to 10 s, and NotifyRegistrationStatus takes up to 5 s."""

_T = TypeVar("_T")


class FindingKubelet(KubeletSocket):
    """A kubelet that finds sockets, also those created before its start, and finds them again after a restart.

    If kubelet.sock is visible, it shows whether the kubelet was replaced; nothing else depends on it.
    """

    takes_hand_overs = (
        False  # up to 1.36, the removal of the old socket disconnects the new one's client a second later
    )

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.pending = f"waiting for the kubelet to look into {self.directory}"

    async def accepting(self, waiting: Callable[[str], None]) -> Identity | None:
        """Return once the socket's directory exists; calls `waiting` also with the reason if no kubelet runs yet."""
        if not self.directory.is_dir():
            waiting(f"{self.directory} does not exist")
        while not self.directory.is_dir():
            await self.changed.wait()
        refusal = self._refusal()
        if refusal is not None:
            waiting(refusal)
        return self.identity()

    def is_away(self) -> bool:
        """True if the directory for sockets is missing, or the kubelet is known not to run."""
        return not self.directory.is_dir() or self._refusal() is not None

    def _refusal(self) -> str | None:
        """The reason why the kubelet does not run; None if it runs, or if its socket's directory is not visible."""
        return knock(self.path) if self.path.parent.is_dir() else None

    def needs_another(self, met: Identity | None) -> bool:
        """Return False: the next kubelet finds the same socket, and if none does, the stream ends."""
        del met
        return False

    def registration(self, endpoint: Endpoint, resource_name: str, options: v1beta1.DevicePluginOptions) -> "Found":
        """The registration of one server generation."""
        del endpoint, options
        # Without an endpoint, the kubelet calls the device plugin on the socket that it has found.
        info = api.PluginInfo(type="DevicePlugin", name=resource_name, supported_versions=["v1beta1"])
        return Found(info, str(self.directory))


class Found(RegistrationServicer):
    """The Registration of a plugin that the kubelet finds, of any type. The methods' names are the protocol's."""

    def __init__(
        self,
        info: api.PluginInfo,
        directory: str,
        told: Callable[[api.RegistrationStatus], object] = lambda _status: None,
        is_ready: Callable[[], Awaitable[bool]] | None = None,
    ) -> None:
        """`told` is called with each result: a kubelet that was restarted, or had refused, asks at the socket again.

        `is_ready` is awaited before each answer of GetInfo, for up to a second; if not, the kubelet tries again later.
        """
        self._info = info
        self._directory = directory
        self._told = told
        self._is_ready = is_ready
        self._asked = asyncio.Event()
        self._result: asyncio.Future[api.RegistrationStatus] = asyncio.get_running_loop().create_future()

    def serve(self, server: grpc.aio.Server) -> None:
        """Add the registration service to the plugin's server."""
        add_RegistrationServicer_to_server(self, server)

    @property
    def was_asked(self) -> bool:
        """Whether a kubelet has found the socket."""
        return self._asked.is_set()

    async def done(self) -> None:
        """Return once the kubelet has reported success at first. Raises RegistrationError with its error otherwise."""
        not_found = NotFoundError(f"it has not looked into {self._directory} for {FIND_SECONDS:.0f} s")
        await _within(FIND_SECONDS, self._asked.wait(), not_found)
        silence = RegistrationError(
            f"the kubelet called GetInfo and reported no registration status within {DEADLINE_SECONDS:.0f} s"
        )
        status = await _within(DEADLINE_SECONDS, self._result, silence)
        if not status.plugin_registered:
            raise RegistrationError(f"the kubelet refused: {status.error}")

    async def GetInfo(  # noqa: N802
        self, request: api.InfoRequest, context: grpc.aio.ServicerContext[api.InfoRequest, api.PluginInfo]
    ) -> api.PluginInfo:
        """Return the plugin's type, name and versions."""
        del request
        self._asked.set()
        if self._is_ready is not None and not await self._is_ready():
            await context.abort(grpc.StatusCode.UNAVAILABLE, "it cannot be served yet")
        return self._info

    async def NotifyRegistrationStatus(  # noqa: N802
        self,
        request: api.RegistrationStatus,
        context: grpc.aio.ServicerContext[api.RegistrationStatus, api.RegistrationStatusResponse],
    ) -> api.RegistrationStatusResponse:
        """Take the result; the kubelet has read a device plugin's options by then."""
        del context
        self._told(request)
        if not self._result.done():
            self._result.set_result(request)
        return api.RegistrationStatusResponse()


async def _within(seconds: float, awaited: Awaitable[_T], otherwise: RegistrationError) -> _T:
    try:
        return await asyncio.wait_for(awaited, seconds)
    except TimeoutError:
        raise otherwise from None
