"""Counters and histograms of one process, in plain memory; kept in its state file, where a successor finds them."""

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from devherd.proto import spool_pb2


@dataclass(frozen=True, slots=True)
class Counter:
    """A number that only grows. `name` is without the `_total` that Prometheus adds."""

    name: str
    help: str
    labels: tuple[str, ...] = ()
    seen_by_all: bool = False
    """Every process that has it counts the same events: the highest number is the node's, not the sum."""


@dataclass(frozen=True, slots=True)
class Histogram:
    """Observations by size; `buckets` are upper bounds, ascending. A last bucket without a bound follows them."""

    name: str
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()


Metric = Counter | Histogram


class Counters:
    """All series of a process, by metric and label values. For one thread."""

    def __init__(self, metrics: Iterable[Metric], kept: Iterable[spool_pb2.Series] = ()) -> None:
        """Counts on from `kept`, as far as that fits the metrics: another version may have had others."""
        self._series: dict[tuple[str, tuple[str, ...]], spool_pb2.Series] = {}
        self.changed = False
        """Whether there are counts not written yet; the writer sets it to False."""
        metric_of = {metric.name: metric for metric in metrics}
        for series in kept:
            metric = metric_of.get(series.metric)
            if metric is not None and fits(series, metric):
                self._series[series.metric, tuple(series.labels)] = series

    def __iter__(self) -> Iterator[spool_pb2.Series]:
        """Every series, sorted by name and labels."""
        return (self._series[key] for key in sorted(self._series))

    def add(self, metric: Counter, *labels: str, amount: int = 1) -> None:
        """Count; an amount of 0 lets the series begin."""
        self._of(metric, labels).total += amount
        self.changed = True

    def observe(self, metric: Histogram, value: float, *labels: str) -> None:
        """Put a value into its bucket."""
        series = self._of(metric, labels)
        series.total += value
        series.buckets[bisect_left(metric.buckets, value)] += 1
        self.changed = True

    def forget_others(self, metric: Metric, known: Collection[tuple[str, ...]]) -> None:
        """Drop the series of a metric whose first label values are not among these: what they count is gone."""
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
    """A series in which nothing has been counted."""
    buckets = [0] * (len(metric.buckets) + 1) if isinstance(metric, Histogram) else []
    return spool_pb2.Series(metric=metric.name, labels=labels, buckets=buckets)


def fits(series: spool_pb2.Series, metric: Metric) -> bool:
    """Whether a series is one of this metric, label by label and bucket by bucket."""
    buckets = len(metric.buckets) + 1 if isinstance(metric, Histogram) else 0
    return (len(series.labels), len(series.buckets)) == (len(metric.labels), buckets)
