"""The series of devices: all of them, those of physical devices, what is wrong with any, or none.

A shared device is listed once for each of its replicas, `<id>::<n>`; the health of all of them is that of the device.
"""

from collections.abc import Iterator

from devherd._native import vendors
from devherd.config.resolved import DeviceMetrics
from devherd.exporter import observed
from devherd.exporter.exposition import Family
from devherd.instance import Allocations, Herd
from devherd.inventory_json import health_of
from devherd.proto import health_pb2, spool_pb2
from devherd.spool import HEALTHY, UNHEALTHY
from devherd.spool.listing import ids_of, listed

# A vendor's name for the kind of device, best one first; every card has the PCI device id.
_MODEL_FACTS = {row.name: (*row.model, "device_id") for row in vendors()}


def families(herd: Herd, allocations: Allocations | None, of_devices: DeviceMetrics = "all") -> Iterator[Family]:
    """Devices by resource, and as much of each as `of_devices` says."""
    yield count(herd)
    if of_devices in ("all", "physical"):
        yield from facts(herd, of_devices)
        yield allocated(herd, allocations, of_devices)
        yield from counts(herd, of_devices)
    if of_devices != "none":
        yield from trouble(herd, of_devices)
        yield findings(herd, of_devices)


def shown(resource: spool_pb2.Resource, of_devices: DeviceMetrics) -> Iterator[tuple[str, spool_pb2.Device]]:
    """The devices of a resource by the ids that their series have."""
    return listed(resource) if of_devices == "all" else ((device.id, device) for device in resource.devices)


def count(herd: Herd) -> Family:
    """Devices by resource and health, as the kubelet counts them."""
    family = observed.DEVICES.family()
    for resource in herd.resources:
        counts = {HEALTHY: 0, UNHEALTHY: 0}
        for device in resource.devices:
            counts[health_of(device)] += device.replicas or 1
        for health, number in counts.items():
            family.add(number, resource_name=resource.name, health=health)
    return family


def facts(herd: Herd, of_devices: DeviceMetrics) -> Iterator[Family]:
    """Whether each device is healthy, and what it is."""
    healthy, info = observed.DEVICE_HEALTHY.family(), observed.DEVICE_INFO.family()
    for resource in herd.resources:
        for device_id, device in shown(resource, of_devices):
            healthy.add(not device.reasons, resource_name=resource.name, device_id=device_id)
            info.add(1, resource_name=resource.name, device_id=device_id, **_facts(resource, device))
    yield from (healthy, info)


def trouble(herd: Herd, of_devices: DeviceMetrics) -> Iterator[Family]:
    """Why devices are unhealthy, and what is said about them beside that."""
    reasons, warnings = observed.DEVICE_UNHEALTHY_REASON.family(), observed.DEVICE_WARNING.family()
    for resource in herd.resources:
        for device_id, device in shown(resource, of_devices):
            for family, words in ((reasons, device.reasons), (warnings, device.warnings)):
                for reason in words:
                    family.add(1, resource_name=resource.name, device_id=device_id, reason=reason)
    yield from (reasons, warnings)


def findings(herd: Herd, of_devices: DeviceMetrics) -> Family:
    """What is held against each device, warnings and what is ignored as well, and which source saw it."""
    family = observed.DEVICE_FINDING.family()
    by_device = {(verdict.vendor, verdict.card, verdict.device): verdict.held for verdict in herd.verdicts}
    for resource in herd.resources if by_device else ():
        for device_id, device in shown(resource, of_devices):
            held = by_device.get((device.vendor, device.card, device.id), ())
            standing = {(one.source, one.reason, one.action) for one in held if not (one.is_over or one.is_waiting)}
            for source, reason, action in sorted(standing):
                labels = {"source": source, "reason": reason, "action": health_pb2.Action.Name(action).lower()}
                family.add(1, resource_name=resource.name, device_id=device_id, **labels)
    return family


def allocated(herd: Herd, allocations: Allocations | None, of_devices: DeviceMetrics) -> Family:
    """Which container holds which device; no series while the kubelet cannot be asked."""
    family = observed.DEVICE_ALLOCATED.family()
    held = allocations or {}
    for resource in herd.resources if held else ():
        for device_id, device in shown(resource, of_devices):
            ids = [device_id] if of_devices == "all" else ids_of(device.id, device.replicas)
            holders = {tuple(holder.items()) for each in ids for holder in held.get((resource.name, each), ())}
            for holder in sorted(holders):
                family.add(1, resource_name=resource.name, device_id=device_id, **dict(holder))
    return family


def counts(herd: Herd, of_devices: DeviceMetrics) -> Iterator[Family]:
    """What sources have counted of the card that each device is on; nothing of what nobody counts."""
    by_address: dict[str, dict[tuple[str, ...], health_pb2.Count]] = {}
    for each in herd.counts:  # of a function that devices of two vendors are on, once
        by_address.setdefault(each.pci_address, {})[each.name, each.ibdev, each.part, each.kind] = each
    families = {name: kind.family() for name, kind in observed.DEVICE_COUNTS.items()}
    for resource in herd.resources if by_address else ():
        for device_id, device in shown(resource, of_devices):
            for one in by_address.get(device.attributes.get("pci_address", ""), {}).values():
                if one.name in families and one.ibdev in ("", device.attributes.get("ibdev")):
                    own = observed.DEVICE_COUNTS[one.name].labels[len(observed.DEVICE) :]
                    labels = {label: one.kind if label == "kind" else one.part for label in own}
                    families[one.name].add(one.number, resource_name=resource.name, device_id=device_id, **labels)
    yield from (family for family in families.values() if family.samples)


def _facts(resource: spool_pb2.Resource, device: spool_pb2.Device) -> dict[str, str]:
    attributes = device.attributes
    vendor = device.vendor or resource.vendor
    return {
        "vendor": vendor,
        "model": next((attributes[name] for name in _MODEL_FACTS.get(vendor, ()) if name in attributes), ""),
        "pci_address": attributes.get("pci_address", ""),
        "numa_node": ",".join(str(node) for node in device.numa_nodes),
    }
