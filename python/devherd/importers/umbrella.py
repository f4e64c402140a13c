"""Values of a chart that has others as dependencies: a section for each, called after the dependency's chart.

https://helm.sh/docs/chart_template_guide/subcharts_and_globals/. A chart may call a dependency otherwise (`alias`), and
switch it off by a value of its section (`condition`), which is usually `enabled`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from devherd.errors import UsageError
from devherd.importers.invocation import Invocation
from devherd.importers.plugin import Chart, File, Plugin
from devherd.importers.plugins import PLUGINS

_READ = {chart.name: (plugin, chart) for plugin in PLUGINS.values() for chart in plugin.charts}
_NOT_READ = frozenset(
    {"gpu-operator-charts", "intel-device-plugins-operator", "network-operator", "sriov-network-operator"}
)
"""Charts of plugins and their operators whose values nobody here understands."""
_RENDER = "render the chart: `helm template CHART --values FILE | devherd import-config -`"


def is_umbrella(content: Mapping[str, Any]) -> bool:
    """Whether a mapping has a section for the chart of a plugin."""
    return bool(content.keys() & (_READ.keys() | _NOT_READ))


def parts(content: Mapping[str, Any], wanted: Plugin | None) -> Iterator[tuple[Plugin, Invocation | File]]:
    """What the charts start, each part with its plugin; what is left out is noted with the first.

    Raises UsageError where no section is read, and for one whose keys its chart does not have.
    """
    found = {
        name: _READ[name]
        for name in content
        if name in _READ and (wanted is None or _READ[name][0] is wanted) and _is_switched_on(content[name])
    }
    if not found:
        raise _none_is_read(content)
    notes = tuple(f"{name} is left out: {_why_not(name, content)[0]}" for name in content if name not in found)
    for name, (plugin, chart) in found.items():
        for part in chart.started(_values(chart, content[name])):
            yield plugin, replace(part, notes=part.notes + notes) if isinstance(part, Invocation) else part


def hint(documents: list[Any]) -> tuple[str, str] | None:
    """Why and cure, where a section under another name could be a chart's values."""
    for document in documents:
        for key, section in document.items() if isinstance(document, Mapping) else ():
            for chart in (chart for _, chart in _READ.values()):
                if isinstance(section, Mapping) and chart.has_values(section):
                    why = f"its section `{key}` could be values of the chart {chart.name}"
                    return why, f"if it is, call the section `{chart.name}`, or give what is in it alone"
    return None


def _values(chart: Chart, section: Any) -> Mapping[str, Any]:
    """Those of a section. Raises UsageError where they are not of its chart."""
    if section is None:
        return {}
    if not isinstance(section, Mapping):
        raise UsageError(f"`{chart.name}` is not a section", "it has no keys", "give it the values of its chart")
    values = {key: value for key, value in section.items() if key not in {"enabled", "global"}}
    if values and not chart.has_values(values):
        what = f"`{chart.name}` does not hold values of the chart {chart.name}"
        raise UsageError(what, f"its keys are {', '.join(map(str, values))}", _RENDER)
    return values


def _is_switched_on(section: Any) -> bool:
    return not (isinstance(section, Mapping) and section.get("enabled") is False)


def _why_not(name: str, content: Mapping[str, Any]) -> tuple[str, str]:
    """Why a section is not read, and what would help."""
    if not _is_switched_on(content[name]):
        return "`enabled` is false", "give the values of a chart that is installed"
    if name in _NOT_READ:
        return "import-config does not know its values, but what it renders", _RENDER
    if name in _READ:
        return "it is of another plugin", "leave out --plugin, or give its plugin"
    return "it is not the chart of a plugin", ""


def _none_is_read(content: Mapping[str, Any]) -> UsageError:
    name = next(name for name in content if name in _READ or name in _NOT_READ)
    return UsageError(f"the values of the chart {name} are not read", *_why_not(name, content))
