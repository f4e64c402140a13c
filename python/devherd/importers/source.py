"""The contents of a text, and their plugins: files, flags, manifests, or values of a chart with subcharts."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import yaml

from devherd.config import yaml_file
from devherd.config.yaml_file import fault_of
from devherd.errors import UsageError
from devherd.importers import manifest
from devherd.importers.amd import AMD, XILINX
from devherd.importers.class_configs import AKRI, KUBEVIRT, SMARTER, smarters_in
from devherd.importers.generic import GENERIC
from devherd.importers.imported import Imported
from devherd.importers.intel import FPGA, GPU, INTELS_OPERATOR
from devherd.importers.intel_classes import OTHERS_OF_INTEL
from devherd.importers.nvidia import NVIDIA
from devherd.importers.plugin import Chart, ConfigFile, Invocation, Plugin, split
from devherd.importers.rdma import RDMA_SHARED, SRIOV

_ALL = (NVIDIA, GENERIC, FPGA, GPU, *OTHERS_OF_INTEL, RDMA_SHARED, SRIOV, XILINX, AMD, KUBEVIRT, SMARTER, AKRI)
PLUGINS = {plugin.name: plugin for plugin in _ALL}
"""In order of precedence: the programs of Xilinx and AMD have the same name, but Xilinx' image has its own."""
COMPANIONS = frozenset(
    {"config-manager", "gpu-feature-discovery", "mps-control-daemon", "mount-shm", "k8s-node-labeller"}
    | {"intel-gpu-levelzero", "gpu-operator"}
)
"""Programs in the plugins' images and manifests that advertise no devices: they have no configuration of a plugin."""


_READ = {chart.name: (plugin, chart) for plugin in PLUGINS.values() for chart in plugin.charts}
_NOT_READ = frozenset({"intel-device-plugins-operator", "network-operator", "sriov-network-operator"})
"""Charts of plugins and their operators whose values `config import` does not know."""
_RENDER = "render the chart: `helm template CHART --values FILE | devherd config import -`"
_OF_SRIOVS_OPERATOR = (
    "its operator writes the plugin's file for each node from such objects and the node's cards",
    "give the ConfigMap that it has written: `kubectl get configmap device-plugin-config -A -o yaml`",
)
_OF_AKRI = (
    "only Configurations of its udev handler say what a device class can say",
    "write a class of your own: docs/classes.md",
)
_OF_NETWORK_OPERATORS_CHART = (
    "its operator starts plugins for a NicClusterPolicy",
    "give that object: `kubectl get nicclusterpolicies -o yaml`",
)
_REFUSED_GROUPS = {"sriovnetwork.openshift.io": _OF_SRIOVS_OPERATOR, "akri.sh": _OF_AKRI}
"""Reason and cure for the objects of operators that are not read, by API group."""
_OF_NETWORK_OPERATOR = frozenset(
    {
        "sriovNetworkOperator",
        "rdmaSharedDevicePlugin",
        "sriovDevicePlugin",
        "ofedDriver",
        "secondaryNetwork",
        "deployCR",
    }
)
"""Keys of the values of the chart network-operator, of which it makes a NicClusterPolicy."""
_Part = Invocation | ConfigFile
_Owned = tuple[Plugin, _Part]


def import_text(text: str, source: str, plugin: str | None, *, with_ignored: bool = False) -> list[Imported]:
    """The devherd configurations equivalent to the plugins in a text; if `plugin` is None, the text tells the plugin.

    A command line and a file of one plugin belong together; several files of one plugin give several configurations,
    each with the name of its file. With `with_ignored`, settings that NVIDIA's plugin reads and ignores take effect.
    Raises UsageError if there is no configuration, or if its plugin is not clear.
    """
    try:
        documents = [text] if _is_command_line(text) else yaml_file.parse_all(text)
    except yaml.YAMLError as error:
        fault = fault_of(error, text)
        raise UsageError(f"{source}:{fault.position} is not valid YAML", fault.what, fault.cure) from error
    wanted = PLUGINS[plugin] if plugin else None
    if wanted and not any(document is not None for document in documents):
        documents = [{}]
    owned = [each for document in documents for each in _owned(document, wanted)]
    if not owned:
        raise _nothing_found(documents, source, plugin)
    plugins = {owner.name: owner for owner, _ in owned}.values()
    found = [each for owner in plugins for each in _translated(owner, owned, with_ignored=with_ignored)]
    for other in sorted(set(_not_served(_objects(documents)))):
        for imported in found:
            imported.note(f"{other} is left out: its devices are not served by devherd")
    return found


def plugin_of(text: str) -> str:
    """The plugin that a text configures; empty if there is none."""
    try:
        return import_text(text, "the file", None)[0].plugin
    except UsageError:
        return ""


def _translated(plugin: Plugin, owned: list[_Owned], *, with_ignored: bool) -> Iterator[Imported]:
    """Every configuration of a plugin: one for each combination of invocation and file."""
    parts = [part for owner, part in owned if owner is plugin]
    files: list[ConfigFile | None] = [part for part in parts if isinstance(part, ConfigFile)]
    invocations = [part for part in parts if isinstance(part, Invocation)]
    started = [each for place, each in enumerate(invocations) if each not in invocations[:place]] or [Invocation()]
    for invocation in started:
        for file in files or [None]:
            imported = plugin.imported(invocation, file.content if file else None, with_ignored=with_ignored)
            names = [invocation.workload or invocation.container] if len(started) > 1 else []
            imported.name = "-".join([*names, file.name if file else ""]).strip("-") or plugin.name
            imported.is_default = file is not None and file.is_default
            yield imported


def _is_command_line(text: str) -> bool:
    """Whether a text begins with a flag or a known program; then it need not be valid YAML."""
    first = next(iter(text.split()), "").strip("\"'")
    if re.match(r"--?[a-z]", first):
        return True
    program = Invocation([first])
    return not first.endswith(":") and any(plugin.is_started_by(program) for plugin in PLUGINS.values())


def _owned(document: Any, wanted: Plugin | None) -> Iterator[_Owned]:
    """The parts of a document, each with its plugin; parts of no plugin are left out."""
    if isinstance(document, str):
        yield from _of_command_line(Invocation(split(document)), wanted)
    elif manifest.is_patch(document):
        for invocation in manifest.patched(document):
            yield from _of_command_line(invocation, wanted)
    elif smarters_in(document):
        if wanted in (None, SMARTER):
            yield SMARTER, ConfigFile({"config": smarters_in(document)})
    elif isinstance(document, list) and document and all(isinstance(word, str) for word in document):
        yield from _of_command_line(Invocation(document), wanted)
    elif manifest.is_manifest(document):
        yield from _of_manifest(document, wanted)
    elif isinstance(document, Mapping):
        yield from _of_mapping(document, wanted)


def _of_manifest(document: Mapping[str, Any], wanted: Plugin | None) -> Iterator[_Owned]:
    containers = []
    for item in manifest.objects(document):
        for plugin in [wanted] if wanted else PLUGINS.values():
            if start := plugin.kinds.get(manifest.kind_of(item)):
                yield from ((plugin, part) for part in start(item))
        for key, text in manifest.section(item, "data").items() if item["kind"] == "ConfigMap" else ():
            if smarters_in(text) and wanted in (None, SMARTER):
                yield SMARTER, ConfigFile({"config": smarters_in(text)}, str(key))
        for values in manifest.chart_values(item):
            yield from _of_chart(values, wanted)
        for part in manifest.parts(item):
            if isinstance(part, Invocation):
                containers.append(part)
            else:
                yield from _of_file(part, wanted)
    candidates = [container for container in containers if not COMPANIONS & set(container.names)]
    named = [(owner, each) for each in candidates if (owner := _named(each, wanted))]
    if wanted and not named:
        named = [(wanted, each) for each in candidates if each.flag_names() <= wanted.flags]
    yield from named


def _of_chart(values: manifest.ChartValues, wanted: Plugin | None) -> Iterator[_Owned]:
    """The parts that a chart starts with the values of an object; its name tells the plugin, else its values do."""
    plugin, chart = _READ.get(values.chart, (None, None))
    content = values.content
    if plugin is not None and chart is not None:
        found: Iterator[_Owned] = ((plugin, part) for part in chart.started(content) if wanted in (None, plugin))
    elif is_umbrella(content):
        found = umbrella_parts(content, wanted)
    elif content and any(one.is_file(content) or one.chart_of(content) for one in _among(wanted)):
        found = _of_mapping(content, wanted)
    else:
        return
    for owner, part in found:
        yield owner, _with_losses(part, values.losses)


def _with_losses(part: _Part, losses: tuple[str, ...]) -> _Part:
    return replace(part, differences=part.differences + losses) if isinstance(part, Invocation) else part


def _among(wanted: Plugin | None) -> Iterable[Plugin]:
    return [wanted] if wanted else PLUGINS.values()


def _of_command_line(invocation: Invocation, wanted: Plugin | None) -> Iterator[_Owned]:
    if COMPANIONS & set(invocation.names):
        return
    plugin = wanted or _named(invocation, None) or _by_flags(invocation)
    if plugin:
        yield plugin, invocation


def _of_mapping(content: Mapping[str, Any], wanted: Plugin | None) -> Iterator[_Owned]:
    """A configuration file, or the values of a chart. Raises UsageError if it is neither for the wanted plugin."""
    if manifest.is_kustomization(content):
        return
    if is_umbrella(content):
        yield from umbrella_parts(content, wanted)
        return
    for plugin in [wanted] if wanted else PLUGINS.values():
        if plugin.is_file(content) or (wanted and not content):
            yield plugin, ConfigFile(content)
            return
        if chart := plugin.chart_of(content):
            yield from ((plugin, part) for part in chart.started(content))
            return
    if wanted:
        raise UsageError(
            f"this is not a configuration of {wanted.name}",
            f"its keys are {', '.join(map(str, content)) or 'none'}",
            "give the plugin's file, its flags, its manifest or its chart's values",
        )


def _of_file(file: ConfigFile, wanted: Plugin | None) -> Iterator[_Owned]:
    for plugin in [wanted] if wanted else PLUGINS.values():
        if plugin.is_file(file.content):
            yield plugin, file
            return


def _named(invocation: Invocation, wanted: Plugin | None) -> Plugin | None:
    """The plugin that one of its names belongs to."""
    return next(
        (plugin for plugin in ([wanted] if wanted else PLUGINS.values()) if plugin.is_started_by(invocation)), None
    )


def _by_flags(invocation: Invocation) -> Plugin | None:
    """The only plugin that has all these flags; one for a class if no other has. Raises UsageError if several have."""
    given = invocation.flag_names()
    fitting = [plugin for plugin in PLUGINS.values() if given and given <= plugin.flags]
    candidates = [plugin for plugin in fitting if plugin not in OTHERS_OF_INTEL] or fitting
    if len(candidates) > 1:
        names = " or ".join(plugin.name for plugin in candidates)
        raise UsageError("these flags fit more than one plugin", names, "name it with --plugin")
    return candidates[0] if candidates else None


def _nothing_found(documents: list[Any], source: str, plugin: str | None) -> UsageError:
    what = f"{source} is not recognised as a configuration of another plugin"
    if any(map(manifest.is_kustomization, documents)):
        return UsageError(what, "a kustomization holds no settings", "render it: kubectl kustomize DIRECTORY")
    objects = _objects(documents)
    if not_served := ", ".join(sorted(set(_not_served(objects)))):
        reason = f"devices of {not_served} are not served by devherd"
        return UsageError(what, reason, "leave these to Intel's own plugin and operator")
    if refused := _refused_by_name(documents, objects):
        return UsageError(f"cannot convert {refused[0]}, in {source}", *refused[1])
    if (
        reason_and_cure := _of_companions(documents, objects)
        or umbrella_hint(documents)
        or _of_objects(objects, plugin)
    ):
        return UsageError(what, *reason_and_cure)
    is_empty = all(document in (None, "") for document in documents)
    if plugin or is_empty:
        why = "it is empty" if is_empty else f"nothing in it belongs to {plugin}"
        return UsageError(what, why, "give the plugin's file, its flags, its manifest or its chart's values")
    known = ", ".join(sorted(PLUGINS))
    return UsageError(
        what, f"known are configurations, flag lists and manifests of {known}", "name its plugin with --plugin"
    )


def _of_objects(objects: Sequence[Mapping[str, Any]], plugin: str | None) -> tuple[str, str] | None:
    """Reason and cure for objects of charts and operators that are not read; None without such objects."""
    if charts := ", ".join(sorted({values.chart for item in objects for values in manifest.chart_values(item)})):
        return f"the values of the chart {charts} are not read", _RENDER
    others = {manifest.kind_of(item) for item in objects if str(item["kind"]) not in _OF_KUBERNETES}
    kinds_read = {kind for plugin in PLUGINS.values() for kind in plugin.kinds}
    made = "give what its operator makes of it: `kubectl get daemonset,configmap -A -o yaml`"
    if of_no_plugin := ", ".join(sorted(others & kinds_read)):
        return f"{of_no_plugin} starts no plugin, or one without a file", made
    if others:
        read = ", ".join(sorted(kinds_read))
        return f"{', '.join(sorted(others))} is not read; of operators' objects {read} are", made
    images = sorted({image for item in objects for image in _images(item)})
    if images and not plugin:
        return (
            f"{', '.join(images)}: no plugin that is known",
            "if it is one by another name, name its plugin with --plugin",
        )
    return None


def _images(item: Mapping[str, Any]) -> Iterator[str]:
    """The images of a workload's containers."""
    return (part.image for part in manifest.parts(item) if isinstance(part, Invocation) and part.image)


def _refused_by_name(documents: list[Any], objects: Sequence[Mapping[str, Any]]) -> tuple[str, tuple[str, str]] | None:
    """What is known and has no translation, with reason and cure."""
    for item in objects:
        if refusal := _REFUSED_GROUPS.get(manifest.kind_of(item).partition("/")[0]):
            return manifest.kind_of(item), refusal
    for document in documents:
        if isinstance(document, Mapping) and document.keys() & _OF_NETWORK_OPERATOR and "kind" not in document:
            return "the values of the chart network-operator", _OF_NETWORK_OPERATORS_CHART
    return None


_OF_KUBERNETES = frozenset(
    {"ConfigMap", "DaemonSet", "Deployment", "StatefulSet", "ReplicaSet", "Job", "Pod", "Namespace", "List"}
    | {"Service", "ServiceAccount", "Secret", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"}
)
"""Kinds of objects that are no operator's."""


def _of_companions(documents: list[Any], objects: list[Mapping[str, Any]]) -> tuple[str, str] | None:
    containers = [part for item in objects for part in manifest.parts(item) if isinstance(part, Invocation)]
    containers += [part for each in documents if manifest.is_patch(each) for part in manifest.patched(each)]
    companions = sorted({name for each in containers for name in each.names if name in COMPANIONS})
    return (f"{', '.join(companions)} advertises no devices", "give the manifest of the plugin") if companions else None


def _objects(documents: list[Any]) -> list[Mapping[str, Any]]:
    return [item for each in documents if manifest.is_manifest(each) for item in manifest.objects(each)]


def _not_served(objects: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The objects of Intel's operator for devices that no class is for."""
    known = {kind for plugin in PLUGINS.values() for kind in plugin.kinds}
    for item in objects:
        if manifest.kind_of(item).startswith(f"{INTELS_OPERATOR}/") and manifest.kind_of(item) not in known:
            yield str(item["kind"])


def is_umbrella(content: Mapping[str, Any]) -> bool:
    """Whether a mapping has a section for the chart of a plugin."""
    return bool(content.keys() & (_READ.keys() | _NOT_READ))


def umbrella_parts(
    content: Mapping[str, Any], wanted: Plugin | None
) -> Iterator[tuple[Plugin, Invocation | ConfigFile]]:
    """The parts that the subcharts start, each with its plugin; invocations have notes on omitted sections.

    Raises UsageError if no section is read, and for a section whose keys its chart does not have.
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


def umbrella_hint(documents: list[Any]) -> tuple[str, str] | None:
    """Reason and cure if a section under another name could be a chart's values."""
    for document in documents:
        for key, section in document.items() if isinstance(document, Mapping) else ():
            for chart in (chart for _, chart in _READ.values()):
                if isinstance(section, Mapping) and chart.has_values(section):
                    why = f"its section `{key}` could be values of the chart {chart.name}"
                    return why, f"if it is, call the section `{chart.name}`, or give what is in it alone"
    return None


def _values(chart: Chart, section: Any) -> Mapping[str, Any]:
    """The values in a section. Raises UsageError if they are not of its chart."""
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
    """Why a section is not read, and the cure."""
    if not _is_switched_on(content[name]):
        return "`enabled` is false", "give the values of a chart that is installed"
    if name in _NOT_READ:
        return "`devherd config import` reads what it renders, not its values", _RENDER
    if name in _READ:
        return f"it belongs to {_READ[name][0].name}", "leave out --plugin"
    return "it is not the chart of a plugin", ""


def _none_is_read(content: Mapping[str, Any]) -> UsageError:
    name = next(name for name in content if name in _READ or name in _NOT_READ)
    return UsageError(f"the values of the chart {name} are not read", *_why_not(name, content))
