"""Metric families as text for Prometheus, in its own format and as OpenMetrics.

Sources: https://prometheus.io/docs/instrumenting/exposition_formats (text format 0.0.4) and the OpenMetrics 1.0
specification. The client library would bring a web server, an HTTP client and TLS along: 6 MB of memory.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

TEXT = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"

FamilyType = Literal["counter", "gauge", "histogram"]

_HELP_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n"})
_LABEL_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


@dataclass(slots=True)
class Family:
    """A metric and its samples: suffix of the name, labels, value. A counter's name is without `_total`."""

    name: str
    help: str
    type: FamilyType = "gauge"
    samples: list[tuple[str, Mapping[str, str], float]] = field(default_factory=list)

    def add(self, value: float, suffix: str = "", /, **labels: str) -> None:
        """One more sample; a counter's is the total."""
        self.samples.append(("_total" if self.type == "counter" else suffix, labels, value))


def text(families: Iterable[Family]) -> str:
    """Prometheus' text format. Here a counter's family goes by the name of its samples."""
    return "".join(line for family in families for line in _lines(family, _sample_name(family)))


def openmetrics(families: Iterable[Family]) -> str:
    """OpenMetrics."""
    return "".join(line for family in families for line in _lines(family, family.name)) + "# EOF\n"


def only(families: Iterable[Family], names: Collection[str]) -> Iterator[Family]:
    """The samples with these names, and their families."""
    for family in families:
        samples = [sample for sample in family.samples if f"{family.name}{sample[0]}" in names]
        if samples:
            yield replace(family, samples=samples)


def prefers_openmetrics(accept: str) -> bool:
    """Whether an Accept header ranks OpenMetrics 1.0 before plain text."""
    weights = {"application/openmetrics-text": 0.0, "text/plain": 0.0}
    for offer in accept.split(","):
        kind, *parameters = (part.strip() for part in offer.split(";"))
        values = dict(parameter.partition("=")[::2] for parameter in parameters)
        if kind in weights and values.get("version") in (None, "1.0.0", "0.0.4"):
            weights[kind] = max(weights[kind], _weight(values.get("q", "1")))
    return weights["application/openmetrics-text"] > weights["text/plain"]


def _lines(family: Family, name: str) -> Iterator[str]:
    yield f"# HELP {name} {family.help.translate(_HELP_ESCAPES)}\n# TYPE {name} {family.type}\n"
    for suffix, labels, value in family.samples:
        pairs = ",".join(f'{label}="{labels[label].translate(_LABEL_ESCAPES)}"' for label in sorted(labels))
        yield (
            f"{family.name}{suffix}{{{pairs}}} {float(value)}\n" if pairs else f"{family.name}{suffix} {float(value)}\n"
        )


def _sample_name(family: Family) -> str:
    return f"{family.name}_total" if family.type == "counter" else family.name


def _weight(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0
