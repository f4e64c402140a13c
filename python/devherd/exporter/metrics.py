"""Builds /metrics: gauges from the run directory, counters kept by the processes, and resource usage."""

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate
from typing import TypeVar, cast

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.core import Metric as Family

from devherd._native import vendors
from devherd.config.sections import DeviceMetrics
from devherd.counters import (
    BY_RESOURCE_CHILDREN,
    BY_THE_SCANNER,
    FOR_A_DEVICE,
    FOR_A_RESOURCE,
    HEALTH_CHANGES,
    OF_DEVICES,
    Counter,
    Metric,
    empty,
    fits,
)
from devherd.exporter import declarations
from devherd.exporter.exposition import Writer, only
from devherd.exporter.usage import process_families
from devherd.instance.inventory_json import health_of
from devherd.instance.read import RUNNING, Herd
from devherd.inventory import Allocations, DeviceKey, key_of
from devherd.process import Heartbeats
from devherd.proto import health_pb2, spool_pb2
from devherd.spool import HEALTHY, UNHEALTHY, ids_of, listed, number_of_ids
from devherd.text import revision, version

# Facts that name the model, by vendor, best first; every card has the last one, the PCI device id.
_MODEL_FACTS = {row.name: (*row.model, "device_id") for row in vendors()}


Value = TypeVar("Value")


class Kept:
    """What the last scrape made, by name, with what it was made from: most devices are the same at the next one."""

    def __init__(self) -> None:
        self._made: dict[str, tuple[object, object]] = {}

    def of(self, name: str, herd: Herd, more: object, make: Callable[[], Value]) -> Value:
        """What was made last if the resources have the same version and `more` is equal; otherwise what `make` makes.

        `more` is whatever else it is made from.
        """
        made_from = herd.version, more
        made = self._made.get(name)
        if made is None or herd.version is None or made[0] != made_from:
            made = self._made[name] = made_from, make()
        return cast("Value", made[1])


def device_families(
    herd: Herd, allocations: Allocations | None, of_devices: DeviceMetrics = "physical", kept: Kept | None = None
) -> Iterator[Family]:
    """Number of devices by resource, and the series of single devices that `of_devices` selects."""
    kept = kept or Kept()
    yield kept.of("count", herd, (), lambda: count(herd))
    yield kept.of("allocated", herd, allocations, lambda: count_allocated(herd, allocations))
    yield missing(herd)
    if of_devices in ("all", "physical"):
        yield from kept.of("facts", herd, of_devices, lambda: list(facts(herd, of_devices)))
        holders = of_devices, allocations
        yield kept.of("holders", herd, holders, lambda: allocated(herd, allocations, of_devices))
        yield from held(herd, of_devices)
        yield from counts(herd)
    if of_devices != "none":
        yield from kept.of("trouble", herd, of_devices, lambda: list(trouble(herd, of_devices)))
        standing = _standing(herd)
        yield kept.of("findings", herd, (of_devices, standing), lambda: findings(herd, of_devices, standing))


def shown(resource: spool_pb2.Offer, of_devices: DeviceMetrics) -> Iterator[tuple[str, spool_pb2.Device]]:
    """The devices of a resource with the ids in their series: all ids with `all`, otherwise the device's own."""
    return listed(resource) if of_devices == "all" else ((device.id, device) for device in resource.devices)


def count(herd: Herd) -> Family:
    """Devices by resource and health, as the kubelet counts them."""
    family = declarations.DEVICES.family()
    for resource in herd.resources:
        counts = {HEALTHY: 0, UNHEALTHY: 0}
        for device in resource.devices:
            counts[health_of(device)] += number_of_ids(device)
        for health, number in counts.items():
            family.add_metric((resource.name, health), number)
    return family


def count_allocated(herd: Herd, allocations: Allocations | None) -> Family:
    """Devices that containers hold, as the kubelet counts them; no series while it does not answer."""
    family = declarations.DEVICES_ALLOCATED.family()
    for resource in herd.resources if allocations is not None else ():
        numbers = {HEALTHY: 0, UNHEALTHY: 0}
        for device_id, device in listed(resource):
            numbers[health_of(device)] += (resource.name, device_id) in (allocations or {})
        for health, number in numbers.items():
            family.add_metric((resource.name, health), number)
    return family


def facts(herd: Herd, of_devices: DeviceMetrics) -> Iterator[Family]:
    """Health and facts of each device."""
    healthy, info = declarations.DEVICE_HEALTHY.family(), declarations.DEVICE_INFO.family()
    for resource in herd.resources:
        for device_id, device in shown(resource, of_devices):
            healthy.add_metric((resource.name, device_id), not device.reasons)
            info.add_metric((resource.name, device_id, *_facts(resource, device)), 1)
    yield from (healthy, info)


def missing(herd: Herd) -> Family:
    """The lost devices, also those that the kubelet's lists have no more."""
    family = declarations.DEVICE_MISSING.family()
    for one in herd.lost:
        place = (one.pci_address, one.slot, one.serial)
        family.add_metric((one.resource_name, one.device, one.vendor, one.model, *place), 1)
    return family


def trouble(herd: Herd, of_devices: DeviceMetrics) -> Iterator[Family]:
    """The reasons and the warnings of devices."""
    reasons, warnings = declarations.DEVICE_UNHEALTHY_REASON.family(), declarations.DEVICE_WARNING.family()
    for resource in herd.resources:
        for device_id, device in shown(resource, of_devices):
            for family, words in ((reasons, device.reasons), (warnings, device.warnings)):
                for reason in words:
                    family.add_metric((resource.name, device_id, reason), 1)
    yield from (reasons, warnings)


Standing = Mapping[DeviceKey, Sequence[tuple[str, str, str]]]
"""Source, reason and action of each finding that counts, sorted, by device."""


def _standing(herd: Herd) -> Standing:
    return {
        (verdict.vendor, verdict.card, verdict.device): sorted(
            {
                (one.source, one.reason, health_pb2.Action.Name(one.action).lower())
                for one in verdict.held
                if not (one.is_over or one.is_waiting)
            }
        )
        for verdict in herd.verdicts
    }


def findings(herd: Herd, of_devices: DeviceMetrics, standing: Standing) -> Family:
    """The findings that count for each device, with source and action; includes warnings and ignored findings."""
    family = declarations.DEVICE_FINDING.family()
    for resource in herd.resources if standing else ():
        for device_id, device in shown(resource, of_devices):
            for source, reason, action in standing.get(key_of(device), ()):
                family.add_metric((resource.name, device_id, source, reason, action), 1)
    return family


def allocated(herd: Herd, allocations: Allocations | None, of_devices: DeviceMetrics) -> Family:
    """The containers that hold each device; no series while the kubelet does not answer."""
    family = declarations.DEVICE_ALLOCATED.family()
    held = allocations or {}
    for resource in herd.resources if held else ():
        for device_id, device in shown(resource, of_devices):
            ids = [device_id] if of_devices == "all" else ids_of(device.id, device.replicas, device.shares)
            holders = {
                (holder["namespace"], holder["pod"], holder["container"])
                for each in ids
                for holder in held.get((resource.name, each), ())
            }
            for holder in sorted(holders):
                family.add_metric((resource.name, device_id, *holder), 1)
    return family


def held(herd: Herd, of_devices: DeviceMetrics) -> Iterator[Family]:
    """Who has each device open, by the ledger; no series where it is not kept."""
    if herd.ledger is None:
        return
    elsewhere, processes = declarations.DEVICE_HELD_ELSEWHERE.family(), declarations.DEVICE_OPEN_PROCESSES.family()
    known = {(one.vendor, one.card, one.device): one for one in herd.ledger.devices}
    for resource in herd.resources:
        for device_id, device in shown(resource, of_devices):
            seen = known.get(key_of(device), spool_pb2.LedgerDevice())
            elsewhere.add_metric((resource.name, device_id), seen.is_held_elsewhere)
            processes.add_metric((resource.name, device_id), len({one.pid for one in seen.processes}))
    yield from (elsewhere, processes)


def counts(herd: Herd) -> Iterator[Family]:
    """The sources' counts for the card of each device, never of its replicas; families without samples are omitted."""
    by_address: dict[str, dict[tuple[str, ...], health_pb2.Count]] = {}
    for each in herd.counts:  # once, even if devices of two vendors share a function
        by_address.setdefault(each.pci_address, {})[each.name, each.ibdev, each.part, each.kind] = each
    families = {name: kind.family() for name, kind in declarations.DEVICE_COUNTS.items()}
    for resource in herd.resources if by_address else ():
        for device in resource.devices:
            for one in by_address.get(device.attributes.get("pci_address", ""), {}).values():
                if one.name in families and one.ibdev in ("", device.attributes.get("ibdev")):
                    own = declarations.DEVICE_COUNTS[one.name].labels[len(declarations.DEVICE) :]
                    values = (one.kind if label == "kind" else one.part for label in own)
                    families[one.name].add_metric((resource.name, device.id, *values), one.number)
    yield from (family for family in families.values() if family.samples)


def _facts(resource: spool_pb2.Offer, device: spool_pb2.Device) -> tuple[str, str, str, str]:
    """Vendor, model, PCI address and NUMA nodes: the labels of `devherd_device_info` after those of each device."""
    attributes = device.attributes
    vendor = device.vendor or resource.vendor
    return (
        vendor,
        next((attributes[name] for name in _MODEL_FACTS.get(vendor, ()) if name in attributes), ""),
        attributes.get("pci_address", ""),
        ",".join(str(node) for node in device.numa_nodes),
    )


_METRICS = sorted((*BY_RESOURCE_CHILDREN, *BY_THE_SCANNER), key=lambda each: each.name)

Labels = tuple[str, ...]


def counter_families(herd: Herd, of_devices: DeviceMetrics = "physical", kept: Kept | None = None) -> Iterator[Family]:
    """The families of counters and histograms, sorted by name.

    Counters of known resources and devices start at 0: rate() misses the first event of a counter that first appears
    at 1. Series of removed resources and devices are omitted. A shared device counts once, not once a replica.
    """
    kept = kept or Kept()
    written: dict[str, list[spool_pb2.Series]] = {}
    for counters in (herd.scanner_counters, *(state.counters for state in herd.states.values())):
        for series in counters:
            written.setdefault(series.metric, []).append(series)
    _once_a_device(kept.of("replicas", herd, (), lambda: _replicas(herd)), written)
    changed = written.get(HEALTH_CHANGES.name, ()) if of_devices == "faults" else ()
    faulty = {tuple(series.labels) for series in changed if series.total}
    for metric in _METRICS:
        if of_devices == "none" and metric in OF_DEVICES:
            continue
        of_metric = written.get(metric.name, [])
        faulty_only = faulty if of_devices == "faults" else None
        make = partial(_counted, herd, metric, of_metric, faulty_only)
        family = kept.of(metric.name, herd, (of_devices, faulty, of_metric), make)
        if family is not None:
            yield family


def _counted(
    herd: Herd, metric: Metric, written: Sequence[spool_pb2.Series], faulty: set[Labels] | None
) -> Family | None:
    """The family of a metric, for devices in `faulty` if it is given; None if it has no series."""
    known = _known_labels(herd, metric)
    if faulty is not None and known is not None and metric.labels == FOR_A_DEVICE:
        known &= faulty
    totals = _totals(metric, written, known)
    return _family(metric, totals) if totals or (isinstance(metric, Counter) and metric.labels in _FOR_WHOM) else None


_FOR_WHOM: tuple[Labels, ...] = ((), FOR_A_RESOURCE, FOR_A_DEVICE)


def _known_labels(herd: Herd, metric: Metric) -> set[Labels] | None:
    """The labels for which a metric starts at 0; None for one of which nobody knows them beforehand."""
    if metric.labels == ():
        return {()}
    if metric.labels == FOR_A_RESOURCE:
        return {(resource.name,) for resource in herd.resources}
    if metric.labels == FOR_A_DEVICE:
        return {(resource.name, device.id) for resource in herd.resources for device in resource.devices}
    return None


def _replicas(herd: Herd) -> dict[Labels, str]:
    """The device of each replica, by resource name and id."""
    return {
        (resource.name, replica): device.id
        for resource in herd.resources
        for device in resource.devices
        if number_of_ids(device) > 1
        for replica in ids_of(device.id, device.replicas, device.shares)
    }


def _once_a_device(replicas: Mapping[Labels, str], written: dict[str, list[spool_pb2.Series]]) -> None:
    """Merge the series of replicas: an event of a shared device is counted for each, so its count is the highest."""
    for metric in OF_DEVICES if replicas else ():
        kept: list[spool_pb2.Series] = []
        highest: dict[Labels, spool_pb2.Series] = {}
        for series in written.get(metric.name, ()):
            device_id = replicas.get((series.labels[0], series.labels[1])) if fits(series, metric) else None
            if device_id is None:
                kept.append(series)
                continue
            labels = (series.labels[0], device_id, *series.labels[2:])
            if labels not in highest or highest[labels].total < series.total:
                highest[labels] = spool_pb2.Series(metric=metric.name, labels=labels, total=series.total)
        written[metric.name] = [*kept, *highest.values()]


def _totals(
    metric: Metric, written: Iterable[spool_pb2.Series], known: set[Labels] | None
) -> dict[Labels, spool_pb2.Series]:
    starts_at_zero = isinstance(metric, Counter) or not metric.labels
    zero = empty(metric, ())  # one for all: most of 10 000 devices have counted nothing
    totals = dict.fromkeys(known or () if starts_at_zero else (), zero)
    for series in written:
        labels = tuple(series.labels)
        if fits(series, metric) and (known is None or labels in known):
            if totals.get(labels, zero) is zero:
                totals[labels] = empty(metric, labels)
            _add(totals[labels], series, metric)
    return totals


def _add(total: spool_pb2.Series, series: spool_pb2.Series, metric: Metric) -> None:
    if isinstance(metric, Counter) and metric.seen_by_all:
        total.total = max(total.total, series.total)
        return
    total.total += series.total
    for place, observations in enumerate(series.buckets):
        total.buckets[place] += observations


def _family(metric: Metric, totals: dict[Labels, spool_pb2.Series]) -> Family:
    if isinstance(metric, Counter):
        counter = CounterMetricFamily(metric.name, metric.help, labels=metric.labels)
        for values in sorted(totals):
            counter.add_metric(values, totals[values].total)
        return counter
    histogram = HistogramMetricFamily(metric.name, metric.help, labels=metric.labels)
    bounds = [*map(str, metric.buckets), "+Inf"]
    for values in sorted(totals):
        buckets = list(zip(bounds, accumulate(totals[values].buckets), strict=True))
        histogram.add_metric(values, buckets, totals[values].total)
    return histogram


RESTART_CAUSES = ("exit", "signal", "heartbeat", "operator", "renewal")

MOST_SCAN_PROBLEMS = 50
"""Limit of the problems that are listed; all are counted."""


class Scrapes:
    """Renders the page of each scrape."""

    def __init__(self, heartbeats: Heartbeats) -> None:
        self._heartbeats = heartbeats
        self._writers = [Writer(as_openmetrics=each) for each in (False, True)]
        self._kept = Kept()

    def page(
        self,
        herd: Herd,
        allocations: Allocations | None,
        of_devices: DeviceMetrics,
        *,
        kubelet_listens: bool,
        names: Collection[str] = (),
        as_openmetrics: bool = False,
    ) -> tuple[str, bytes]:
        """The content type and the body with every sample, or only those in `names`."""
        found = families(
            herd,
            allocations,
            self._heartbeats,
            of_devices=of_devices,
            kubelet_listens=kubelet_listens,
            kept=Kept() if names else self._kept,
        )
        writer = Writer(as_openmetrics=as_openmetrics) if names else self._writers[as_openmetrics]
        return writer.content_type, writer.page(only(found, names) if names else found)


def families(
    herd: Herd,
    allocations: Allocations | None,
    heartbeats: Heartbeats,
    *,
    of_devices: DeviceMetrics = "physical",
    kubelet_listens: bool = True,
    kept: Kept | None = None,
) -> Iterator[Family]:
    """All families: first those read at the scrape, then the counters and histograms kept by processes, by name."""
    counted = list(counter_families(herd, of_devices, kept))
    yield build_info()
    yield from device_families(herd, allocations, of_devices, kept)
    yield from scan_gauges(herd, next((family for family in counted if family.name == "devherd_scans"), None))
    yield from source_gauges(herd)
    yield from registration_gauges(herd, kubelet_listens=kubelet_listens)
    yield from child_metrics(herd, heartbeats)
    yield from configuration(herd)
    yield from process_families(herd)
    yield from counted


def build_info() -> Family:
    """Version and revision of devherd as labels of a constant 1."""
    family = declarations.BUILD_INFO.family()
    family.add_metric((version(), revision()), 1)
    return family


def configuration(herd: Herd) -> Iterator[Family]:
    """State of the configuration and its reloads; no series without a supervisor."""
    if herd.supervisor_pid:
        for kind, value in (
            (declarations.LAST_RELOAD_SUCCESSFUL, not herd.configuration.refusal),
            (declarations.LAST_RELOAD_SUCCESS, herd.configuration.loaded_timestamp_seconds),
            (declarations.CONFIG_WARNINGS, len(herd.configuration.warnings)),
            (declarations.RELOADS, herd.config_reloads),
            (declarations.RELOAD_FAILURES, herd.config_reload_failures),
        ):
            family = kind.family()
            family.add_metric((), value)
            yield family


def scan_gauges(herd: Herd, scans: Family | None) -> Iterator[Family]:
    """Time and problems of the last scan. `scans` is the counter family whose labels name the scanned vendors."""
    problems, listed, last = (
        kind.family() for kind in (declarations.SCAN_PROBLEMS, declarations.SCAN_PROBLEM_INFO, declarations.LAST_SCAN)
    )
    if herd.scan is not None:
        counts = {sample.labels["vendor"]: 0 for sample in scans.samples} if scans else {}
        for problem in herd.scan.problems:
            counts[problem.vendor] = counts.get(problem.vendor, 0) + 1
        for vendor in sorted(counts):
            problems.add_metric((vendor,), counts[vendor])
        for vendor, device, path in _first((each.vendor, each.device, each.path) for each in herd.scan.problems):
            listed.add_metric((vendor, device, path), 1)
        last.add_metric((), herd.scan.timestamp_seconds)
    yield from (problems, listed, last)


def _first(places: Iterable[tuple[str, str, str]]) -> Sequence[tuple[str, str, str]]:
    """The first MOST_SCAN_PROBLEMS without duplicates; sorted, so that the selection is stable."""
    return sorted(set(places))[:MOST_SCAN_PROBLEMS]


def source_gauges(herd: Herd) -> Iterator[Family]:
    """State and last report of each source of health findings."""
    up, last = declarations.SOURCE_UP.family(), declarations.SOURCE_LAST_REPORT.family()
    for source in herd.sources:
        up.add_metric((source.source,), not source.failed)
        if source.last_report_timestamp_seconds:
            last.add_metric((source.source,), source.last_report_timestamp_seconds)
    yield from (up, last)


def registration_gauges(herd: Herd, *, kubelet_listens: bool) -> Iterator[Family]:
    """Registration, its state and the open streams of each resource."""
    registered, states, streams = (
        kind.family() for kind in (declarations.REGISTERED, declarations.REGISTRATION_STATE, declarations.STREAMS)
    )
    for resource in herd.resources:
        registration = herd.registration(resource.name)
        registered.add_metric((resource.name,), registration.registered)
        state = registration_state(herd, resource.name, kubelet_listens=kubelet_listens)
        for each in REGISTRATION_STATES:
            states.add_metric((resource.name, each), each == state)
        streams.add_metric((resource.name,), registration.streams)
    yield from (registered, states, streams)


REGISTRATION_STATES = ("registered", "kubelet-away", "not-accepted", "child-down")


def registration_state(herd: Herd, resource_name: str, *, kubelet_listens: bool) -> str:
    """The member of REGISTRATION_STATES that applies to a resource."""
    if herd.registration(resource_name).registered:
        return "registered"
    child = herd.child_of(resource_name)
    if herd.children and (child is None or child.state != RUNNING or child.name in herd.silent):
        return "child-down"
    return "not-accepted" if kubelet_listens else "kubelet-away"


def child_metrics(herd: Herd, heartbeats: Heartbeats) -> Iterator[Family]:
    """State, last heartbeat and restarts by cause of each child."""
    up, beats, restarts = (
        kind.family()
        for kind in (declarations.CHILD_UP, declarations.CHILD_LAST_HEARTBEAT, declarations.CHILD_RESTARTS)
    )
    wall_clock_offset = time.time() - time.monotonic()
    for name, child in sorted(herd.children.items()):
        up.add_metric((name,), child.state == RUNNING and name not in herd.silent)
        last_beat = heartbeats.last_beat(child.heartbeat_slot)
        if last_beat:
            beats.add_metric((name,), last_beat + wall_clock_offset)
        for cause in sorted({*RESTART_CAUSES, *child.restarts}):
            restarts.add_metric((name, cause), child.restarts.get(cause, 0))
    yield from (up, beats, restarts)
