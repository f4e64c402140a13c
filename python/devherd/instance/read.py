"""Reads the files of a running instance: resources, registration, scan, children. Never writes.

The exporter and `devherd status` show the result.
"""

import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from devherd import spool
from devherd.instance.files import read_standby
from devherd.instance.inventory_json import Json, inventory_json, to_do
from devherd.instance.lost_devices import lost_json
from devherd.inventory import Allocations, DeviceKey, key_of
from devherd.process import OLDEST_CLOCK, Heartbeat, heartbeats_of, started_at
from devherd.proto import health_pb2, spool_pb2
from devherd.reasons.registry import LEDGER
from devherd.settings import Settings
from devherd.spool import listed
from devherd.text import duration
from devherd.waits import USUAL_WAITS

RUNNING, STARTING, STOPPED = "RUNNING", "STARTING", "STOPPED"
SUPERVISOR = "supervisor"
LONG_STANDBY_SECONDS = 600.0
"""A roll-out takes less than this time: an instance that stands by for longer was started by mistake."""
LATE_SCAN_SECONDS, LATE_SCAN_PERIODS = 30.0, 5
"""A scan is overdue after this many seconds or scan periods, whichever is longer."""
FULL_BYTES = 64 << 10
"""A run directory with less room than this is full: the largest file of a small node is smaller."""
_STEP_SECONDS = 5.0
"""A clock that differs by more was set, not slewed."""
_DRA = "dra:"
"""What the names of the two processes that serve DRA drivers begin with."""
_COUNTS = "nvml"
"""The source process that writes counts besides findings."""


def is_by_dra(offer: spool_pb2.Offer) -> bool:
    """Whether an offer is for Dynamic Resource Allocation: no process serves it as a resource."""
    return offer.front_end == spool.DRA_FRONT_END


def second_instance(standby: spool_pb2.Standby | None) -> str | None:
    """What is wrong if an instance has stood by for longer than a roll-out takes; None otherwise."""
    if standby is None or time.time() - standby.since < LONG_STANDBY_SECONDS:
        return None
    return (
        "two instances are meant for this node, and one of them never serves: end one of them, "
        "such as a systemd unit beside a DaemonSet, or the DaemonSet of another release"
    )


@dataclass(frozen=True, slots=True)
class RegistrationState:
    """A resource's registration with the kubelet; `detail` is the reason if it is not registered."""

    registered: bool
    detail: str
    streams: int


@dataclass(frozen=True, slots=True)
class DriverState:
    """A DRA driver's registration with the kubelet, by each of the two processes that serve it."""

    name: str
    refusals: Mapping[str, str]
    """By process: why it is not registered there; empty if it is. One is enough for pods."""

    __hash__ = None  # type: ignore[assignment]

    @property
    def registered(self) -> bool:
        """Whether pods can start with its devices."""
        return not all(self.refusals.values())

    @property
    def detail(self) -> str:
        """Why it is not registered; empty if it is."""
        return "" if self.registered else "; ".join(f"{process}: {why}" for process, why in self.refusals.items())


@dataclass(frozen=True, slots=True)
class SourceTrouble:
    """What is wrong with a health source, and the command that shows more of it."""

    source: str
    text: str
    command: str


@dataclass(frozen=True)
class InstanceState:
    """A running instance. `scan` is None before the first scan, `supervisor_pid` 0 if `children.pb` is missing."""

    resources: list[spool_pb2.Offer] = field(default_factory=list)
    """What is offered: as resources of the device plugin, or for DRA under the same names."""
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
    lost: Sequence[health_pb2.LostDevice] = ()
    """The lost devices, including those that are no longer in the kubelet's lists."""
    counts: Sequence[health_pb2.Count] = ()
    """Counts of the health sources."""
    instance: spool_pb2.Instance | None = None
    """None until the supervisor has written it."""
    standby: spool_pb2.Standby | None = None
    """The instance that waits to take over."""
    silent: frozenset[str] = frozenset()
    """The processes that should run but send no heartbeat; may include the supervisor (SUPERVISOR)."""
    full_directory: Path | None = None
    """The run directory, if it is full: what its files say may be old."""
    ledger: spool_pb2.Ledger | None = None
    """Who has which device open; None if the ledger is not kept."""
    served: Sequence[spool_pb2.Address] = ()
    """The exporter's addresses as it reports them; empty until its first report."""
    version: int | None = None
    """The version of the resources: equal ones have the same devices, facts and verdicts. None if it is not known."""
    dra_states: Mapping[str, spool_pb2.DraState] = field(default_factory=dict)
    """By `a` and `b`: what that process of DRA says of its drivers."""

    def addresses(self) -> Sequence[spool_pb2.Address]:
        """The configured HTTP addresses and whether they are served; empty if that is unknown."""
        if self.instance and not self.instance.listen:
            return ()  # what a file says is of an exporter that has ended
        exporter = self.children.get("exporter")
        if exporter is None or exporter.state in {RUNNING, STARTING}:
            return self.served
        configured = self.instance.listen.split(",") if self.instance and self.instance.listen else ()
        cure = "devherd ctl start exporter" if exporter.state == STOPPED else "devherd ctl tail exporter"
        refusal = f"its process is {exporter.state}"
        return [spool_pb2.Address(address=each, refusal=refusal, cure=cure) for each in configured]

    def overdue_scan(self) -> str | None:
        """Text on the age of the last scan, if the next one is overdue; None if it is not, or if that is unknown."""
        if self.scan is None or not self.scan.monotonic_seconds:
            return None
        age = time.monotonic() - self.scan.monotonic_seconds
        is_overdue = age > max(LATE_SCAN_SECONDS, LATE_SCAN_PERIODS * self.scan.period_seconds)
        return f"the last scan was {duration(age)} ago: changes of devices are not seen" if is_overdue else None

    def second_instance(self) -> str | None:
        """What is wrong if another instance has stood by for longer than a roll-out takes; None otherwise."""
        return second_instance(self.standby)

    def lack_of_room(self) -> str | None:
        """What a full run directory means; None if there is room."""
        if self.full_directory is None:
            return None
        return f"the run directory {self.full_directory} is full: what is shown here may be old; make room there"

    def child_of(self, resource_name: str) -> spool_pb2.Child | None:
        """The child that serves a resource; None if `children.pb` lists none."""
        return self.children.get(f"resource:{spool.key_of(resource_name)}")

    def source_troubles(self) -> Iterator[SourceTrouble]:
        """The health sources that cannot check, or report wrongly; no device is Unhealthy for either."""
        for source in self.sources:
            process = f"source:{source.source}"
            command = f"devherd ctl tail {process if process in self.children else 'scanner'}"
            if source.failed:
                text = f"source {source.source} cannot check devices: {source.failed}"
                yield SourceTrouble(source.source, text, command)
            for error in source.report_errors:
                yield SourceTrouble(source.source, f"source {source.source}: {error}", command)

    def held(self, device: spool_pb2.Device) -> Sequence[health_pb2.Held]:
        """The findings held against a device."""
        verdict = self._verdict_of.get(key_of(device))
        return verdict.held if verdict else ()

    def since(self, device: spool_pb2.Device) -> float | None:
        """The Unix second since which a device is Unhealthy or, if Healthy, has a warning; None without either."""
        action = health_pb2.UNHEALTHY if device.reasons else health_pb2.WARN
        counting = [
            _first(held)
            for held in self.held(device)
            if held.action == action and not held.is_over and not held.is_waiting
        ]
        return min(counting, default=None)

    @cached_property
    def shared_slots(self) -> frozenset[str]:
        """The slots in which there are several cards, below a switch: a slot's name alone does not tell which."""
        cards = {
            (one.vendor, one.card, one.attributes.get("slot", "")) for each in self.resources for one in each.devices
        }
        cards |= {(one.vendor, one.card, one.slot) for one in self.lost}
        counts = Counter(slot for _, card, slot in cards if card and slot)
        return frozenset(slot for slot, count in counts.items() if count > 1)

    def slot(self, name: str) -> str:
        """A slot, and whether several cards share it: `129 (shared)`."""
        return f"{name} (shared)" if name in self.shared_slots else name

    @cached_property
    def _verdict_of(self) -> Mapping[DeviceKey, health_pb2.Verdict]:
        return {(verdict.vendor, verdict.card, verdict.device): verdict for verdict in self.verdicts}

    def registration(self, resource_name: str) -> RegistrationState:
        """The registration of a resource. The state file of a child that does not run is ignored."""
        child = self.child_of(resource_name)
        if self.children and (child is None or child.state != RUNNING):
            return RegistrationState(registered=False, detail=_why_not_running(child), streams=0)
        if child and child.name in self.silent:
            return RegistrationState(registered=False, detail="its process gives no sign of life", streams=0)
        state = self.states.get(resource_name)
        if state is None:
            return RegistrationState(registered=False, detail="no status from its process yet", streams=0)
        detail = "" if state.registered else state.detail or "not registered yet"
        return RegistrationState(state.registered, detail, state.streams)

    @cached_property
    def is_dra(self) -> bool:
        """Whether devices are given by Dynamic Resource Allocation: no resource is registered then, but drivers are."""
        return any(name.startswith(_DRA) for name in self.children) or any(map(is_by_dra, self.resources))

    @cached_property
    def drivers(self) -> Sequence[DriverState]:
        """The DRA drivers, sorted by name."""
        if not self.is_dra:
            return ()
        said = {letter: {one.name: one for one in state.drivers} for letter, state in self.dra_states.items()}
        names = sorted({name for drivers in said.values() for name in drivers})
        return [
            DriverState(
                name, {f"{_DRA}{letter}": self._refusal(letter, said.get(letter, {}).get(name)) for letter in "ab"}
            )
            for name in names
        ]

    def _refusal(self, letter: str, driver: spool_pb2.DraDriver | None) -> str:
        """Why a driver is not registered by this process. The state file of a process that does not run is ignored."""
        child = self.children.get(f"{_DRA}{letter}")
        if self.children and (child is None or child.state != RUNNING):
            return _why_not_running(child)
        if child and child.name in self.silent:
            return "it gives no sign of life"
        if driver is None:
            return "no status from it yet"
        return "" if driver.registered else driver.detail or "not registered yet"

    def drivers_waiting(self) -> Iterator[tuple[str, str]]:
        """Name and reason of each driver that is not registered; a line without a name while none is known."""
        if self.is_dra and not self.drivers and any(resource.devices for resource in self.resources):
            yield "DRA", "no driver is served yet"
        yield from ((driver.name, driver.detail) for driver in self.drivers if not driver.registered)

    def known_holders(self, allocations: Allocations | None) -> Allocations | None:
        """The allocations, if they tell who holds which device: those of claims are not among them."""
        return None if self.is_dra else allocations

    def waiting(self, resources: Sequence[spool_pb2.Offer] | None = None) -> dict[str, list[str]]:
        """The names of resources that are not registered, by reason; of these resources, or of all.

        None of what is offered for DRA: `drivers` are registered there.
        """
        by_reason: dict[str, list[str]] = {}
        for resource in self.resources if resources is None else resources:
            if is_by_dra(resource):
                continue
            registration = self.registration(resource.name)
            if not registration.registered:
                by_reason.setdefault(registration.detail, []).append(resource.name)
        return by_reason


def read_instance(settings: Settings, heartbeats: Heartbeat | None = None) -> InstanceState:
    """Read the instance's files; those that cannot be parsed are skipped.

    Raises OSError if a directory is not readable, or no descriptor is left for a file.

    A caller outside the instance has no heartbeats: they are read from the supervisor's memory, if that is allowed.
    """
    children = spool.read_or_empty(settings.children_file, spool_pb2.Children)
    if heartbeats is None:
        heartbeats = heartbeats_of(children.supervisor_pid, children.heartbeats_descriptor)
    _count_first_beats(children, heartbeats)
    instance = _instance(settings)
    if heartbeats is not None:  # its processes are seen from here
        _correct_starts(children, instance)
    scanner = spool.read_or_empty(settings.scanner_state_file, spool_pb2.ScannerState)
    verdicts = spool.read_or_empty(settings.verdicts_file, health_pb2.Verdicts)
    nvml = spool.read_or_empty(spool.path_of(settings.findings_directory, _COUNTS), health_pb2.Findings)
    counts = spool.read_or_empty(settings.counts_file, health_pb2.Counts)
    config_warnings = spool.read_or_empty(settings.config_warnings_file, spool_pb2.Configuration)
    children.configuration.warnings.extend(config_warnings.warnings)
    offers = spool.read_or_empty(settings.offers_file, spool_pb2.Offers)
    return InstanceState(
        resources=[*offers.offers],
        dra_states=dict(spool.read_all(settings.dra_directory, spool_pb2.DraState)),
        version=offers.version or None,
        states={state.name: state for _, state in spool.read_all(settings.state_directory, spool_pb2.ResourceState)},
        scan=_scan(settings),
        children={child.name: child for child in children.children},
        silent=silent_processes(children.children, heartbeats) if heartbeats else frozenset(),
        supervisor_pid=children.supervisor_pid,
        scanner_counters=list(scanner.counters),
        config_reloads=children.config_reloads,
        config_reload_failures=children.config_reload_failures,
        configuration=children.configuration,
        verdicts=list(verdicts.verdicts),
        sources=list(verdicts.sources),
        lost=list(spool.read_or_empty(settings.lost_file, health_pb2.Lost).devices),
        counts=[
            *([] if nvml.failed or nvml.boot_id != verdicts.boot_id else nvml.counts),
            *(counts.counts if counts.boot_id == verdicts.boot_id else ()),
        ],
        instance=instance,
        standby=read_standby(settings.standby_file),
        full_directory=full_directory(settings),
        ledger=read_ledger(settings, children),
        served=spool.read_or_empty(settings.served_file, spool_pb2.Addresses).addresses,
    )


def _correct_starts(children: spool_pb2.Children, instance: spool_pb2.Instance | None) -> None:
    """Put the times at which processes started by the present clock, if it was set since."""
    for child in children.children:
        if child.pid:
            child.started_timestamp_seconds = _corrected(child.started_timestamp_seconds, child.pid)
    if instance is not None:
        instance.started = _corrected(instance.started, instance.pid)


def _corrected(recorded: float, pid: int) -> float:
    try:
        started = started_at(pid)
    except (OSError, ValueError):
        return recorded
    return started if abs(started - recorded) > _STEP_SECONDS else recorded


def _first(held: health_pb2.Held) -> float:
    """When a finding was raised, by the present clock.

    That of then was another one if it showed a time to come, or one before devherd was made. A finding of an earlier
    boot has no other time than that.
    """
    recorded, now = held.first_timestamp_seconds, time.time()
    is_of_this_boot = recorded >= now - time.clock_gettime(time.CLOCK_BOOTTIME)
    first = now - time.monotonic() + held.since_monotonic_seconds
    is_corrected = abs(first - recorded) > _STEP_SECONDS and (is_of_this_boot or recorded < OLDEST_CLOCK)
    return first if held.since_monotonic_seconds and is_corrected else recorded


def read_ledger(settings: Settings, children: spool_pb2.Children | None = None) -> spool_pb2.Ledger | None:
    """Who has which device open; None if the ledger is not kept."""
    known = spool.read_or_empty(settings.children_file, spool_pb2.Children) if children is None else children
    if all(child.name != f"source:{LEDGER}" for child in known.children):
        return None
    try:
        return spool.read(settings.ledger_file, spool_pb2.Ledger)
    except (FileNotFoundError, spool.SpoolError):
        return None


def full_directory(settings: Settings) -> Path | None:
    """The run directory, if it is full; None otherwise."""
    try:
        place = os.statvfs(settings.run_dir)
    except OSError:
        return None
    return settings.run_dir if place.f_bavail * place.f_frsize < FULL_BYTES else None


def _count_first_beats(children: spool_pb2.Children, heartbeats: Heartbeat | None) -> None:
    """Count a child with a heartbeat as RUNNING, although the supervisor may not have written that yet.

    Otherwise an exporter that a scrape has just woken would report itself as not up.
    """
    if heartbeats is None:
        return
    for child in children.children:
        if child.state == STARTING and heartbeats.last_beat(child.heartbeat_slot):
            child.state = RUNNING


def silent_processes(children: Iterable[spool_pb2.Child], heartbeats: Heartbeat) -> frozenset[str]:
    """The running processes whose last heartbeat is older than Waits.silence."""
    slots = {child.name: child.heartbeat_slot for child in children if child.state == RUNNING}
    slots[SUPERVISOR] = heartbeats.supervisor
    return frozenset(name for name, slot in slots.items() if heartbeats.silence_seconds(slot) > USUAL_WAITS.silence)


def read_children(
    settings: Settings, heartbeats: Heartbeat | None = None, before: InstanceState | None = None
) -> InstanceState:
    """Read only the processes of the instance: enough to know whether it is alive.

    If no descriptor is left to read them, returns the processes of `before`; raises OSError without `before`.
    """
    try:
        read = spool.read_or_empty(settings.children_file, spool_pb2.Children)
    except OSError:
        if before is None:
            raise
        herd = before
    else:
        _count_first_beats(read, heartbeats)
        herd = InstanceState(
            children={child.name: child for child in read.children}, supervisor_pid=read.supervisor_pid
        )
    silent = silent_processes(herd.children.values(), heartbeats) if heartbeats else frozenset()
    return replace(herd, silent=silent)


def live_inventory(herd: InstanceState, allocations: Allocations | None) -> Json:
    """The inventory's JSON with the instance, each resource's registration and child, each device's holders and age.

    Unknown values are null. `since` is the Unix second since which a device is Unhealthy or has a warning, `do` what a
    person does about the finding that decides.
    """
    summary = herd.scan or spool_pb2.ScanSummary()
    inventory = inventory_json(herd.resources, summary.problems, summary.duration_seconds, summary.notices)
    inventory["scanned_at"] = summary.timestamp_seconds or None
    inventory["instance"] = _values(herd.instance) if herd.instance else None
    inventory["http"] = [_address(each) for each in herd.addresses()]
    inventory["standby"] = _values(herd.standby) if herd.standby else None
    inventory["drivers"] = [_driver(driver) for driver in herd.drivers]
    inventory["lost"] = lost_json(herd.lost)
    by_name, allocations = {resource.name: resource for resource in herd.resources}, herd.known_holders(allocations)
    for resource in inventory["resources"]:
        child = herd.child_of(resource["name"])
        resource["child"] = child.name if child else None
        offer = by_name[resource["name"]]
        registration = None if is_by_dra(offer) else herd.registration(offer.name)
        resource["registered"] = registration.registered if registration else None
        resource["detail"] = registration.detail if registration else ""
        listed_devices = (device for _, device in listed(offer))
        for device, known in zip(resource["devices"], listed_devices, strict=True):
            device["since"] = herd.since(known)
            device["do"] = to_do(herd.held(known)) or None
            device["allocated"] = (
                None
                if allocations is None
                else [dict(holder) for holder in allocations.get((resource["name"], device["id"]), [])]
            )
    return inventory


def _driver(driver: DriverState) -> Json:
    by = [{"process": process, "detail": why or None} for process, why in driver.refusals.items()]
    return {"name": driver.name, "registered": driver.registered, "by": by}


def _values(message: spool_pb2.Instance | spool_pb2.Standby) -> Json:
    return {field.name: getattr(message, field.name) for field in message.DESCRIPTOR.fields}


def _address(known: spool_pb2.Address) -> Json:
    return {
        "address": known.address,
        "is_served": not known.refusal,
        "refusal": known.refusal or None,
        "cure": known.cure or None,
    }


def _why_not_running(child: spool_pb2.Child | None) -> str:
    if child is None or (child.state == STOPPED and not (child.started_timestamp_seconds or child.last_exit)):
        return "its process has not been started yet"
    if child.state == STOPPED:  # a child in any other state is restarted automatically
        return f"stopped by an operator; `devherd ctl start {child.name}`"
    last_exit = f", last exit: {child.last_exit}" if child.last_exit else ""
    return f"its process is {child.state}{last_exit}"


def _instance(settings: Settings) -> spool_pb2.Instance | None:
    try:
        return spool.read(settings.instance_file, spool_pb2.Instance)
    except (FileNotFoundError, spool.SpoolError):
        return None


def _scan(settings: Settings) -> spool_pb2.ScanSummary | None:
    """The last scan; its problems are followed by those of the processes that call the API server."""
    try:
        summary = spool.read(settings.scan_file, spool_pb2.ScanSummary)
    except (FileNotFoundError, spool.SpoolError):
        return None
    for _, kubernetes in spool.read_all(settings.kubernetes_problems_directory, spool_pb2.Problems):
        summary.problems.extend(kubernetes.problems)
    return summary
