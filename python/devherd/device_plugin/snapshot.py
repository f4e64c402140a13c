"""What devherd reports to the kubelet about a resource: immutable, made from one version of its spool file."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from devherd._native import NaturalKey, Preference, device_list
from devherd.kubelet.registration import Broadcast
from devherd.proto import deviceplugin_v1beta1_pb2 as v1beta1
from devherd.proto import spool_pb2
from devherd.spool import encoded, listed

_KINDS = {spool_pb2.ALIGNED: "aligned", spool_pb2.DISTRIBUTED: "distributed"}


@dataclass(frozen=True)
class Snapshot:
    """A spool Resource and the answers derived from it, most of them on first use."""

    resource: spool_pb2.Resource

    @property
    def name(self) -> str:
        """The resource's name as pods request it."""
        return self.resource.name

    @property
    def version(self) -> int:
        """The version of the file that this was made from."""
        return self.resource.version

    @cached_property
    def _list(self) -> tuple[bytes, list[str]]:
        return device_list(encoded(self.resource))

    @cached_property
    def device_list(self) -> v1beta1.ListAndWatchResponse:
        """The complete list for the kubelet, in natural order."""
        return v1beta1.ListAndWatchResponse.FromString(self._list[0])

    @property
    def unhealthy_ids(self) -> set[str]:
        """The Unhealthy ids of the list."""
        return set(self._list[1])

    @cached_property
    def devices(self) -> Mapping[str, spool_pb2.ListedDevice]:
        """Every device by each of its ids, in natural order of these."""
        return devices_by_id(self.resource)

    @cached_property
    def positions(self) -> Mapping[str, int]:
        """The position of each id in natural order."""
        return {device_id: position for position, device_id in enumerate(self.devices)}

    @cached_property
    def healthy(self) -> frozenset[str]:
        """The ids that can be allocated."""
        return frozenset(device_id for device_id, device in self.devices.items() if not device.reasons)

    @cached_property
    def preference(self) -> Preference:
        """The chooser for GetPreferredAllocation."""
        return preference(self.resource)

    @cached_property
    def options(self) -> v1beta1.DevicePluginOptions:
        """The options that the kubelet reads at a registration."""
        return v1beta1.DevicePluginOptions(
            pre_start_required=any(device.asks_before_start for device in self.resource.devices),
            get_preferred_allocation_available=self.resource.preferred != spool_pb2.NONE,
        )

    def without_devices(self) -> "Snapshot":
        """A copy without devices."""
        empty = spool_pb2.Resource()
        empty.CopyFrom(self.resource)
        empty.ClearField("devices")
        return Snapshot(empty)


class ServedResource(Protocol):
    """A resource as served: the snapshot in force, and a notification when it is replaced."""

    changed: Broadcast

    @property
    def latest(self) -> Snapshot:
        """The snapshot in force."""


def devices_by_id(resource: spool_pb2.Resource) -> dict[str, spool_pb2.ListedDevice]:
    """Every device by each of its ids, in natural order of these."""
    pairs = listed(resource)
    if any(device.shares for device in resource.devices):  # otherwise the order of the devices is that of the ids
        return dict(sorted(pairs, key=lambda pair: NaturalKey(pair[0])))
    return dict(pairs)


def preference(resource: spool_pb2.Resource) -> Preference:
    """The chooser of a resource; `packed` if nothing is preferred, in which case the kubelet does not call it."""
    kind = _KINDS.get(resource.preferred, "packed")
    return Preference(
        kind,
        [
            (
                device_id,
                device_id.rpartition("::")[0] if device.replicas else device_id,
                device.card,
                device.numa_nodes,
                not device.reasons,
                dict(device.distances) if kind == "aligned" else {},
            )
            for device_id, device in devices_by_id(resource).items()
        ],
    )
