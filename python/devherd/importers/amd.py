"""AMD's plugins: the GPU plugin with its DeviceConfig and chart, and the plugin for Xilinx FPGAs."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any

from devherd.importers.imported import LABELS, LOG_FLAGS, LOG_REASON, LOG_SWITCHES, GivenSettings, Imported, flags
from devherd.importers.manifest import section
from devherd.importers.plugin import Chart, ConfigFile, Invocation, Plugin

_FLAGS = frozenset({"pulse", "resource_naming_strategy", "driver_type"}) | LOG_FLAGS
_REASONS = {f"-{name}": LOG_REASON for name in LOG_FLAGS} | {"-pulse": "health is always polled, each `health.poll`"}
_EXPORTER = (
    "-pulse enabled health from AMD's metrics exporter: devherd reads it where the exporter's socket exists; in"
    " Kubernetes, add the component amd-exporter"
)


_PLUGINS = PurePosixPath("/var/lib/kubelet/device-plugins")
_OF_THE_CHART = frozenset({"dp", "lbl", "labeller", "nfd", "node_selector_enabled", "node_selector"})
_OF_KUBERNETES = frozenset({"imagePullSecrets", "securityContext", "tolerations", "nameOverride", "fullnameOverride"})
_XILINX_VARIABLES = frozenset({"U30NameConvention", "U30AllocUnit", "DeviceNameCustomize", "VirtualDev", "VirtualNum"})
_VIRTUAL = "such a device gives every card of the node to a pod; see `sharing` of a rule"
_CUSTOM_NAMES = "names are those of `name` in a rule, for each entry of NameCustomize.json"
_XILINX_REASONS = {"-log-level": LOG_REASON} | dict.fromkeys(("VirtualDev", "VirtualNum"), _VIRTUAL)


def _translate(invocation: Invocation, file: Mapping[str, Any] | None, *, with_ignored: bool) -> Imported:  # noqa: ARG001 - no file
    imported = Imported("amd")
    given = GivenSettings(
        {f"-{name}": each[-1] for name, each in flags(invocation.flag_words, LOG_SWITCHES, _FLAGS).items()}
    )
    options = {}
    if (naming := given.take("-resource_naming_strategy", "single")) != "single":
        options["naming"] = naming
    if driver_type := given.take("-driver_type"):
        options["driver_type"] = driver_type.replace("-", "_")
    imported.put("vendors.amd", options)
    left = list(given.left())
    imported.note_left_out(left, _REASONS, "it has no counterpart")
    if "-pulse" in left:
        imported.note(_EXPORTER)
    return imported


def _started_for(item: Mapping[str, Any]) -> Iterator[Invocation]:
    """What the operator starts for a DeviceConfig, as `SetDevicePluginAsDesired` of ROCm/gpu-operator does."""
    spec = section(item, "spec")
    plugin, driver = section(spec, "devicePlugin"), section(spec, "driver")
    arguments = dict(section(plugin, "devicePluginArguments"))
    if str(driver.get("driverType", "")).endswith("-passthrough"):
        arguments = {"resource_naming_strategy": "mixed"} | arguments
    is_on = plugin.get("enableDevicePlugin") is not False
    off = [] if is_on else ["spec.devicePlugin.enableDevicePlugin is false: the operator starts no plugin"]
    words = ["-pulse=30", *(f"-{name}={value}" for name, value in arguments.items())]
    yield Invocation(words, notes=tuple(_notes_on(spec, plugin, is_on=is_on)), differences=tuple(off))


def _notes_on(spec: Mapping[str, Any], plugin: Mapping[str, Any], *, is_on: bool) -> Iterator[str]:
    """Notes on the settings of a DeviceConfig other than arguments of the plugin."""
    if is_on:
        yield "set spec.devicePlugin.enableDevicePlugin to false, or the operator starts its plugin again"
    directory = PurePosixPath(str(plugin.get("kubeletSocketPath") or _PLUGINS))
    if directory != _PLUGINS:
        yield (
            f"kubeletSocketPath {directory} is left out: start devherd with `--kubelet-dir {directory.parent}`,"
            " the directory that `device-plugins` is in"
        )
    labeller = ", ".join(key for key in plugin if "odeLabeller" in key)
    if labeller:
        yield f"{labeller} left out: the operator goes on with the labeller; {LABELS}"
    read = {"enableDevicePlugin", "devicePluginArguments", "kubeletSocketPath"}
    if pods := ", ".join(key for key in plugin if key not in read and "odeLabeller" not in key):
        yield f"devicePlugin.{pods} left out: settings of the plugin's pods; see devherd's own manifests"
    if "selector" in spec:
        yield "selector is left out: it chooses the nodes of the plugin's pods, as `nodeSelector` does for devherd's"
    if others := ", ".join(key for key in spec if key not in {"devicePlugin", "selector"}):
        yield f"{others} left out: parts of the operator beside the plugin, which goes on with them"


def _is_operator_values(content: Mapping[str, Any]) -> bool:
    return "spec" in section(content, "deviceConfig") or {"kmm", "installdefaultNFDRule"} <= content.keys()


def _started_by_operator(values: Mapping[str, Any]) -> Iterator[Invocation | ConfigFile]:
    """What the operator starts for the DeviceConfig that its chart makes."""
    for part in _started_for(section(values, "deviceConfig")):
        notes = []
        if "spec" not in section(values, "deviceConfig"):
            notes.append(
                "no deviceConfig is given: import the DeviceConfig, too (`kubectl get deviceconfigs -A -o yaml`)"
            )
        if others := ", ".join(key for key in values if key != "deviceConfig"):
            notes.append(f"{others} left out: settings of the operator and of other charts")
        yield replace(part, notes=part.notes + tuple(notes))


def _is_values(content: Mapping[str, Any]) -> bool:
    return bool(content.keys() & _OF_THE_CHART) and content.keys() <= _OF_THE_CHART | _OF_KUBERNETES


def _started_by_chart(values: Mapping[str, Any]) -> Iterator[Invocation | ConfigFile]:
    notes = []
    if section(values, "labeller").get("enabled"):
        notes.append(f"labeller is left out: {LABELS}")
    if others := ", ".join(key for key in values if key != "labeller"):
        notes.append(f"{others} left out: settings of the plugin's pods; see devherd's own manifests")
    yield Invocation(notes=tuple(notes))


AMD = Plugin(
    "amd",
    lambda name: name == "k8s-device-plugin" or "rocm/k8s-device-plugin" in name or name.startswith("amdgpu-dp"),
    _translate,
    _FLAGS,
    "amd",
    kinds={"amd.com/DeviceConfig": _started_for},
    charts=(
        Chart("gpu-operator-charts", _is_operator_values, _started_by_operator),
        Chart("amd-gpu", _is_values, _started_by_chart),
    ),
)


def _translate_xilinx(invocation: Invocation, file: Mapping[str, Any] | None, *, with_ignored: bool) -> Imported:  # noqa: ARG001 - no file
    imported = Imported("xilinx")
    words = {f"-{name}": each[-1] for name, each in flags(invocation.flag_words, (), {"log-level"}).items()}
    variables = {name: value for name, value in invocation.variables().items() if name in _XILINX_VARIABLES}
    given = GivenSettings({**words, **variables})
    options = {}
    # The plugin ignores case, and reads any other text as its default.
    if given.take("U30NameConvention", "").lower() == "exactname":
        options["u30_name_convention"] = "exact_name"
    if given.take("U30AllocUnit", "").lower() == "device":
        options["u30_alloc_unit"] = "device"
    if given.take("DeviceNameCustomize", "").lower() == "true":
        imported.note_difference(f"DeviceNameCustomize is left out: {_CUSTOM_NAMES}")
    if given.take("VirtualDev", "").lower() == "true":
        imported.note_difference(f"VirtualDev, VirtualNum are left out: {_VIRTUAL}")
        given.take("VirtualNum")
    imported.put("vendors.xilinx_fpga", options)
    imported.note_left_out(given.left(), _XILINX_REASONS, "it has no counterpart")
    return imported


XILINX = Plugin(
    "xilinx",
    lambda name: "xilinx" in name and "plugin" in name,
    _translate_xilinx,
    frozenset({"log-level"}),
    "xilinx-fpga",
    _XILINX_VARIABLES,
)
