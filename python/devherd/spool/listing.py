"""The ids that the kubelet knows the devices of a resource by: a shared device has several, and is written once."""

from collections.abc import Iterator

from devherd.proto import spool_pb2


def ids_of(device_id: str, replicas: int) -> list[str]:
    """`<id>::0` and on for a device with replicas, its own id for one that is not shared."""
    return [f"{device_id}::{number}" for number in range(replicas)] or [device_id]


def listed(resource: spool_pb2.Resource) -> Iterator[tuple[str, spool_pb2.Device]]:
    """Every id with its device, in the resource's order."""
    for device in resource.devices:
        for device_id in ids_of(device.id, device.replicas):
            yield device_id, device


def size_of(resource: spool_pb2.Resource) -> int:
    """How many ids there are."""
    return sum(device.replicas or 1 for device in resource.devices)
