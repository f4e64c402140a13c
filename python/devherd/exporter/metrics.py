"""Builds /metrics: gauges from the run directory, counters kept by the processes, and what each process uses."""

import os
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import accumulate
from pathlib import Path
from resource import RLIMIT_NOFILE, getrlimit

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.core import Metric as ProcessFamily

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
from devherd.exporter.declarations import Observed
from devherd.exporter.device_series import Kept, Resources, device_families
from devherd.exporter.exposition import Family, Lines, Writer, line_of, only, sample_name
from devherd.instance.read import RUNNING, SUPERVISOR, InstanceState, is_by_dra
from devherd.inventory import Allocations
from devherd.process import Heartbeats, Stat, stat_of
from devherd.proto import spool_pb2
from devherd.text import revision, version

_METRICS = sorted((*BY_RESOURCE_CHILDREN, *BY_THE_SCANNER), key=lambda each: each.name)

Labels = tuple[str, ...]


def counter_families(
    herd: InstanceState, of_devices: DeviceMetrics = "physical", kept: Kept | None = None
) -> Iterator[Family]:
    """The families of counters and histograms, sorted by name.

    Counters of known resources and devices start at 0: rate() misses the first event of a counter that first appears
    at 1. Series of removed resources and devices are omitted. A shared device counts once, not once per replica.
    """
    kept = kept or Kept()
    written: dict[str, list[spool_pb2.Series]] = {}
    for counters in (herd.scanner_counters, *(state.counters for state in herd.states.values())):
        for series in counters:
            written.setdefault(series.metric, []).append(series)
    resources = kept.resources(herd, of_devices)
    _once_a_device(kept.of("replicas", herd, (), lambda: _replicas(resources)), written)
    changed = written.get(HEALTH_CHANGES.name, ()) if of_devices == "faults" else ()
    faulty = {tuple(series.labels) for series in changed if series.total}
    for metric in _METRICS:
        if of_devices == "none" and metric in OF_DEVICES:
            continue
        of_metric = written.get(metric.name, [])
        faulty_only = faulty if of_devices == "faults" else None
        make = partial(_counted, resources, metric, of_metric, faulty_only)
        family = kept.of(metric.name, herd, (of_devices, faulty, of_metric), make)
        if family is not None:
            yield family


def _counted(
    resources: Resources, metric: Metric, written: Sequence[spool_pb2.Series], faulty: set[Labels] | None
) -> Family | None:
    """The family of a metric, for devices in `faulty` if it is given; None if it has no series."""
    known = _known_labels(resources, metric)
    if faulty is not None and known is not None and metric.labels == FOR_A_DEVICE:
        known &= faulty
    totals = _totals(metric, written, known)
    return _family(metric, totals) if totals or (isinstance(metric, Counter) and metric.labels in _FOR_WHOM) else None


_FOR_WHOM: tuple[Labels, ...] = ((), FOR_A_RESOURCE, FOR_A_DEVICE)


def _known_labels(resources: Resources, metric: Metric) -> set[Labels] | None:
    """The labels for which a metric starts at 0; None if they are not known beforehand."""
    if metric.labels == ():
        return {()}
    if metric.labels == FOR_A_RESOURCE:
        return {(name,) for name, _ in resources}
    if metric.labels == FOR_A_DEVICE:
        return {(name, device.id) for name, devices in resources for device in devices}
    return None


def _replicas(resources: Resources) -> dict[Labels, str]:
    """The device of each replica, by resource name and id."""
    return {
        (name, replica): device.id
        for name, devices in resources
        for device in devices
        if len(device.ids) > 1
        for replica in device.ids
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
            before = totals.get(labels, zero)
            totals[labels] = series if before is zero else _sum(before, series, metric)
    return totals


def _sum(one: spool_pb2.Series, other: spool_pb2.Series, metric: Metric) -> spool_pb2.Series:
    is_seen_by_all = isinstance(metric, Counter) and metric.seen_by_all
    return spool_pb2.Series(
        total=max(one.total, other.total) if is_seen_by_all else one.total + other.total,
        buckets=map(sum, zip(one.buckets, other.buckets, strict=True)),
    )


def _family(metric: Metric, totals: dict[Labels, spool_pb2.Series]) -> Family:
    if isinstance(metric, Counter):
        counter = CounterMetricFamily(metric.name, metric.help, labels=metric.labels)
        if metric in OF_DEVICES:
            line = line_of(sample_name(metric.name, counter.type), metric.labels)
            return Lines(counter, [line(values, totals[values].total) for values in sorted(totals)])
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
        herd: InstanceState,
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
    herd: InstanceState,
    allocations: Allocations | None,
    heartbeats: Heartbeats,
    *,
    of_devices: DeviceMetrics = "physical",
    kubelet_listens: bool = True,
    kept: Kept | None = None,
) -> Iterator[Family]:
    """All families: first those read at the scrape, then the counters and histograms kept by processes, by name."""
    kept = kept or Kept()
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


def configuration(herd: InstanceState) -> Iterator[Family]:
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


def scan_gauges(herd: InstanceState, scans: Family | None) -> Iterator[Family]:
    """Time, period and problems of the last scan. `scans` is the counter family with the scanned vendors as labels."""
    problems, listed, last, period = (
        kind.family()
        for kind in (
            declarations.SCAN_PROBLEMS,
            declarations.SCAN_PROBLEM_INFO,
            declarations.LAST_SCAN,
            declarations.SCAN_PERIOD,
        )
    )
    if herd.scan is not None:
        counts = (
            {sample.labels["vendor"]: 0 for sample in scans.samples} if isinstance(scans, CounterMetricFamily) else {}
        )
        for problem in herd.scan.problems:
            counts[problem.vendor] = counts.get(problem.vendor, 0) + 1
        for vendor in sorted(counts):
            problems.add_metric((vendor,), counts[vendor])
        for vendor, device, path in _first((each.vendor, each.device, each.path) for each in herd.scan.problems):
            listed.add_metric((vendor, device, path), 1)
        last.add_metric((), herd.scan.timestamp_seconds)
        if herd.scan.period_seconds:
            period.add_metric((), herd.scan.period_seconds)
    yield from (problems, listed, last, period)


def _first(places: Iterable[tuple[str, str, str]]) -> Sequence[tuple[str, str, str]]:
    """The first MOST_SCAN_PROBLEMS without duplicates; sorted, so that the selection is stable."""
    return sorted(set(places))[:MOST_SCAN_PROBLEMS]


def source_gauges(herd: InstanceState) -> Iterator[Family]:
    """State and last report of each source of health findings."""
    up, last = declarations.SOURCE_UP.family(), declarations.SOURCE_LAST_REPORT.family()
    for source in herd.sources:
        up.add_metric((source.source,), not source.failed)
        if source.last_report_timestamp_seconds:
            last.add_metric((source.source,), source.last_report_timestamp_seconds)
    yield from (up, last)


def registration_gauges(herd: InstanceState, *, kubelet_listens: bool) -> Iterator[Family]:
    """Registration, its state and the open streams of each resource that the device plugin serves."""
    registered, states, streams = (
        kind.family() for kind in (declarations.REGISTERED, declarations.REGISTRATION_STATE, declarations.STREAMS)
    )
    for resource in herd.resources:
        if is_by_dra(resource):
            continue
        registration = herd.registration(resource.name)
        registered.add_metric((resource.name,), registration.registered)
        state = registration_state(herd, resource.name, kubelet_listens=kubelet_listens)
        for each in REGISTRATION_STATES:
            states.add_metric((resource.name, each), each == state)
        streams.add_metric((resource.name,), registration.streams)
    yield from (registered, states, streams)


REGISTRATION_STATES = ("registered", "kubelet-away", "not-accepted", "child-down")


def registration_state(herd: InstanceState, resource_name: str, *, kubelet_listens: bool) -> str:
    """The member of REGISTRATION_STATES that applies to a resource."""
    if herd.registration(resource_name).registered:
        return "registered"
    child = herd.child_of(resource_name)
    if herd.children and (child is None or child.state != RUNNING or child.name in herd.silent):
        return "child-down"
    return "not-accepted" if kubelet_listens else "kubelet-away"


def child_metrics(herd: InstanceState, heartbeats: Heartbeats) -> Iterator[Family]:
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


_PROC = Path("/proc")
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class Usage:
    """Resource usage of one process."""

    cpu_seconds: float
    virtual_bytes: int
    resident_bytes: int
    started_after_boot_seconds: float
    open_files: int
    """0 if unknown: Linux before 6.2 does not report it."""


def process_families(herd: InstanceState) -> Iterator[ProcessFamily]:
    """Usage of the supervisor and of each running child, by name, and of the exporter as `process_*`."""
    booted = _booted_timestamp_seconds()
    yield from _of_exporter(usage_of_process("self"), booted)
    pids = {SUPERVISOR: herd.supervisor_pid} | {name: child.pid for name, child in sorted(herd.children.items())}
    usages = {name: usage_of_process(str(pid)) for name, pid in pids.items() if pid}
    yield from _of_children({name: used for name, used in usages.items() if used is not None}, booted)


def usage_of_process(pid: str) -> Usage | None:
    """The usage of a process; None if it is gone, or hidden by the mount option `hidepid` of /proc."""
    directory = _PROC / pid
    try:
        statm = (directory / "statm").read_text()
        return parsed_usage(stat_of(pid), statm, (directory / "fd").stat().st_size)
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None


def parsed_usage(stat: Stat, statm: str, open_files: int) -> Usage:
    """Usage by `stat` and the content of `statm`."""
    size, resident = map(int, statm.split()[:2])
    return Usage(
        cpu_seconds=stat.cpu_ticks / _TICKS,
        virtual_bytes=size * _PAGE_BYTES,
        resident_bytes=resident * _PAGE_BYTES,
        started_after_boot_seconds=stat.started / _TICKS,
        open_files=open_files,
    )


def _of_exporter(used: Usage | None, booted: float) -> Iterator[ProcessFamily]:
    if used is None:
        return
    for kind, value in (
        (declarations.PROCESS_CPU, used.cpu_seconds),
        (declarations.PROCESS_RESIDENT_MEMORY, used.resident_bytes),
        (declarations.PROCESS_VIRTUAL_MEMORY, used.virtual_bytes),
        (declarations.PROCESS_OPEN_FILES, used.open_files or len(os.listdir("/proc/self/fd"))),  # noqa: PTH208
        (declarations.PROCESS_MAX_FILES, getrlimit(RLIMIT_NOFILE)[0]),
        (declarations.PROCESS_START_TIME, booted + used.started_after_boot_seconds),
    ):
        family = kind.family()
        family.add_metric((), value)
        yield family


def _of_children(usages: Mapping[str, Usage], booted: float) -> Iterator[ProcessFamily]:
    def family(kind: Observed, values: Iterable[tuple[str, float]]) -> ProcessFamily:
        made = kind.family()
        for child, value in values:
            made.add_metric((child,), value)
        return made

    each = usages.items()
    yield family(declarations.CHILD_RESIDENT_MEMORY, ((child, used.resident_bytes) for child, used in each))
    yield family(declarations.CHILD_CPU, ((child, used.cpu_seconds) for child, used in each))
    yield family(declarations.CHILD_OPEN_FILES, ((child, used.open_files) for child, used in each if used.open_files))
    yield family(
        declarations.CHILD_START_TIME, ((child, booted + used.started_after_boot_seconds) for child, used in each)
    )


@cache
def _booted_timestamp_seconds() -> float:
    """The time of the boot; cached, so that a step of the clock does not move the start times of processes."""
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
