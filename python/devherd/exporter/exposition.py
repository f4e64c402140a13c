"""Writes metric families as Prometheus text or OpenMetrics, by prometheus-client's writers.

Formats: https://prometheus.io/docs/instrumenting/exposition_formats (text format 0.0.4) and the OpenMetrics 1.0
specification. Only processes that serve /metrics import this: the library costs 2 MB of memory.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import cache
from operator import itemgetter

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

_END = b"# EOF\n"

Labels = Sequence[str]


class Lines:
    """A family of gauges or counters whose samples are ready-made lines, the same in both formats.

    The lines are equal to the library's output, as a property test shows. A device's lines are reused until it changes.
    """

    def __init__(self, empty: Metric, parts: Iterable[str]) -> None:
        self.empty = empty
        """The library's family without samples: it writes the lines before the samples."""
        self.name = empty.name
        self.parts = list(parts)

    @property
    def sample_name(self) -> str:
        """The name of all its samples."""
        return sample_name(self.name, self.empty.type)

    def __eq__(self, other: object) -> bool:
        """True if both write the same text."""
        return isinstance(other, Lines) and self.empty == other.empty and self.parts == other.parts

    __hash__ = None  # type: ignore[assignment]  # as `Metric`


Family = Metric | Lines


def sample_name(name: str, kind: str) -> str:
    """The name of the samples of a gauge or counter."""
    return f"{name}_total" if kind == "counter" else name


@cache
def line_of(name: str, labels: tuple[str, ...]) -> Callable[[Labels, float], str]:
    """A function that makes the line of a sample from its label values and value; requires at least two labels."""
    in_order = itemgetter(*sorted(range(len(labels)), key=labels.__getitem__))
    pairs = ",".join(f'{label}="%s"' for label in sorted(labels))
    template, quotes = f"{name}{{{pairs}}} %s\n", 2 * len(labels)

    def line(values: Labels, value: float) -> str:
        ordered, number = in_order(values), floatToGoString(value)  # type: ignore[no-untyped-call]
        made = template % (*ordered, number)
        if "\\" in made or made.count('"') != quotes or made.count("\n") != 1:  # rare: one check of the line is faster
            made = template % (*map(_escaped, ordered), number)
        return made

    return line


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


class Writer:
    """Writes the families of successive scrapes in one format.

    The text of a family that has not changed since the previous scrape is reused.
    """

    def __init__(self, *, as_openmetrics: bool) -> None:
        self.content_type = openmetrics.CONTENT_TYPE_LATEST if as_openmetrics else CONTENT_TYPE_PLAIN_0_0_4
        self._write = openmetrics.generate_latest if as_openmetrics else generate_latest
        self._end = _END if as_openmetrics else b""
        self._written: dict[str, tuple[Family, bytes]] = {}

    def page(self, families: Iterable[Family]) -> bytes:
        """The families as a response body."""
        before, self._written = self._written, {}
        for family in families:
            kept = before.get(family.name)
            is_kept = kept is not None and (kept[0] is family or kept[0] == family)
            self._written[family.name] = kept if kept and is_kept else (family, self._text(family))
        return b"".join(text for _, text in self._written.values()) + self._end

    def _text(self, family: Family) -> bytes:
        if isinstance(family, Lines):
            return self._text(family.empty) + "".join(family.parts).encode()
        registry = CollectorRegistry()
        registry.register(_One(family))
        return self._write(registry).removesuffix(self._end)


class _One(Collector):
    """A collector of one family that already has its samples."""

    def __init__(self, family: Metric) -> None:
        self._family = family

    def collect(self) -> Iterable[Metric]:
        """The family."""
        return (self._family,)


def only(families: Iterable[Family], names: Collection[str]) -> Iterator[Family]:
    """Yield the families that have samples with these names, without their other samples."""
    for family in families:
        if isinstance(family, Lines):
            if family.parts and family.sample_name in names:
                yield family
            continue
        family.samples = [sample for sample in family.samples if sample.name in names]
        if family.samples:
            yield family
