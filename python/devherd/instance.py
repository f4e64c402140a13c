"""What a running instance has written in its run directory: resources, registration, scan, children, at one moment.

Only reads: the exporter and `devherd status` show it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property

from devherd import head, served, spool, standby_file
from devherd.head import Head
from devherd.inventory import DeviceKey, key_of
from devherd.inventory_json import Json, inventory_json
from devherd.proto import health_pb2, spool_pb2
from devherd.served import Address
from devherd.settings import Settings
from devherd.spool.listing import listed
from devherd.standby_file import Waiting

Holder = Mapping[str, str]
"""Who holds a device: `namespace`, `pod`, `container`."""

Allocations = Mapping[tuple[str, str], list[Holder]]
"""Holders by resource name and device id."""

RUNNING, STOPPED = "RUNNING", "STOPPED"
_COUNTS = "nvml"
"""The source that is a process of its own and counts beside what it finds."""


@dataclass(frozen=True, slots=True)
class Registration:
    """Whether the kubelet knows a resource; when it does not, `detail` says why."""

    registered: bool
    detail: str
    streams: int


@dataclass(frozen=True)
class Herd:
    """A running instance. `scan` is None before the first scan, `supervisor_pid` 0 when none ever ran here."""

    resources: list[spool_pb2.Resource] = field(default_factory=list)
    states: Mapping[str, spool_pb2.ResourceState] = field(default_factory=dict)
    scan: spool_pb2.ScanSummary | None = None
    children: Mapping[str, spool_pb2.Child] = field(default_factory=dict)
    supervisor_pid: int = 0
    scanner_counters: Sequence[spool_pb2.Series] = ()
    config_reloads: int = 0
    config_reload_failures: int = 0
    configuration: spool_pb2.Configuration = field(default_factory=spool_pb2.Configuration)
    verdicts: Sequence[health_pb2.Verdict] = ()
    sources: Sequence[health_pb2.SourceState] = ()
    counts: Sequence[health_pb2.Count] = ()
    """What sources have counted on the way."""
    head: Head | None = None
    """None before the supervisor has written it."""
    standby: Waiting | None = None
    """Who waits for its end, to take over."""

    served: Sequence[Address] | None = None
    """Where the exporter serves and where not, as it says itself; None where it has not said so."""

    def addresses(self) -> Sequence[Address]:
        """Where HTTP is configured, and whether it is served there; none where that is not known."""
        exporter = self.children.get("exporter")
        if exporter is None or exporter.state in {RUNNING, "STARTING"}:
            return self.served or ()
        configured = self.head.listen.split(",") if self.head and self.head.listen else ()
        cure = "devherd ctl start exporter" if exporter.state == STOPPED else "devherd ctl tail exporter"
        return [Address(address=each, refusal=f"its process is {exporter.state}", cure=cure) for each in configured]

    def child_of(self, resource_name: str) -> spool_pb2.Child | None:
        """The child that serves a resource; None when the supervisor does not list one."""
        return self.children.get(f"resource:{spool.key_of(resource_name)}")

    def since(self, device: spool_pb2.Device) -> float | None:
        """Since which Unix second it is Unhealthy, or else warned of; None where it is neither."""
        action = health_pb2.UNHEALTHY if device.reasons else health_pb2.WARN
        verdict = self._verdict_of.get(key_of(device))
        counting = [
            held.first_timestamp_seconds
            for held in (verdict.held if verdict else ())
            if held.action == action and not held.is_over and not held.is_waiting
        ]
        return min(counting, default=None)

    @cached_property
    def _verdict_of(self) -> Mapping[DeviceKey, health_pb2.Verdict]:
        return {(verdict.vendor, verdict.card, verdict.device): verdict for verdict in self.verdicts}

    def registration(self, resource_name: str) -> Registration:
        """The registration of a resource. A child's last state is ignored when it is not running."""
        child = self.child_of(resource_name)
        if self.children and (child is None or child.state != RUNNING):
            return Registration(registered=False, detail=_why_not_running(child), streams=0)
        state = self.states.get(resource_name)
        if state is None:
            return Registration(registered=False, detail="no status from its process yet", streams=0)
        detail = "" if state.registered else state.detail or "not registered yet"
        return Registration(state.registered, detail, state.streams)

    def waiting(self, resources: Sequence[spool_pb2.Resource] | None = None) -> dict[str, list[str]]:
        """Of these resources, or of all, those that are not registered, by the reason."""
        by_reason: dict[str, list[str]] = {}
        for resource in self.resources if resources is None else resources:
            registration = self.registration(resource.name)
            if not registration.registered:
                by_reason.setdefault(registration.detail, []).append(resource.name)
        return by_reason


def read(settings: Settings) -> Herd:
    """The instance as its files show it; unreadable ones are left out. Raises OSError when a directory is closed."""
    resources = [resource for _, resource in spool.read_all(settings.resources_directory, spool_pb2.Resource)]
    children = spool.read_or_empty(settings.children_file, spool_pb2.Children)
    scanner = spool.read_or_empty(settings.scanner_state_file, spool_pb2.ScannerState)
    verdicts = spool.read_or_empty(settings.verdicts_file, health_pb2.Verdicts)
    nvml = spool.read_or_empty(spool.path_of(settings.findings_directory, _COUNTS), health_pb2.Findings)
    counts = spool.read_or_empty(settings.counts_file, health_pb2.Counts)
    doubts = spool.read_or_empty(settings.doubts_file, spool_pb2.Configuration)
    children.configuration.warnings.extend(doubts.warnings)
    return Herd(
        resources=sorted(resources, key=lambda resource: resource.name),
        states={state.name: state for _, state in spool.read_all(settings.state_directory, spool_pb2.ResourceState)},
        scan=_scan(settings),
        children={child.name: child for child in children.children},
        supervisor_pid=children.supervisor_pid,
        scanner_counters=list(scanner.counters),
        config_reloads=children.config_reloads,
        config_reload_failures=children.config_reload_failures,
        configuration=children.configuration,
        verdicts=list(verdicts.verdicts),
        sources=list(verdicts.sources),
        counts=[
            *([] if nvml.failed or nvml.boot_id != verdicts.boot_id else nvml.counts),
            *(counts.counts if counts.boot_id == verdicts.boot_id else ()),
        ],
        head=head.read(settings.instance_file),
        standby=standby_file.read(settings.standby_file),
        served=served.read(settings.served_file),
    )


def read_children(settings: Settings) -> Herd:
    """The processes of the instance alone: the least that tells whether it is alive."""
    children = spool.read_or_empty(settings.children_file, spool_pb2.Children)
    return Herd(
        children={child.name: child for child in children.children},
        supervisor_pid=children.supervisor_pid,
    )


def live_inventory(herd: Herd, allocations: Allocations | None) -> Json:
    """The inventory's JSON with the instance, each resource's registration and child, each device's holders and age.

    What is unknown is null. `since` is the Unix second from which on a device has been Unhealthy or warned of.
    """
    summary = herd.scan or spool_pb2.ScanSummary()
    inventory = inventory_json(herd.resources, summary.problems, summary.duration_seconds, summary.notices)
    inventory["scanned_at"] = summary.timestamp_seconds or None
    inventory["instance"] = asdict(herd.head) if herd.head else None
    inventory["http"] = [_address(each) for each in herd.addresses()]
    inventory["standby"] = asdict(herd.standby) if herd.standby else None
    by_name = {resource.name: resource for resource in herd.resources}
    for resource in inventory["resources"]:
        child = herd.child_of(resource["name"])
        resource["child"] = child.name if child else None
        registration = herd.registration(resource["name"])
        resource["registered"] = registration.registered
        resource["detail"] = registration.detail
        listed_devices = (device for _, device in listed(by_name[resource["name"]]))
        for device, known in zip(resource["devices"], listed_devices, strict=True):
            device["since"] = herd.since(known)
            device["allocated"] = (
                None
                if allocations is None
                else [dict(holder) for holder in allocations.get((resource["name"], device["id"]), [])]
            )
    return inventory


def _address(known: Address) -> Json:
    return {
        "address": known.address,
        "is_served": not known.refusal,
        "refusal": known.refusal or None,
        "cure": known.cure or None,
    }


def _why_not_running(child: spool_pb2.Child | None) -> str:
    if child is None or (child.state == STOPPED and not (child.started_timestamp_seconds or child.last_exit)):
        return "its process has not been started yet"
    if child.state == STOPPED:  # everything else is started again by itself
        return f"stopped by an operator; `devherd ctl start {child.name}`"
    last_exit = f", last exit: {child.last_exit}" if child.last_exit else ""
    return f"its process is {child.state}{last_exit}"


def _scan(settings: Settings) -> spool_pb2.ScanSummary | None:
    try:
        return spool.read(settings.scan_file, spool_pb2.ScanSummary)
    except (FileNotFoundError, spool.SpoolError):
        return None
