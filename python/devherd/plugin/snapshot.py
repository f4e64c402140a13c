"""What the kubelet is told about a resource at one moment: made from the spool, replaced as a whole, never changed."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from devherd._native import Preference
from devherd.plugin.preferred import preference
from devherd.proto import deviceplugin_v1beta1_pb2 as v1beta1
from devherd.proto import spool_pb2
from devherd.spool import HEALTHY, UNHEALTHY


@dataclass(frozen=True)
class Snapshot:
    """A spool Resource and the answers that follow from it; what only an admission needs is made at the first one."""

    resource: spool_pb2.Resource

    @property
    def name(self) -> str:
        """The resource's name as pods ask for it."""
        return self.resource.name

    @cached_property
    def device_list(self) -> v1beta1.ListAndWatchResponse:
        """The complete list for the kubelet, in the spool's order."""
        with_topology = has_topology(self.resource)
        told = v1beta1.ListAndWatchResponse()
        for device in self.resource.devices:
            listed = told.devices.add(ID=device.id, health=UNHEALTHY if device.reasons else HEALTHY)
            for node in device.numa_nodes if with_topology else ():
                listed.topology.nodes.add(ID=node)
        return told

    @cached_property
    def devices(self) -> Mapping[str, spool_pb2.Device]:
        """Every device by id."""
        return {device.id: device for device in self.resource.devices}

    @cached_property
    def positions(self) -> Mapping[str, int]:
        """Where each id stands in the spool's order, which is the natural one."""
        return {device.id: position for position, device in enumerate(self.resource.devices)}

    @cached_property
    def healthy(self) -> frozenset[str]:
        """The ids that can be allocated."""
        return frozenset(device.id for device in self.resource.devices if not device.reasons)

    @cached_property
    def preference(self) -> Preference:
        """What knows which devices fit together."""
        return preference(self.resource)

    @cached_property
    def options(self) -> v1beta1.DevicePluginOptions:
        """What the kubelet asks for when a server registers."""
        return v1beta1.DevicePluginOptions(
            pre_start_required=False,
            get_preferred_allocation_available=self.resource.preferred != spool_pb2.NONE,
        )

    def without_devices(self) -> "Snapshot":
        """The same resource, with nothing left to give."""
        empty = spool_pb2.Resource()
        empty.CopyFrom(self.resource)
        empty.ClearField("devices")
        return Snapshot(empty)


def has_topology(resource: spool_pb2.Resource) -> bool:
    """Whether every device knows its NUMA nodes.

    The topology manager never matches a device without one against a resource that has some, so it is all or none.
    """
    return all(device.numa_nodes for device in resource.devices)
