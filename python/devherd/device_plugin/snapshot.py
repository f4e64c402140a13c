"""What devherd reports to the kubelet about a resource: made from a spool file, replaced as a whole, never changed."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from devherd._native import Preference
from devherd.proto import deviceplugin_v1beta1_pb2 as v1beta1
from devherd.proto import spool_pb2
from devherd.pulse import Pulse
from devherd.spool import HEALTHY, UNHEALTHY
from devherd.spool.listing import listed

_KINDS = {spool_pb2.ALIGNED: "aligned", spool_pb2.DISTRIBUTED: "distributed"}


@dataclass(frozen=True)
class Snapshot:
    """A spool Resource and the answers that follow from it; those that only an admission needs are made when needed."""

    resource: spool_pb2.Resource

    @property
    def name(self) -> str:
        """The resource's name as pods ask for it."""
        return self.resource.name

    @property
    def version(self) -> int:
        """The version of the file that it was made from."""
        return self.resource.version

    @cached_property
    def device_list(self) -> v1beta1.ListAndWatchResponse:
        """The complete list for the kubelet, in the spool's order."""
        with_topology = has_topology(self.resource)
        response = v1beta1.ListAndWatchResponse()
        for device_id, device in listed(self.resource):
            each = response.devices.add(ID=device_id, health=UNHEALTHY if device.reasons else HEALTHY)
            for node in device.numa_nodes if with_topology else ():
                each.topology.nodes.add(ID=node)
        return response

    @cached_property
    def devices(self) -> Mapping[str, spool_pb2.Device]:
        """Every device by id."""
        return dict(listed(self.resource))

    @cached_property
    def positions(self) -> Mapping[str, int]:
        """The position of each id in the spool's order, which is the natural one."""
        return {device_id: position for position, device_id in enumerate(self.devices)}

    @cached_property
    def healthy(self) -> frozenset[str]:
        """The ids that can be allocated."""
        return frozenset(device_id for device_id, device in self.devices.items() if not device.reasons)

    @cached_property
    def preference(self) -> Preference:
        """The chooser of devices that fit together."""
        return preference(self.resource)

    @cached_property
    def options(self) -> v1beta1.DevicePluginOptions:
        """What the kubelet asks for when a server registers."""
        return v1beta1.DevicePluginOptions(
            pre_start_required=False,
            get_preferred_allocation_available=self.resource.preferred != spool_pb2.NONE,
        )

    def without_devices(self) -> "Snapshot":
        """The same resource without any device."""
        empty = spool_pb2.Resource()
        empty.CopyFrom(self.resource)
        empty.ClearField("devices")
        return Snapshot(empty)


class Offered(Protocol):
    """A resource as it is served: the snapshot in force, and a pulse when there is another."""

    changed: Pulse

    @property
    def latest(self) -> Snapshot:
        """The snapshot in force."""


def has_topology(resource: spool_pb2.Resource) -> bool:
    """Whether every device knows its NUMA nodes.

    The topology manager never matches a device without one against a resource that has some, so it is all or none.
    """
    return all(device.numa_nodes for device in resource.devices)


def preference(resource: spool_pb2.Resource) -> Preference:
    """The chooser of a resource; packed where nothing is preferred, in which case the kubelet does not ask."""
    kind = _KINDS.get(resource.preferred, "packed")
    return Preference(
        kind,
        [
            (
                device_id,
                device.id,
                device.card,
                device.numa_nodes,
                not device.reasons,
                dict(device.distances) if kind == "aligned" else {},
            )
            for device_id, device in listed(resource)
        ],
    )
