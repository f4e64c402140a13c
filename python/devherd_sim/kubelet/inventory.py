"""The devices of each resource as the last ListAndWatch message had them, and what a node would report of them."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from devherd.proto import deviceplugin_v1beta1_pb2 as api

HEALTHY = "Healthy"


@dataclass(slots=True)
class Devices:
    """The devices of one resource. Every word but `Healthy` is unhealthy."""

    by_id: dict[str, api.Device] = field(default_factory=dict)
    healthy: set[str] = field(default_factory=set)
    unhealthy: set[str] = field(default_factory=set)

    def replace(self, devices: Iterable[api.Device]) -> None:
        """Take a complete list. An id that is in it twice is one device; with two healths it counts in both sets."""
        listed = list(devices)
        self.by_id = {device.ID: device for device in listed}
        self.healthy = {device.ID for device in listed if device.health == HEALTHY}
        self.unhealthy = {device.ID for device in listed if device.health != HEALTHY}

    def lose(self) -> None:
        """The plugin is gone: nothing is healthy any more."""
        self.unhealthy |= self.healthy
        self.healthy = set()

    @property
    def capacity(self) -> int:
        """What the node has."""
        return len(self.healthy) + len(self.unhealthy)

    @property
    def allocatable(self) -> int:
        """What pods may ask for."""
        return len(self.healthy)

    @property
    def aligned(self) -> bool:
        """Whether any device has a NUMA node: the resource then takes part in alignment."""
        return any(device.topology.nodes for device in self.by_id.values())

    def numa_nodes(self, device_id: str) -> list[int]:
        """The NUMA nodes of a device; empty when its plugin listed none."""
        device = self.by_id.get(device_id)
        return [node.ID for node in device.topology.nodes] if device is not None else []
