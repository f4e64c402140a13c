"""docs/metrics.md: the metrics as the program declares them, and metrics.toml."""

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

from tables import table

from devherd import counters
from devherd.config.sections import DeviceMetrics
from devherd.counters import Counter, Histogram
from devherd.exporter import metrics
from devherd.exporter.declarations import ALL, Observed
from devherd.instance.read import Herd

HERE = Path(__file__).parent

HEAD = """\
# Metrics

*Generated from what the exporter declares by `make docs-pages`.*

The exporter serves them at `/metrics`, as Prometheus' text or OpenMetrics, compressed if the scraper accepts it.
Gauges are read at each scrape. Counters continue after a restart, unless the table says otherwise. Series end with
their device or resource. `?name[]=devherd_devices` selects samples by name.

`resource_name` is the resource as pods request it, `device_id` the id as the kubelet knows it: the labels of the
kubelet's own metrics. A scrape sets the label `node`, and needs `honor_labels`: [Prometheus](install.md#prometheus) has
the scrape configuration, alerts and a dashboard, [Runbooks](runbooks.md) what to do about each alert.
"""

SETTINGS = """\
## What `exporter.device_metrics` keeps

With `faults` the series of a device begin with its first finding: rates and increases miss that change, and
`DeviceFlapping` fires one change later. With `none` no alert about a single device fires.
"""

EXAMPLES = "## Examples\n"


def page() -> str:
    """The whole page. Raises ValueError where metrics.toml and the program do not have the same metrics."""
    data = tomllib.loads((HERE / "metrics.toml").read_text("utf-8"))
    described = [name for group in data["group"] for name in group["series"]]
    if sorted(described) != sorted(METRICS):
        raise ValueError(f"metrics.toml and the program differ: {', '.join(sorted({*described} ^ METRICS.keys()))}")
    groups = [part for group in data["group"] for part in _group(group)]
    return "\n".join([HEAD, *groups, SETTINGS, _settings(), EXAMPLES, *_examples(data["example"])])


METRICS = {each.name: each for each in (*ALL, *counters.BY_RESOURCE_CHILDREN, *counters.BY_THE_SCANNER)}


def _group(group: Mapping[str, Any]) -> Iterator[str]:
    yield f"## {group['title']}\n"
    if "text" in group:
        yield f"{group['text'].strip()}\n"
    rows = [
        (f"`{_sample_name(name)}`", _type(name), ", ".join(METRICS[name].labels) or "none", METRICS[name].help, series)
        for name, series in group["series"].items()
    ]
    yield table(("metric", "type", "labels", "value", "series exist"), rows)
    for name in group["series"]:
        metric = METRICS[name]
        if isinstance(metric, Histogram):
            bounds = ", ".join(f"{bound:g}" for bound in metric.buckets)
            yield f"Buckets of `{name}`: {bounds} seconds.\n"


def _type(name: str) -> str:
    metric = METRICS[name]
    if isinstance(metric, Observed):
        return metric.type
    return "counter" if isinstance(metric, Counter) else "histogram"


def _sample_name(name: str) -> str:
    return f"{name}_total" if _type(name) == "counter" else name


def _settings() -> str:
    settings: tuple[DeviceMetrics, ...] = get_args(DeviceMetrics)
    kept = {setting: _kept(setting) for setting in settings}
    rows = [
        (f"`{_sample_name(name)}`", *("yes" if name in kept[setting] else "" for setting in settings))
        for name in METRICS
        if any(name in names for names in kept.values())
    ]
    return table(("metric", *(f"`{setting}`" for setting in settings)), rows)


def _kept(setting: DeviceMetrics) -> set[str]:
    gauges = {family.name for family in metrics.device_families(Herd(), None, setting)}
    return gauges | {metric.name for metric in counters.OF_DEVICES if setting != "none"}


def _examples(examples: list[Mapping[str, str]]) -> Iterator[str]:
    for example in examples:
        yield f"{example['asks']}:\n\n```promql\n{example['query'].strip()}\n```\n"
