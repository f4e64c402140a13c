"""Values of devherd's Helm chart for imported configurations: `vendors`, `components`, `config` or `configs`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from devherd.errors import UsageError
from devherd.importers.imported import Imported

_OF_THE_POD = {
    "listen": "the pod listens on port 9478, which its probes ask",
    "host_root": "the pod sees the host at /host",
    "kubelet_dir": "the chart mounts the kubelet's directory; for another root directory there is `kubeletDir`",
}
"""Keys that the chart's pod decides itself, with what it does."""
_NODES = (
    "nodes, tolerations and images of the plugin's pods are not imported: see `nodes`, `nodeSelector`, `tolerations`"
)
_BY_LABEL = "a node's label chooses one: kubectl label node NODE nvidia.com/device-plugin.config=NAME"


@dataclass(slots=True)
class HelmValues:
    """Values for the chart, and notes for the user, a sentence each."""

    values: dict[str, Any]
    notes: list[str] = field(default_factory=list)
    is_whole: bool = True
    """False if something was left out that may have had an effect."""


def helm_values(found: Sequence[Imported]) -> HelmValues:
    """The values for one pod on each node that serves what all of these plugins did.

    Several configurations of one plugin become `configs`, of which a node's label chooses one. Raises UsageError if
    another plugin is beside those, or if two plugins have different values for a key.
    """
    made = HelmValues({}, is_whole=all(imported.is_whole for imported in found))
    for note in (note for imported in found for note in imported.notes):
        if note not in made.notes:
            made.notes.append(note)
    configs = [_for_a_pod(imported.config, made) for imported in found]
    served = [imported for imported, config in zip(found, configs, strict=True) if not _is_off(imported, config)]
    if vendors := list(dict.fromkeys(imported.vendor for imported in served if imported.vendor)):
        made.values["vendors"] = vendors
    if components := list(dict.fromkeys(each for imported in served for each in imported.components)):
        made.values["components"] = components
    if len({imported.plugin for imported in found}) == len(found):
        if config := merged(configs):
            made.values["config"] = config
    elif len({imported.plugin for imported in found}) == 1:
        made.values["configs"] = {imported.name: config for imported, config in zip(found, configs, strict=True)}
        if default := next((imported.name for imported in found if imported.is_default), ""):
            made.values["configDefault"] = default
        made.notes.append(_BY_LABEL)
    else:
        names = ", ".join(f"{imported.name} ({imported.plugin})" for imported in found)
        raise UsageError(
            "several configurations of one plugin beside another plugin", names, "import one plugin at a time"
        )
    made.notes.append(_NODES)
    return made


def _for_a_pod(config: Mapping[str, Any], made: HelmValues) -> dict[str, Any]:
    """The configuration without the keys that the chart's pod decides, with a note on each."""
    for key, why in _OF_THE_POD.items():
        if key not in config:
            continue
        made.is_whole = False
        if (note := f"{key} {config[key]} is left out: {why}") not in made.notes:
            made.notes.append(note)
    return {key: value for key, value in config.items() if key not in _OF_THE_POD}


def _is_off(imported: Imported, config: Mapping[str, Any]) -> bool:
    """Whether nothing of its vendor is served."""
    options = config.get("vendors", {}).get(imported.vendor.replace("-", "_"), {})
    return options.get("enabled") is False


def merged(configs: Sequence[Mapping[str, Any]], place: str = "") -> dict[str, Any]:
    """One configuration of several: sections are merged, lists joined. Raises UsageError for two values of one key."""
    made: dict[str, Any] = {}
    for config in configs:
        for key, value in config.items():
            there = made.get(key, value)
            if isinstance(there, Mapping) and isinstance(value, Mapping):
                made[key] = merged([there, value], f"{place}{key}.") if key in made else value
            elif isinstance(there, list) and isinstance(value, list):
                made[key] = there + value if key in made else value
            elif there == value:
                made[key] = value
            else:
                why = f"one has {there}, another {value}"
                raise UsageError(f"two plugins differ in {place}{key}", why, "import one plugin at a time")
    return made
