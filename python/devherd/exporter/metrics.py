"""Everything on /metrics: gauges made from the run directory at each scrape, and the counters that the processes keep.

A series exists for as long as its subject: the series of removed devices and resources are removed with them.
"""

import time
from collections.abc import Iterator

from devherd._native import vendors
from devherd.exporter import totals
from devherd.exporter.exposition import Family
from devherd.heartbeat import Heartbeats
from devherd.instance import RUNNING, Allocations, Herd
from devherd.inventory_json import health_of
from devherd.proto import health_pb2, spool_pb2
from devherd.spool.listing import listed
from devherd.version import revision, version

RESTART_CAUSES = ("exit", "signal", "heartbeat", "operator", "renewal")


# A vendor's name for the kind of device, best one first; every card has the PCI device id.
_MODEL_FACTS = {row.name: (*row.model, "device_id") for row in vendors()}


def families(herd: Herd, allocations: Allocations | None, heartbeats: Heartbeats) -> Iterator[Family]:
    """Gauges, then counters and histograms by name."""
    counted = list(totals.families(herd))
    yield build_info()
    yield from device_gauges(herd)
    yield allocated(herd, allocations)
    yield from scan_gauges(herd, next((family for family in counted if family.name == "devherd_scans"), None))
    yield from source_gauges(herd)
    yield from registration_gauges(herd)
    yield from child_metrics(herd, heartbeats)
    yield from configuration(herd)
    yield from counted


def configuration(herd: Herd) -> Iterator[Family]:
    """The configuration in force and its reloads, as the supervisor knows them; no series before there is one."""
    if herd.supervisor_pid:
        successful = Family(
            "devherd_config_last_reload_successful",
            "1 when the configuration in force is the last one that was asked for, 0 when that one was refused.",
        )
        successful.add(not herd.configuration.refusal)
        loaded = Family(
            "devherd_config_last_reload_success_timestamp_seconds", "When the configuration in force was loaded."
        )
        loaded.add(herd.configuration.loaded_timestamp_seconds)
        warnings = Family("devherd_config_warnings", "Settings of the configuration in force that have no effect.")
        warnings.add(len(herd.configuration.warnings))
        yield from (successful, loaded, warnings)
        reloads = Family("devherd_config_reloads", "Requests to reload the configuration.", "counter")
        reloads.add(herd.config_reloads)
        failures = Family(
            "devherd_config_reload_failures", "Reloads refused because the configuration was bad.", "counter"
        )
        failures.add(herd.config_reload_failures)
        yield from (reloads, failures)


def build_info() -> Family:
    """Which devherd this is, as labels of a constant 1."""
    family = Family("devherd_build_info", "Version and revision of devherd.")
    family.add(1, version=version(), revision=revision())
    return family


def device_gauges(herd: Herd) -> Iterator[Family]:
    """Devices by resource, and each with its health, its reasons and what it is."""
    devices = Family("devherd_devices", "Devices of a resource by health.")
    healthy = Family("devherd_device_healthy", "Whether a device is healthy.")
    reasons = Family("devherd_device_unhealthy_reason", "Why a device is unhealthy.")
    info = Family("devherd_device_info", "What a device is.")
    for resource in herd.resources:
        counts = {"Healthy": 0, "Unhealthy": 0}
        for device_id, device in listed(resource):
            counts[health_of(device)] += 1
            healthy.add(not device.reasons, resource_name=resource.name, device_id=device_id)
            for reason in device.reasons:
                reasons.add(1, resource_name=resource.name, device_id=device_id, reason=reason)
            info.add(1, resource_name=resource.name, device_id=device_id, **_facts(resource, device))
        for health, count in counts.items():
            devices.add(count, resource_name=resource.name, health=health)
    yield from (devices, healthy, reasons, findings(herd), info)


def findings(herd: Herd) -> Family:
    """What is held against each device, warnings and what is ignored as well, and which source saw it."""
    family = Family("devherd_device_finding", "What a source holds against a device.")
    by_device = {(verdict.vendor, verdict.card, verdict.device): verdict.held for verdict in herd.verdicts}
    for resource in herd.resources if by_device else ():
        for device_id, device in listed(resource):
            held = by_device.get((device.vendor, device.card, device.id), ())
            standing = {(one.source, one.reason, one.action) for one in held if not (one.is_over or one.is_waiting)}
            for source, reason, action in sorted(standing):
                labels = {"source": source, "reason": reason, "action": health_pb2.Action.Name(action).lower()}
                family.add(1, resource_name=resource.name, device_id=device_id, **labels)
    return family


def allocated(herd: Herd, allocations: Allocations | None) -> Family:
    """Which container holds which device; no series while the kubelet cannot be asked."""
    family = Family("devherd_device_allocated", "Which container holds a device.")
    held = allocations or {}
    for resource in herd.resources:
        for device_id, _ in listed(resource):
            for holder in held.get((resource.name, device_id), ()):
                family.add(1, resource_name=resource.name, device_id=device_id, **holder)
    return family


def scan_gauges(herd: Herd, scans: Family | None) -> Iterator[Family]:
    """When the host was last looked at, and what could not be looked at. `scans` names the vendors that were asked."""
    problems = Family("devherd_scan_problems", "Problems of the last scan.")
    last = Family("devherd_last_scan_timestamp_seconds", "Time of the last scan.")
    if herd.scan is not None:
        counts = {labels["vendor"]: 0 for _, labels, _ in scans.samples} if scans else {}
        for problem in herd.scan.problems:
            counts[problem.vendor] = counts.get(problem.vendor, 0) + 1
        for vendor in sorted(counts):
            problems.add(counts[vendor], vendor=vendor)
        last.add(herd.scan.timestamp_seconds)
    yield from (problems, last)


def source_gauges(herd: Herd) -> Iterator[Family]:
    """Whether each source of health findings can look, and when it did last."""
    up = Family("devherd_health_source_up", "Whether a source of health findings can look.")
    last = Family(
        "devherd_health_source_last_report_timestamp_seconds", "When a source of health findings looked last."
    )
    for source in herd.sources:
        up.add(not source.failed, source=source.source)
        if source.last_report_timestamp_seconds:
            last.add(source.last_report_timestamp_seconds, source=source.source)
    yield from (up, last)


def registration_gauges(herd: Herd) -> Iterator[Family]:
    """How each resource stands with the kubelet."""
    registered = Family("devherd_registered", "Whether the kubelet has a resource.")
    streams = Family("devherd_list_and_watch_streams", "Open ListAndWatch streams.")
    for resource in herd.resources:
        registration = herd.registration(resource.name)
        registered.add(registration.registered, resource_name=resource.name)
        streams.add(registration.streams, resource_name=resource.name)
    yield from (registered, streams)


def child_metrics(herd: Herd, heartbeats: Heartbeats) -> Iterator[Family]:
    """Whether each child runs, when it last beat, and why it was started again."""
    up = Family("devherd_child_up", "Whether a child process runs.")
    beats = Family("devherd_child_last_heartbeat_timestamp_seconds", "Time of a child's last heartbeat.")
    restarts = Family("devherd_child_restarts", "Restarts of a child by cause.", "counter")
    wall_clock_offset = time.time() - time.monotonic()
    for name, child in sorted(herd.children.items()):
        up.add(child.state == RUNNING, child=name)
        last_beat = heartbeats.last_beat(child.heartbeat_slot)
        if last_beat:
            beats.add(last_beat + wall_clock_offset, child=name)
        for cause in sorted({*RESTART_CAUSES, *child.restarts}):
            restarts.add(child.restarts.get(cause, 0), child=name, cause=cause)
    yield from (up, beats, restarts)


def _facts(resource: spool_pb2.Resource, device: spool_pb2.Device) -> dict[str, str]:
    attributes = device.attributes
    vendor = device.vendor or resource.vendor
    return {
        "vendor": vendor,
        "model": next((attributes[name] for name in _MODEL_FACTS.get(vendor, ()) if name in attributes), ""),
        "pci_address": attributes.get("pci_address", ""),
        "numa_node": ",".join(str(node) for node in device.numa_nodes),
    }
