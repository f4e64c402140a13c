"""Which plugin serves which resource: connecting, streaming, letting go, and forgetting after the grace period.

As up to Kubernetes 1.36, clients are known by the name of their resource only. So the end of any stream of a resource
drops its newest client, even if that one works; from 1.37 on, clients are known by resource and socket.
"""

import asyncio
import time
from collections.abc import Callable, Sequence

from devherd.proto import deviceplugin_v1beta1_pb2 as api
from devherd_sim.kubelet.check.lists import problems
from devherd_sim.kubelet.endpoint import Endpoint, PluginError
from devherd_sim.kubelet.events import Events
from devherd_sim.kubelet.inventory import Devices

GRACE_SECONDS = 300.0
"""How long a resource keeps its capacity without a plugin."""


class Connections:
    """The plugins of one kubelet, from its start to its stop. `devices` is shared with the allocation."""

    def __init__(
        self,
        devices: dict[str, Devices],
        events: Events,
        grace_seconds: float,
        changed: Callable[[], None],
        numa_nodes: int,
    ) -> None:
        self.endpoints: dict[str, Endpoint] = {}
        """The newest of each resource; it stays, stopped, when the kubelet has dropped it."""
        self._clients: dict[str, Endpoint] = {}
        self._devices = devices
        self._events = events
        self._grace_seconds = grace_seconds
        self._changed = changed
        self._numa_nodes = numa_nodes
        self._streams: set[asyncio.Task[None]] = set()
        self._ends_of_grace: dict[str, asyncio.TimerHandle] = {}
        for resource in devices:  # a starting kubelet knows them from its checkpoint; their plugins are yet to come
            self._begin_grace(resource)

    async def connect(self, resource: str, socket: str, seconds_left: float | None) -> None:
        """Dial a plugin back and begin to listen to it. Raises PluginError, and forgets the resource's client then."""
        endpoint = Endpoint(resource, socket)
        self._clients[resource] = endpoint
        try:
            await endpoint.connect(seconds_left)
        except BaseException:  # also when the plugin hangs up and this is cancelled: nothing of it may stay
            self._clients.pop(resource, None)
            await endpoint.close()
            raise
        self.endpoints[resource] = endpoint
        self._end_grace(resource)
        stream = asyncio.create_task(self._listen(endpoint))
        self._streams.add(stream)
        stream.add_done_callback(self._streams.discard)

    async def let_go(self, resource: str) -> None:
        """Disconnect whoever is the resource's client now."""
        client = self._clients.pop(resource, None)
        if client is None:
            return
        if resource in self.endpoints:
            if resource in self._devices:
                self._devices[resource].lose()
            self.endpoints[resource].stopped_at = time.monotonic()
            self._begin_grace(resource)
            self._events.record("disconnected", resource)
        await client.close()

    async def close(self) -> None:
        """End every connection at once, as a kubelet that is killed does."""
        for resource in list(self._ends_of_grace):
            self._end_grace(resource)
        streams = list(self._streams)
        for stream in streams:
            stream.cancel()
        await asyncio.gather(*streams, return_exceptions=True)
        for endpoint in [*self.endpoints.values(), *self._clients.values()]:
            await endpoint.close()

    async def _listen(self, endpoint: Endpoint) -> None:
        ended = "the plugin ended the stream"
        doubts: set[str] = set()
        try:
            async for devices in endpoint.lists():
                self._take(endpoint.resource, devices)
                doubts = self._doubt(endpoint.resource, devices, doubts)
        except PluginError as error:
            ended = str(error)
        self._events.record("stream-ended", endpoint.resource, error=ended, socket=endpoint.socket)
        await self.let_go(endpoint.resource)

    def _take(self, resource: str, devices: Sequence[api.Device]) -> None:
        known = self._devices.setdefault(resource, Devices())
        known.replace(devices)
        self._events.record("list", resource, healthy=len(known.healthy), unhealthy=len(known.unhealthy))
        self._changed()

    def _doubt(self, resource: str, devices: Sequence[api.Device], known: set[str]) -> set[str]:
        """Say what is wrong with a list and was not with the one before."""
        doubts = {problem for _, problem in problems(devices, self._numa_nodes)}
        for problem in sorted(doubts - known):
            self._events.record("doubtful", resource, problem=problem)
        return doubts

    def _begin_grace(self, resource: str) -> None:
        self._end_grace(resource)
        loop = asyncio.get_running_loop()
        self._ends_of_grace[resource] = loop.call_later(self._grace_seconds, self._forget, resource)

    def _end_grace(self, resource: str) -> None:
        timer = self._ends_of_grace.pop(resource, None)
        if timer is not None:
            timer.cancel()

    def _forget(self, resource: str) -> None:
        """No plugin has come back: the node has none of the resource. A kubelet sees it at its next node status."""
        self._end_grace(resource)
        self.endpoints.pop(resource, None)
        self._devices.pop(resource, None)
        self._changed()
        self._events.record("forgotten", resource)
