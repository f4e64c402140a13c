"""docs/metrics.md: the metrics as the program declares them, and metrics.toml."""

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from devherd import counters
from devherd.config.sections import DeviceMetrics
from devherd.counters import Counter, Histogram
from devherd.exporter.declarations import ALL, Observed
from devherd.exporter.device_series import device_families
from devherd.instance.read import InstanceState
from devherd.proto import spool_pb2

HERE = Path(__file__).parent

HEAD = """\
# Metrics

*Generated from what the exporter declares by `make docs-pages`.*

Every series of [`/metrics`](http.md#metrics): its labels, what it counts, and when it exists.
[Prometheus](install.md#prometheus) has alerts, a dashboard and the scrape configuration, which sets the label `node`
and needs `honor_labels`.

```sh
curl --silent --fail 'http://127.0.0.1:9478/metrics?name[]=devherd_devices'
```

`resource_name` is the resource as pods request it, `device_id` the id as the kubelet knows it. Names that end in
`_total` are counters, which continue after a restart unless the text says otherwise; the others are gauges, read at
each scrape. If a metric does not always have series, its second sentence says when it has. They end with their device
or resource.
"""

SETTINGS = """\
## What `exporter.device_metrics` keeps

`all` and `physical` keep every metric above. Of those with the label `device_id` the others keep:
"""

WITHOUT = """\
With `faults` the series of a device begin with its first finding: rates and increases miss that change, and
`DeviceFlapping` fires one change later. With `none` no alert about a single device fires but `DeviceLost`.
"""

EXAMPLES = "## Examples\n"


def page() -> str:
    """The whole page. Raises ValueError where metrics.toml and the program do not have the same metrics."""
    data = tomllib.loads((HERE / "metrics.toml").read_text("utf-8"))
    described = [name for group in data["group"] for name in group["series"]]
    if sorted(described) != sorted(METRICS):
        raise ValueError(f"metrics.toml and the program differ: {', '.join(sorted({*described} ^ METRICS.keys()))}")
    groups = [part for group in data["group"] for part in _group(group)]
    return "\n".join([HEAD, *groups, SETTINGS, _settings(), WITHOUT, EXAMPLES, *_examples(data["example"])])


METRICS = {each.name: each for each in (*ALL, *counters.BY_RESOURCE_CHILDREN, *counters.BY_THE_SCANNER)}


def _group(group: Mapping[str, Any]) -> Iterator[str]:
    yield f"## {group['title']}\n"
    if "text" in group:
        yield f"{group['text'].strip()}\n"
    if group.get("names_say_enough"):
        yield f"{', '.join(f'`{_sample_name(name)}`' for name in group['series'])}.\n"
        return
    yield "".join(_item(name, exists) for name, exists in group["series"].items())


def _item(name: str, exists: str) -> str:
    metric = METRICS[name]
    labels = f" {{{', '.join(metric.labels)}}}" if metric.labels else ""
    kind = " (histogram)" if isinstance(metric, Histogram) else ""
    series = f" {exists[0].upper()}{exists[1:]}." if exists else ""
    return f"* `{_sample_name(name)}`{labels}{kind}: {metric.help}{series}\n"


def _type(name: str) -> str:
    metric = METRICS[name]
    if isinstance(metric, Observed):
        return metric.type
    return "counter" if isinstance(metric, Counter) else "histogram"


def _sample_name(name: str) -> str:
    return f"{name}_total" if _type(name) == "counter" else name


def _settings() -> str:
    """What the settings that leave something out keep."""
    of_devices = [name for name, metric in METRICS.items() if "device_id" in metric.labels]
    settings: tuple[DeviceMetrics, ...] = ("faults", "none")
    kept = {
        setting: ", ".join(f"`{_sample_name(name)}`" for name in of_devices if name in _kept(setting))
        for setting in settings
    }
    return "".join(f"* `{setting}`: {names}.\n" for setting, names in kept.items())


def _kept(setting: DeviceMetrics) -> set[str]:
    gauges = {family.name for family in device_families(InstanceState(ledger=spool_pb2.Ledger()), None, setting)}
    return gauges | {metric.name for metric in counters.OF_DEVICES if setting != "none"}


def _examples(examples: list[Mapping[str, str]]) -> Iterator[str]:
    for example in examples:
        yield f"{example['asks']}:\n\n```promql\n{example['query'].strip()}\n```\n"
