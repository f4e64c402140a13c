"""What all processes have counted, added up: each writes its own series into its state file."""

from collections.abc import Iterable, Iterator

from devherd import counted
from devherd.config.resolved import DeviceMetrics
from devherd.counters import Counter, Metric, empty, fits
from devherd.exporter.device_metrics import shown
from devherd.exporter.exposition import Family
from devherd.instance import Herd
from devherd.proto import spool_pb2
from devherd.spool.listing import ids_of

_METRICS = sorted((*counted.BY_RESOURCE_CHILDREN, *counted.BY_THE_SCANNER), key=lambda each: each.name)

Labels = tuple[str, ...]


def families(herd: Herd, of_devices: DeviceMetrics = "all") -> Iterator[Family]:
    """One family for each counter, and each histogram with observations, by name.

    A counter that first appears at 1 hides its first event from rate(): those of known resources and devices start at
    0. Series of resources and devices that are gone are left out.
    """
    written: dict[str, list[spool_pb2.Series]] = {}
    for counters in (herd.scanner_counters, *(state.counters for state in herd.states.values())):
        for series in counters:
            written.setdefault(series.metric, []).append(series)
    if of_devices != "all":
        _once_a_device(herd, written)
    known: dict[Labels, set[Labels]] = {
        (): {()},
        counted.FOR_A_RESOURCE: {(resource.name,) for resource in herd.resources},
        counted.FOR_A_DEVICE: {
            (resource.name, device_id) for resource in herd.resources for device_id, _ in shown(resource, of_devices)
        },
    }
    if of_devices == "faults":
        changed = written.get(counted.HEALTH_CHANGES.name, ())
        known[counted.FOR_A_DEVICE] &= {tuple(series.labels) for series in changed if series.total}
    for metric in _METRICS:
        if of_devices == "none" and metric in counted.OF_DEVICES:
            continue
        totals = _totals(metric, written.get(metric.name, ()), known.get(metric.labels))
        if totals or (isinstance(metric, Counter) and metric.labels in known):
            yield _family(metric, totals)


def _once_a_device(herd: Herd, written: dict[str, list[spool_pb2.Series]]) -> None:
    """What happens to a shared device is counted for each of its replicas: the highest count is the device's."""
    replicas = {
        (resource.name, replica): device.id
        for resource in herd.resources
        for device in resource.devices
        if device.replicas
        for replica in ids_of(device.id, device.replicas)
    }
    for metric in counted.OF_DEVICES if replicas else ():
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
    totals = {labels: empty(metric, labels) for labels in (known or () if starts_at_zero else ())}
    for series in written:
        labels = tuple(series.labels)
        if fits(series, metric) and (known is None or labels in known):
            _add(totals.setdefault(labels, empty(metric, labels)), series, metric)
    return totals


def _add(total: spool_pb2.Series, series: spool_pb2.Series, metric: Metric) -> None:
    if isinstance(metric, Counter) and metric.seen_by_all:
        total.total = max(total.total, series.total)
        return
    total.total += series.total
    for place, observations in enumerate(series.buckets):
        total.buckets[place] += observations


def _family(metric: Metric, totals: dict[Labels, spool_pb2.Series]) -> Family:
    family = Family(metric.name, metric.help, "counter" if isinstance(metric, Counter) else "histogram")
    for values in sorted(totals):
        labels, series = dict(zip(metric.labels, values, strict=True)), totals[values]
        if isinstance(metric, Counter):
            family.add(series.total, **labels)
            continue
        family.add(series.total, "_sum", **labels)
        observations = 0
        for bound, more in zip([*map(str, metric.buckets), "+Inf"], series.buckets, strict=True):
            observations += more
            family.add(observations, "_bucket", le=bound, **labels)
        family.add(observations, "_count", **labels)
    return family
