"""Everything on /metrics: gauges made from the run directory at each scrape, and the counters that the processes keep.

A series exists for as long as what it tells of: devices and resources that are gone take their series with them.
"""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from devherd.exporter import counter_files
from devherd.heartbeat import Heartbeats
from devherd.inventory_json import health_of
from devherd.proto import spool_pb2
from devherd.run_directory import RUNNING, Allocations, Herd
from devherd.version import revision, version

# A counter that first appears at 1 hides its first event from rate(): known resources and devices start at 0.
PER_RESOURCE = {
    "devherd_registrations": "Registrations with the kubelet.",
    "devherd_registration_failures": "Registrations that failed.",
    "devherd_list_and_watch_sends": "Device lists sent to the kubelet.",
    "devherd_allocations": "Containers given devices.",
    "devherd_allocation_failures": "Allocate requests refused.",
}
PER_DEVICE = {"devherd_device_health_changes": "Changes of a device's health."}
RESTART_CAUSES = ("exit", "signal", "heartbeat", "operator")

# What vendors call the kind of device it is, best word first; the PCI device id is what every card has.
_MODEL_ATTRIBUTES = ("model", "product_name", "vbnv", "hca_type", "afu_id", "interface_id", "usb_id", "device_id")


class HerdCollector(Collector):
    """Collects at each scrape from what `herd` and `allocations` return."""

    def __init__(
        self,
        herd: Callable[[], Herd],
        allocations: Callable[[], Allocations | None],
        heartbeats: Heartbeats,
        counters_directory: Path,
    ) -> None:
        self._herd = herd
        self._allocations = allocations
        self._heartbeats = heartbeats
        self._counters_directory = counters_directory

    def collect(self) -> Iterator[Metric]:
        """Gauges, then counters and histograms by name."""
        herd = self._herd()
        counted = {metric.name: metric for metric in counter_files.read(self._counters_directory, _known_in(herd))}
        _start_at_zero(counted, herd)
        yield build_info()
        yield from device_gauges(herd)
        yield allocated(herd, self._allocations())
        yield from scan_gauges(herd, counted.get("devherd_scans"))
        yield from registration_gauges(herd)
        yield from child_metrics(herd, self._heartbeats)
        for name in sorted(counted):
            yield counted[name]


def build_info() -> Metric:
    """Which devherd this is, as labels of a constant 1."""
    family = GaugeMetricFamily("devherd_build_info", "Version and revision of devherd.", labels=["version", "revision"])
    family.add_metric([version(), revision()], 1)
    return family


def device_gauges(herd: Herd) -> Iterator[Metric]:
    """Devices by resource, and each with its health, its reasons and what it is."""
    devices = GaugeMetricFamily(
        "devherd_devices", "Devices of a resource by health.", labels=["resource_name", "health"]
    )
    healthy = GaugeMetricFamily(
        "devherd_device_healthy", "Whether a device is healthy.", labels=["resource_name", "device_id"]
    )
    reasons = GaugeMetricFamily(
        "devherd_device_unhealthy_reason", "Why a device is unhealthy.", labels=["resource_name", "device_id", "reason"]
    )
    info = GaugeMetricFamily(
        "devherd_device_info",
        "What a device is.",
        labels=["resource_name", "device_id", "vendor", "model", "pci_address", "numa_node"],
    )
    for resource in herd.resources:
        counts = {"Healthy": 0, "Unhealthy": 0}
        for device in resource.devices:
            counts[health_of(device)] += 1
            healthy.add_metric([resource.name, device.id], 0 if device.reasons else 1)
            for reason in device.reasons:
                reasons.add_metric([resource.name, device.id, reason], 1)
            info.add_metric([resource.name, device.id, *_facts(resource, device)], 1)
        for health, count in counts.items():
            devices.add_metric([resource.name, health], count)
    yield from (devices, healthy, reasons, info)


def allocated(herd: Herd, allocations: Allocations | None) -> Metric:
    """Which container holds which device; no series while the kubelet cannot be asked."""
    family = GaugeMetricFamily(
        "devherd_device_allocated",
        "Which container holds a device.",
        labels=["resource_name", "device_id", "namespace", "pod", "container"],
    )
    held = allocations or {}
    for resource in herd.resources:
        for device in resource.devices:
            for holder in held.get((resource.name, device.id), ()):
                place = holder["namespace"], holder["pod"], holder["container"]
                family.add_metric([resource.name, device.id, *place], 1)
    return family


def scan_gauges(herd: Herd, scans: Metric | None) -> Iterator[Metric]:
    """When the host was last looked at, and what could not be looked at. `scans` names the vendors that were asked."""
    problems = GaugeMetricFamily("devherd_scan_problems", "Problems of the last scan.", labels=["vendor"])
    last = GaugeMetricFamily("devherd_last_scan_timestamp_seconds", "Time of the last scan.")
    if herd.scan is not None:
        counts = {sample.labels["vendor"]: 0 for sample in scans.samples} if scans else {}
        for problem in herd.scan.problems:
            counts[problem.vendor] = counts.get(problem.vendor, 0) + 1
        for vendor in sorted(counts):
            problems.add_metric([vendor], counts[vendor])
        last.add_metric([], herd.scan.timestamp_seconds)
    yield from (problems, last)


def registration_gauges(herd: Herd) -> Iterator[Metric]:
    """How each resource stands with the kubelet."""
    registered = GaugeMetricFamily(
        "devherd_registered", "Whether the kubelet has a resource.", labels=["resource_name"]
    )
    streams = GaugeMetricFamily(
        "devherd_list_and_watch_streams", "Open ListAndWatch streams.", labels=["resource_name"]
    )
    for resource in herd.resources:
        registration = herd.registration(resource.name)
        registered.add_metric([resource.name], int(registration.registered))
        streams.add_metric([resource.name], registration.streams)
    yield from (registered, streams)


def child_metrics(herd: Herd, heartbeats: Heartbeats) -> Iterator[Metric]:
    """Whether each child runs, when it last beat, and why it was started again."""
    up = GaugeMetricFamily("devherd_child_up", "Whether a child process runs.", labels=["child"])
    beats = GaugeMetricFamily(
        "devherd_child_last_heartbeat_timestamp_seconds", "Time of a child's last heartbeat.", labels=["child"]
    )
    restarts = CounterMetricFamily("devherd_child_restarts", "Restarts of a child by cause.", labels=["child", "cause"])
    wall_clock_offset = time.time() - time.monotonic()
    for name, child in sorted(herd.children.items()):
        up.add_metric([name], int(child.state == RUNNING))
        last_beat = heartbeats.last_beat(child.heartbeat_slot)
        if last_beat:
            beats.add_metric([name], last_beat + wall_clock_offset)
        for cause in sorted({*RESTART_CAUSES, *child.restarts}):
            restarts.add_metric([name, cause], child.restarts.get(cause, 0))
    yield from (up, beats, restarts)


def _facts(resource: spool_pb2.Resource, device: spool_pb2.Device) -> list[str]:
    attributes = device.attributes
    model = next((attributes[name] for name in _MODEL_ATTRIBUTES if name in attributes), "")
    numa_node = ",".join(str(node) for node in device.numa_nodes)
    return [device.vendor or resource.vendor, model, attributes.get("pci_address", ""), numa_node]


def _known_in(herd: Herd) -> counter_files.Keep:
    devices = {resource.name: {device.id for device in resource.devices} for resource in herd.resources}

    def keep(labels: dict[str, str]) -> bool:
        if "resource_name" not in labels:
            return True
        known = devices.get(labels["resource_name"])
        return known is not None and ("device_id" not in labels or labels["device_id"] in known)

    return keep


def _start_at_zero(counted: dict[str, Metric], herd: Herd) -> None:
    resources = [{"resource_name": resource.name} for resource in herd.resources]
    devices = [
        {"resource_name": resource.name, "device_id": device.id}
        for resource in herd.resources
        for device in resource.devices
    ]
    for names, series in ((PER_RESOURCE, resources), (PER_DEVICE, devices)):
        for name, documentation in names.items():
            family = counted.setdefault(name, Metric(name, documentation, "counter"))
            present = {tuple(sorted(sample.labels.items())) for sample in family.samples}
            family.samples.extend(
                Sample(f"{name}_total", labels, 0.0)
                for labels in series
                if tuple(sorted(labels.items())) not in present
            )
