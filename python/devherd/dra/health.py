"""The health of a driver's devices for the kubelet: `DRAResourceHealth`, v1 and v1alpha1.

The kubelet shows it in `allocatedResourcesStatus` of pods. It takes a device that no message names for 30 s as unknown,
and forgets all of the driver's when any stream of it ends, also that of the twin process:
pkg/kubelet/cm/dra/healthinfo.go and manager.go (`HandleWatchResourcesStream`), Kubernetes 1.37.
"""

import time
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio

from devherd.dra.pool_files import PoolFiles
from devherd.kubelet.registration import Broadcast
from devherd.proto import dra_health_v1_pb2, dra_health_v1alpha1_pb2

if TYPE_CHECKING:
    from devherd.inventory import DeviceKey

VERSIONS = {"v1": dra_health_v1_pb2, "v1alpha1": dra_health_v1alpha1_pb2}
"""The newest first. Their numbers of `HealthStatus` are the same."""

SEND_SECONDS = 10.0
"""Between two lists if nothing changes."""
AGAIN_SECONDS = 1.0
"""After a change the list is sent once more: the kubelet may notice the end of a stream later than the change."""
MOST_CHARACTERS = 512
"""Of a message. The kubelet takes 1 024, and a list of 4 MiB, which 4 096 devices must fit in."""


class DriverHealth:
    """The streams of one driver, in every version. `changed` wakes them: at new pools, and at the end of the twin."""

    def __init__(self, driver: str, node: str, pools: PoolFiles, changed: Broadcast) -> None:
        self._driver = driver
        self._node = node
        self._pools = pools
        self._changed = changed
        self._names: dict[str, DeviceKey] = {}
        """Every device that was in the pool: a container may have one that is not there any more."""

    def serve(self, server: grpc.aio.Server) -> None:
        """Add the services to a driver's server."""
        handlers = []
        for package, api in VERSIONS.items():
            method = grpc.unary_stream_rpc_method_handler(
                _Watching(self, api).lists,
                request_deserializer=api.NodeWatchResourcesRequest.FromString,
                response_serializer=api.NodeWatchResourcesResponse.SerializeToString,
            )
            service = f"{package}.DRAResourceHealth"
            handlers.append(grpc.method_handlers_generic_handler(service, {"NodeWatchResources": method}))
        server.add_generic_rpc_handlers(handlers)

    @property
    def changes(self) -> int:
        """How many there were."""
        return self._changed.calls

    async def due(self, seconds: float, sent: int) -> bool:
        """Return when a list is due: True for another change than the first `sent`, False after `seconds`."""
        if self.changes == sent:
            await self._changed.wait(seconds)
        return self.changes != sent

    def of_devices(self) -> Iterator[tuple[str, int, str]]:
        """Name, HealthStatus and message of each device."""
        pools = self._pools.pools
        if pools is None:
            return
        for device in pools.devices.get(self._driver, ()):
            self._names[device.name] = device.key
        for name, key in self._names.items():
            if (published := self._pools.device(self._driver, name)) is None:
                yield name, dra_health_v1_pb2.UNKNOWN, pools.withheld.get(key, "it is offered no longer")
            elif published.subject.verdict.reasons:
                yield name, dra_health_v1_pb2.UNHEALTHY, ", ".join(published.subject.verdict.reasons)
            else:
                yield name, dra_health_v1_pb2.HEALTHY, ", ".join(published.subject.verdict.warnings)

    @property
    def node(self) -> str:
        """The name of the pool."""
        return self._node


class _Watching:
    """The service in one version of the API."""

    def __init__(self, health: DriverHealth, api: Any) -> None:
        self._health = health
        self._api = api

    async def lists(self, request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> AsyncIterator[Any]:
        """The whole list at once, at each change, and from time to time."""
        del request, context
        health, seconds = self._health, SEND_SECONDS
        while True:
            sent = health.changes  # others may follow while this list is on its way
            yield self._list()
            seconds = AGAIN_SECONDS if await health.due(seconds, sent) else SEND_SECONDS

    def _list(self) -> Any:
        now, answer = int(time.time()), self._api.NodeWatchResourcesResponse()
        for name, status, message in self._health.of_devices():
            answer.devices.add(
                device=self._api.DeviceIdentifier(pool_name=self._health.node, device_name=name),
                health=status,
                last_updated_time=now,
                message=message[:MOST_CHARACTERS],
            )
        return answer
