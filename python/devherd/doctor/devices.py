"""What one scan finds: devices, cards without their driver, and what cannot be read."""

from collections.abc import Iterable, Iterator

from devherd.amounts import amount
from devherd.doctor.line import Line, ok, problem, warning
from devherd.proto import spool_pb2
from devherd.spool.listing import size_of

TOPIC = "devices"


def judge(resources: list[spool_pb2.Resource], problems: Iterable[spool_pb2.Problem]) -> Iterator[Line]:
    """What is to be said of a scan."""
    for resource in resources:
        count = amount(size_of(resource), "device")
        unhealthy = [device for device in resource.devices if device.reasons]
        if not unhealthy:
            yield ok(TOPIC, f"{resource.name}: {count}")
        for device in unhealthy:
            yield problem(TOPIC, ill(resource, device), f"devherd scan --explain --resource {resource.name}")
    if not resources:
        yield warning(TOPIC, "no device was found", "`devherd scan` says where it looked; load the devices' drivers")
    for one in problems:
        subject = f"{one.vendor}: {one.device or one.path}"
        yield problem(TOPIC, f"{subject}: {one.error}", "`devherd scan` shows it with its path")


def ill(resource: spool_pb2.Resource, device: spool_pb2.Device) -> str:
    """What is said of an unhealthy device."""
    return f"{resource.name}: {device.id} is Unhealthy: {', '.join(device.reasons)}"


def has_network_cards(resources: Iterable[spool_pb2.Resource]) -> bool:
    """Whether there is a device of whose card devlink may speak."""
    return any("rdma" in (device.vendor, resource.vendor) for resource in resources for device in resource.devices)


def uses_cdi(resources: Iterable[spool_pb2.Resource]) -> bool:
    """Whether a container gets any device by CDI."""
    return any(device.edits.cdi_devices for resource in resources for device in resource.devices)
