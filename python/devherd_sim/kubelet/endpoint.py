"""The kubelet's side of one plugin: a connection to its socket and the five calls.

<https://kubernetes.io/docs/concepts/extend-kubernetes/compute-storage-net/device-plugins/>. As in the kubelet, only
PreStartContainer has a deadline of its own.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

import grpc

from devherd.proto import deviceplugin_v1beta1_pb2 as api
from devherd.proto.deviceplugin_v1beta1_pb2_grpc import DevicePluginStub
from devherd_sim.kubelet import go_error
from devherd_sim.kubelet.check.lists import ListsSeen

DIAL_SECONDS = 10.0
PRE_START_SECONDS = 30.0
MESSAGE_LIMIT = 4_194_304  # bytes of one received message: gRPC-Go's default
_OPTIONS = (
    ("grpc.max_receive_message_length", MESSAGE_LIMIT),
    ("grpc.default_authority", "localhost"),
    ("grpc.use_local_subchannel_pool", 1),  # each connection is its own, also two to one socket
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.enable_http_proxy", 0),
)

Answer = TypeVar("Answer")


class PluginError(Exception):
    """The kubelet's error about a misbehaving plugin, in the kubelet's own words."""


class Endpoint:
    """A plugin of one resource at one socket."""

    def __init__(self, resource: str, socket: str) -> None:
        self.resource = resource
        self.socket = socket
        self.options = api.DevicePluginOptions()
        self.lists_seen = ListsSeen(time.monotonic())
        self.dialled_seconds = 0.0
        """Of the connection and the options."""
        self.stopped_at: float | None = None
        """When the kubelet dropped it, on the monotonic clock."""
        self._channel = grpc.aio.insecure_channel(f"unix:{socket}", options=_OPTIONS)
        self._plugin = DevicePluginStub(self._channel)

    async def connect(self, seconds_left: float | None) -> None:
        """Dial, and ask for the options; both within the caller's own deadline. Raises PluginError."""
        started = time.monotonic()
        patience = DIAL_SECONDS if seconds_left is None else min(DIAL_SECONDS, seconds_left)
        try:
            await asyncio.wait_for(self._channel.channel_ready(), patience)
        except TimeoutError as error:
            raise PluginError("failed to dial device plugin: context deadline exceeded") from error
        left = None if seconds_left is None else seconds_left - (time.monotonic() - started)
        self.options = await _answer(
            self._plugin.GetDevicePluginOptions(api.Empty(), timeout=left), "failed to get device plugin options: "
        )
        self.lists_seen = ListsSeen(time.monotonic())
        self.dialled_seconds = time.monotonic() - started

    async def lists(self) -> AsyncIterator[Sequence[api.Device]]:
        """Every list of devices the plugin sends; there is no second stream. Raises PluginError when it breaks."""
        with _in_the_kubelets_words():
            async for response in self._plugin.ListAndWatch(api.Empty()):
                self.lists_seen.take(response.devices, time.monotonic())
                yield response.devices

    async def preferred(self, available: Collection[str], must_include: Collection[str], size: int) -> set[str]:
        """The devices that the plugin would take. Raises PluginError."""
        response = await self.ask_preferred(available, must_include, size)
        return set(response.container_responses[0].deviceIDs) if response.container_responses else set()

    async def allocate(self, device_ids: Collection[str]) -> api.ContainerAllocateResponse | None:
        """What a container with these devices gets; None when the answer is for no container. Raises PluginError."""
        if self.stopped_at is not None:
            raise PluginError(f"endpoint {self.resource} has been stopped")
        response = await self.ask_allocate(device_ids)
        return response.container_responses[0] if response.container_responses else None

    async def pre_start(self, device_ids: Collection[str]) -> None:
        """Let the plugin prepare the devices of a container about to start. Raises PluginError."""
        await self.ask_pre_start(device_ids)

    async def ask_preferred(
        self,
        available: Collection[str],
        must_include: Collection[str],
        size: int,
        seconds: float | None = None,
    ) -> api.PreferredAllocationResponse:
        """The whole answer to GetPreferredAllocation. Raises PluginError."""
        request = api.ContainerPreferredAllocationRequest(
            available_deviceIDs=available, must_include_deviceIDs=must_include, allocation_size=size
        )
        whole = api.PreferredAllocationRequest(container_requests=[request])
        call = self._plugin.GetPreferredAllocation(whole, timeout=seconds)
        return await _answer(call, "device plugin GetPreferredAllocation rpc failed with err: ")

    async def ask_allocate(self, device_ids: Collection[str], seconds: float | None = None) -> api.AllocateResponse:
        """The whole answer to Allocate. Raises PluginError."""
        request = api.AllocateRequest(container_requests=[api.ContainerAllocateRequest(devices_ids=device_ids)])
        return await _answer(self._plugin.Allocate(request, timeout=seconds))

    async def ask_pre_start(self, device_ids: Collection[str]) -> None:
        """The answer to PreStartContainer. Raises PluginError."""
        request = api.PreStartContainerRequest(devices_ids=device_ids)
        call = self._plugin.PreStartContainer(request, timeout=PRE_START_SECONDS)
        await _answer(call, "device plugin PreStartContainer rpc failed with err: ")

    async def close(self) -> None:
        """Close the connection, and with it the stream and every call. Closing again is fine."""
        await self._channel.close()


async def _answer(call: Awaitable[Answer], failed: str = "") -> Answer:
    """The answer to a call; a failure is logged behind the text of `failed`."""
    with _in_the_kubelets_words(failed):
        return await call


@contextmanager
def _in_the_kubelets_words(failed: str = "") -> Iterator[None]:
    try:
        yield
    except grpc.aio.AioRpcError as error:
        raise PluginError(f"{failed}{go_error.text(error)}") from error
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        # The call was cancelled and not this task: the connection has been closed under it.
        raise PluginError(f"{failed}{go_error.CLOSING}") from error
