"""Connections to plugins: dialling their sockets, calls, ListAndWatch streams, and the grace period after their end."""

import asyncio
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

import grpc

from devherd.proto import deviceplugin_v1beta1_pb2 as api
from devherd.proto.deviceplugin_v1beta1_pb2_grpc import DevicePluginStub
from devherd_sim.kubelet.events import Events
from devherd_sim.kubelet.go_words import CLOSING, CONNECTION_LOST, quoted, text
from devherd_sim.kubelet.ledger import Devices
from devherd_sim.kubelet.plugin_findings import ListsSeen, problems

if TYPE_CHECKING:
    from devherd_sim.kubelet.clients import Clients

DIAL_SECONDS = 10.0
PRE_START_SECONDS = 30.0
BROKEN_SECONDS = 1.0
MESSAGE_LIMIT = 4_194_304  # bytes of one received message: gRPC-Go's default
METADATA_LIMIT = 16_777_216  # bytes of a message's headers, and so of an error's text: likewise
_OPTIONS = (
    ("grpc.max_receive_message_length", MESSAGE_LIMIT),
    ("grpc.max_metadata_size", METADATA_LIMIT),
    ("grpc.absolute_max_metadata_size", METADATA_LIMIT),
    ("grpc.default_authority", "localhost"),
    ("grpc.use_local_subchannel_pool", 1),  # connections to the same socket are not shared
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.enable_http_proxy", 0),
)

Answer = TypeVar("Answer")


class PluginError(Exception):
    """A call to a plugin failed; the message is the kubelet's."""


class PluginEndpoint:
    """A plugin of one resource at one socket."""

    def __init__(self, resource: str, socket: str) -> None:
        self.resource = resource
        self.socket = socket
        self.options = api.DevicePluginOptions()
        self.lists_seen = ListsSeen(time.monotonic())
        self.called_at = time.monotonic()
        """Monotonic time in seconds when Register was called, or the socket found."""
        self.is_dialled = False
        """True from the connection on; GetDevicePluginOptions follows."""
        self.dialled_seconds = 0.0
        """Seconds that the connection and GetDevicePluginOptions took."""
        self.stopped_at: float | None = None
        """Monotonic time in seconds when the kubelet dropped the plugin; None before that."""
        self._calls: set[asyncio.Future[None]] = set()
        """One for each call whose answer is awaited."""
        self._channel = grpc.aio.insecure_channel(f"unix:{socket}", options=_OPTIONS)
        self._plugin = DevicePluginStub(self._channel)

    async def connect(self, seconds_left: float | None) -> None:
        """Dial the plugin and get its options within the caller's deadline. Raises PluginError."""
        unusable = _not_a_url(self.socket)
        if unusable is not None:
            raise PluginError(f"failed to dial device plugin: {unusable}")
        started = time.monotonic()
        patience = DIAL_SECONDS if seconds_left is None else min(DIAL_SECONDS, seconds_left)
        try:
            await asyncio.wait_for(self._channel.channel_ready(), patience)
        except TimeoutError as error:
            raise PluginError("failed to dial device plugin: context deadline exceeded") from error
        self.is_dialled = True
        left = None if seconds_left is None else seconds_left - (time.monotonic() - started)
        self.options = await self._answer(
            self._plugin.GetDevicePluginOptions(api.Empty(), timeout=left), "failed to get device plugin options: "
        )
        self.lists_seen = ListsSeen(time.monotonic())
        self.dialled_seconds = time.monotonic() - started

    async def lists(self) -> AsyncIterator[Sequence[api.Device]]:
        """Yields each list of devices from ListAndWatch, called once. Raises PluginError when the stream fails."""
        with _in_the_kubelets_words():
            async for response in self._plugin.ListAndWatch(api.Empty()):
                self.lists_seen.take(response.devices, time.monotonic())
                yield response.devices

    async def preferred(self, available: Collection[str], must_include: Collection[str], size: int) -> set[str]:
        """The devices that the plugin prefers. Raises PluginError."""
        response = await self.ask_preferred(available, must_include, size)
        return set(response.container_responses[0].deviceIDs) if response.container_responses else set()

    async def allocate(self, device_ids: Collection[str]) -> api.ContainerAllocateResponse | None:
        """The plugin's answer for a container with these devices; None if it is empty. Raises PluginError."""
        if self.stopped_at is not None:
            raise PluginError(f"endpoint {self.resource} has been stopped")
        response = await self.ask_allocate(device_ids)
        return response.container_responses[0] if response.container_responses else None

    async def pre_start(self, device_ids: Collection[str]) -> None:
        """Let the plugin prepare the devices of a container that is about to start. Raises PluginError."""
        await self.ask_pre_start(device_ids)

    async def ask_preferred(
        self,
        available: Collection[str],
        must_include: Collection[str],
        size: int,
        seconds: float | None = None,
    ) -> api.PreferredAllocationResponse:
        """Call GetPreferredAllocation and return the whole answer. Raises PluginError."""
        request = api.ContainerPreferredAllocationRequest(
            available_deviceIDs=available, must_include_deviceIDs=must_include, allocation_size=size
        )
        whole = api.PreferredAllocationRequest(container_requests=[request])
        call = self._plugin.GetPreferredAllocation(whole, timeout=seconds)
        return await self._answer(call, "device plugin GetPreferredAllocation rpc failed with err: ")

    async def ask_allocate(self, device_ids: Collection[str], seconds: float | None = None) -> api.AllocateResponse:
        """Call Allocate and return the whole answer. Raises PluginError."""
        request = api.AllocateRequest(container_requests=[api.ContainerAllocateRequest(devices_ids=device_ids)])
        return await self._answer(self._plugin.Allocate(request, timeout=seconds))

    async def ask_pre_start(self, device_ids: Collection[str]) -> None:
        """Call PreStartContainer. Raises PluginError."""
        request = api.PreStartContainerRequest(devices_ids=device_ids)
        call = self._plugin.PreStartContainer(request, timeout=PRE_START_SECONDS)
        await self._answer(call, "device plugin PreStartContainer rpc failed with err: ")

    async def broken_calls_ended(self) -> None:
        """Wait until a broken connection's calls have ended: all at once, with the connection's error, like gRPC-Go."""
        if self._calls:
            await asyncio.wait(self._calls, timeout=BROKEN_SECONDS)

    async def _answer(self, call: Awaitable[Answer], failed: str = "") -> Answer:
        """The answer to a call. Raises PluginError, with `failed` as prefix of the message, when the call fails."""
        ended = asyncio.get_running_loop().create_future()
        self._calls.add(ended)
        try:
            with _in_the_kubelets_words(failed):
                return await call
        finally:
            self._calls.discard(ended)
            ended.set_result(None)

    async def close(self) -> None:
        """Close the connection, its stream and its calls. Idempotent."""
        await self._channel.close()


def _not_a_url(socket: str) -> str | None:
    """gRPC-Go's error for a path that it cannot dial because it parses the path as a URL; None for any other path."""
    url = f"passthrough:///{socket}"
    if re.search(r"[\x00-\x1f\x7f]", url):
        return f"parse {quoted(url)}: net/url: invalid control character in URL"
    escape = re.search(r"%(?![0-9A-Fa-f]{2}).{0,2}", url)
    return f"parse {quoted(url)}: invalid URL escape {quoted(escape[0])}" if escape else None


@contextmanager
def _in_the_kubelets_words(failed: str = "") -> Iterator[None]:
    try:
        yield
    except grpc.aio.AioRpcError as error:
        raise PluginError(f"{failed}{text(error)}") from error
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        # The call was cancelled, not this task: the connection was closed during the call.
        raise PluginError(f"{failed}{CLOSING}") from error


GRACE_SECONDS = 300.0
"""Seconds that a resource keeps its capacity without a plugin."""


class ConnectedPlugins:
    """The plugins of one kubelet, from its start to its stop. `devices` is shared with admission."""

    def __init__(
        self,
        devices: dict[str, Devices],
        events: Events,
        grace_seconds: float,
        changed: Callable[[], None],
        *,
        numa_nodes: int,
        clients: "Clients",
    ) -> None:
        self.connecting: list[PluginEndpoint] = []
        """Plugins that are being dialled, or asked for their options."""
        self.live: list[PluginEndpoint] = []
        """Plugins whose ListAndWatch is open, oldest first: several of one resource if an older one goes on."""
        self._clients = clients
        self._open: set[PluginEndpoint] = set()
        """Every connection that was not closed: kubelets leave some open for good."""
        self._devices = devices
        self._events = events
        self._grace_seconds = grace_seconds
        self._changed = changed
        self._numa_nodes = numa_nodes
        self._streams: set[asyncio.Task[None]] = set()
        self._ends_of_grace: dict[str, asyncio.TimerHandle] = {}
        for resource in devices:  # known from the checkpoint; their plugins have not registered yet
            self._begin_grace(resource)

    async def connect(self, resource: str, socket: str, seconds_left: float | None) -> None:
        """Dial a plugin and start reading its lists. Raises PluginError, and drops the client, if that fails."""
        self._record_same_socket(resource, socket)
        endpoint = PluginEndpoint(resource, socket)
        self._open.add(endpoint)
        self._clients.add(endpoint)
        self.connecting.append(endpoint)
        try:
            await endpoint.connect(seconds_left)
            self._clients.connected(endpoint)
        except BaseException:  # also cancellation, when the plugin hangs up
            self._clients.remove(endpoint)
            if not endpoint.is_dialled:
                await self._hang_up(endpoint)
            raise
        finally:
            self.connecting.remove(endpoint)
        self._end_grace(resource)
        self.live.append(endpoint)
        stream = asyncio.create_task(self._listen(endpoint))
        self._streams.add(stream)
        stream.add_done_callback(self._streams.discard)

    def endpoint(self, resource: str) -> PluginEndpoint | None:
        """The plugin that Allocate goes to for a resource, even if the kubelet has dropped it; None without one."""
        return self._clients.endpoints.get(resource)

    async def let_go(self, resource: str, socket: str) -> None:
        """Disconnect a client because the plugin of this socket is gone; the release's rule selects the client."""
        client = self._clients.of(resource, socket)
        if client is None:
            return
        self._clients.remove(client)
        if self._clients.disconnected(client):
            self._devices.setdefault(resource, Devices(listed=False)).lose()
            self._begin_grace(resource)
            self._events.record("disconnected", resource)
        if client.is_dialled:
            await self._hang_up(client)

    async def close(self) -> None:
        """Close all connections at once, like a killed kubelet."""
        for resource in list(self._ends_of_grace):
            self._end_grace(resource)
        streams = list(self._streams)
        for stream in streams:
            stream.cancel()
        await asyncio.gather(*streams, return_exceptions=True)
        self.live.clear()
        for endpoint in list(self._open):
            endpoint.stopped_at = endpoint.stopped_at or time.monotonic()
            await self._hang_up(endpoint)

    async def _hang_up(self, endpoint: PluginEndpoint) -> None:
        self._open.discard(endpoint)
        await endpoint.close()

    async def _listen(self, endpoint: PluginEndpoint) -> None:
        ended = "the plugin ended the stream"
        known: set[str] = set()
        try:
            async for devices in endpoint.lists():
                self._take(endpoint.resource, devices)
                known = self._record_problems(endpoint.resource, devices, known)
        except PluginError as error:
            ended = str(error)
            if CONNECTION_LOST in ended:
                await endpoint.broken_calls_ended()
        finally:
            self.live.remove(endpoint)
        self._events.record("stream-ended", endpoint.resource, error=ended, socket=endpoint.socket)
        await self.let_go(endpoint.resource, endpoint.socket)

    def _take(self, resource: str, devices: Sequence[api.Device]) -> None:
        known = self._devices.setdefault(resource, Devices())
        known.replace(devices)
        self._events.record("list", resource, healthy=len(known.healthy), unhealthy=len(known.unhealthy))
        self._changed()
        if resource not in self._clients.endpoints:  # of a stream that goes on after the grace period
            self._forget(resource)

    def _record_same_socket(self, resource: str, socket: str) -> None:
        if any((live.resource, live.socket) == (resource, socket) for live in self.live):
            problem = f"registered again at {socket} while its ListAndWatch there is open"
            self._events.record("doubtful", resource, problem=problem, check="same-socket-again")

    def _record_problems(self, resource: str, devices: Sequence[api.Device], known: set[str]) -> set[str]:
        """Record the problems that the previous list did not have. Returns all problems of this list."""
        found = {text: check for check, text in problems(devices, self._numa_nodes)}
        for problem in sorted(found.keys() - known):
            self._events.record("doubtful", resource, problem=problem, check=found[problem])
        return set(found)

    def _begin_grace(self, resource: str) -> None:
        self._end_grace(resource)
        loop = asyncio.get_running_loop()
        self._ends_of_grace[resource] = loop.call_later(self._grace_seconds, self._forget, resource)

    def _end_grace(self, resource: str) -> None:
        timer = self._ends_of_grace.pop(resource, None)
        if timer is not None:
            timer.cancel()

    def _forget(self, resource: str) -> None:
        """Remove a resource after its grace period. A kubelet does so at its next update of the node status."""
        self._end_grace(resource)
        self._clients.endpoints.pop(resource, None)
        self._devices.pop(resource, None)
        self._changed()
        self._events.record("forgotten", resource)
