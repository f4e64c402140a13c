"""Counters and histograms: their declarations, and the values of a process.

A process keeps its values in its state file, and its successor continues from them. A new counter is one declaration.
"""

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from devherd.proto import spool_pb2

FOR_A_RESOURCE = ("resource_name",)
FOR_A_DEVICE = ("resource_name", "device_id")
_CALL_SECONDS = (0.00003, 0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)


@dataclass(frozen=True, slots=True)
class Counter:
    """A number that only grows. `name` has no `_total`, which Prometheus adds."""

    name: str
    help: str
    labels: tuple[str, ...] = ()
    seen_by_all: bool = False
    """True if every process counts the same events: the node's value is then their maximum, not their sum."""


@dataclass(frozen=True, slots=True)
class Histogram:
    """Observations by size; `buckets` are ascending upper bounds, followed by a bucket without a bound."""

    name: str
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()


Metric = Counter | Histogram


class Counters:
    """All series of a process, by metric and label values. Not thread-safe."""

    def __init__(self, metrics: Iterable[Metric], kept: Iterable[spool_pb2.Series] = ()) -> None:
        """Continue from `kept`, except series that do not fit the metrics: another version may have written them."""
        self._series: dict[tuple[str, tuple[str, ...]], spool_pb2.Series] = {}
        self.changed = False
        """True if there are unwritten counts; the writer resets it."""
        self.has_counted = False
        """True if there are unwritten counts of a Counter; the writer resets it."""
        self.counted: Callable[[], object] = bool
        """Called for each count."""
        metric_of = {metric.name: metric for metric in metrics}
        for series in kept:
            metric = metric_of.get(series.metric)
            if metric is not None and fits(series, metric):
                self._series[series.metric, tuple(series.labels)] = series

    def series(self) -> list[spool_pb2.Series]:
        """All series, sorted by name and labels."""
        return [self._series[key] for key in sorted(self._series)]

    def add(self, metric: Counter, *labels: str, amount: int = 1) -> None:
        """Add to a series; an amount of 0 creates it."""
        self._of(metric, labels).total += amount
        self.changed = self.has_counted = True
        self.counted()

    def observe(self, metric: Histogram, value: float, *labels: str) -> None:
        """Add a value to its bucket."""
        series = self._of(metric, labels)
        series.total += value
        series.buckets[bisect_left(metric.buckets, value)] += 1
        self.changed = True
        self.counted()

    def forget_others(self, metric: Metric, known: Collection[tuple[str, ...]]) -> None:
        """Drop the series of a metric whose first label values are not in `known`: their devices are gone."""
        width = len(next(iter(known), ()))
        ours = [(name, labels) for name, labels in self._series if name == metric.name]
        for name, labels in ours:
            if labels[:width] not in known:
                del self._series[name, labels]
                self.changed = True

    def _of(self, metric: Metric, labels: tuple[str, ...]) -> spool_pb2.Series:
        series = self._series.get((metric.name, labels))
        if series is None:
            series = empty(metric, labels)
            self._series[metric.name, labels] = series
        return series


def empty(metric: Metric, labels: Iterable[str] = ()) -> spool_pb2.Series:
    """A series without counts."""
    buckets = [0] * (len(metric.buckets) + 1) if isinstance(metric, Histogram) else []
    return spool_pb2.Series(metric=metric.name, labels=labels, buckets=buckets)


def fits(series: spool_pb2.Series, metric: Metric) -> bool:
    """True if a series has the same number of labels and buckets as its metric."""
    buckets = len(metric.buckets) + 1 if isinstance(metric, Histogram) else 0
    return (len(series.labels), len(series.buckets)) == (len(metric.labels), buckets)


REGISTRATIONS = Counter(
    "devherd_registrations", "Number of registrations that the kubelet has accepted.", FOR_A_RESOURCE
)
REGISTRATION_FAILURES = Counter(
    "devherd_registration_failures",
    "Number of attempts to register that the kubelet refused or did not complete.",
    FOR_A_RESOURCE,
)
KUBELET_RESTARTS = Counter(
    "devherd_kubelet_restarts", "Number of restarts of the kubelet that devherd has seen.", seen_by_all=True
)
LISTS_SENT = Counter("devherd_list_and_watch_sends", "Number of device lists sent to the kubelet.", FOR_A_RESOURCE)
ALLOCATIONS = Counter(
    "devherd_allocations", "Number of containers that were given devices of the resource.", FOR_A_RESOURCE
)
ALLOCATION_FAILURES = Counter(
    "devherd_allocation_failures", "Number of Allocate requests that were refused: each fails a pod.", FOR_A_RESOURCE
)
PRE_START_REFUSALS = Counter(
    "devherd_pre_start_refusals", "Number of starts of containers that `pre_start` has refused.", FOR_A_RESOURCE
)
ALLOCATION_DURATION = Histogram(
    "devherd_allocation_duration_seconds", "Duration of an Allocate call in seconds.", FOR_A_RESOURCE, _CALL_SECONDS
)
PREFERRED_ALLOCATION_DURATION = Histogram(
    "devherd_preferred_allocation_duration_seconds",
    "Duration of a GetPreferredAllocation call in seconds.",
    FOR_A_RESOURCE,
    _CALL_SECONDS,
)

SCANS = Counter("devherd_scans", "Number of scans of the vendor's devices.", ("vendor",))
SCAN_FAILURES = Counter(
    "devherd_scan_failures", "Number of scans in which the vendor's devices could not be read.", ("vendor",)
)
SCAN_DURATION = Histogram(
    "devherd_scan_duration_seconds",
    "Duration of a scan of the host in seconds.",
    buckets=(0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0),
)
POLL_DURATION = Histogram(
    "devherd_health_poll_duration_seconds",
    "Duration of a health poll of all devices in seconds.",
    buckets=(0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0),
)
XIDS = Counter(
    "devherd_device_xids",
    "Number of Xids that the NVIDIA driver has reported for the device, by code.",
    (*FOR_A_DEVICE, "xid"),
)
KERNEL_LOG_LOST = Counter(
    "devherd_kernel_log_lost_records",
    "Number of records of the kernel log that were overwritten before devherd read them.",
)
HEALTH_CHANGES = Counter(
    "devherd_device_health_changes", "Number of changes of the device between Healthy and Unhealthy.", FOR_A_DEVICE
)
FINDINGS = Counter(
    "devherd_health_findings",
    "Number of findings that the source has raised, by reason.",
    ("source", "reason"),
)

OF_DEVICES = (HEALTH_CHANGES, XIDS)
"""Counters with a series for each device."""

BY_RESOURCE_CHILDREN: tuple[Metric, ...] = (
    REGISTRATIONS,
    REGISTRATION_FAILURES,
    KUBELET_RESTARTS,
    LISTS_SENT,
    ALLOCATIONS,
    ALLOCATION_FAILURES,
    PRE_START_REFUSALS,
    ALLOCATION_DURATION,
    PREFERRED_ALLOCATION_DURATION,
)
BY_THE_SCANNER: tuple[Metric, ...] = (
    SCANS,
    SCAN_FAILURES,
    SCAN_DURATION,
    POLL_DURATION,
    HEALTH_CHANGES,
    FINDINGS,
    XIDS,
    KERNEL_LOG_LOST,
)
