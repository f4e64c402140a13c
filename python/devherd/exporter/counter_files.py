"""Counters and histograms of all processes, added up from prometheus-client's multiprocess files.

Each child writes files under its own name, so a restart goes on counting where the last process stopped. The library's
own collector adds up blindly and fails whole on a file it catches half made; here series of devices that are gone are
left out, and one bad file costs only what is in it.
"""

import logging
import operator
import struct
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from prometheus_client.metrics_core import Metric
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.samples import Sample

log = logging.getLogger(__name__)

Labels = tuple[tuple[str, str], ...]
Keep = Callable[[dict[str, str]], bool]

# Every resource child sees each restart of the kubelet and counts it: together they count it many times over.
COUNTED_BY_EVERY_CHILD = {"devherd_kubelet_restarts"}


def read(directory: Path, keep: Keep) -> list[Metric]:
    """One family for each name, sorted, of the samples whose labels `keep` accepts."""
    families: dict[str, Metric] = {}
    totals: dict[str, dict[tuple[str, Labels], float]] = {}
    for family in _families(sorted(directory.glob("*.db"))):
        families.setdefault(family.name, Metric(family.name, family.documentation, family.type))
        combine: Callable[[float, float], float] = max if family.name in COUNTED_BY_EVERY_CHILD else operator.add
        values = totals.setdefault(family.name, {})
        for sample in family.samples:
            if keep(sample.labels):
                key = sample.name, tuple(sample.labels.items())
                values[key] = combine(values.get(key, 0.0), sample.value)
    for name, values in totals.items():
        families[name].samples = sorted(
            (Sample(sample, dict(labels), value) for (sample, labels), value in values.items()), key=_series
        )
    return [families[name] for name in sorted(families)]


def _families(files: Iterable[Path]) -> Iterator[Metric]:
    for file in files:
        try:
            yield from MultiProcessCollector.merge([str(file)])  # type: ignore[no-untyped-call]
        except (OSError, RuntimeError, ValueError, struct.error) as error:  # what the library meets in a torn file
            log.debug("%s is left out of this scrape: %s", file, error)


def _series(sample: Sample) -> Labels:
    """Keeps the samples of one histogram together; sorting is stable, so its buckets stay in order."""
    return tuple(sorted((name, value) for name, value in sample.labels.items() if name != "le"))
