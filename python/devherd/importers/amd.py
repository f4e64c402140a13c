"""AMD's plugin: its flags, the DeviceConfig from which AMD's GPU operator makes them, and the chart of the plugin.

The chart, `helm/amd-gpu` of ROCm/k8s-device-plugin, starts the plugin without flags, whatever its values.
"""

from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

from devherd.importers.given import Given
from devherd.importers.go_flags import LOG_FLAGS, LOG_REASON, LOG_SWITCHES, flags
from devherd.importers.imported import LABELS, Imported
from devherd.importers.invocation import Invocation
from devherd.importers.manifest import section
from devherd.importers.plugin import Chart, File, Plugin

_FLAGS = frozenset({"pulse", "resource_naming_strategy", "driver_type"}) | LOG_FLAGS
_REASONS = {f"-{name}": LOG_REASON for name in LOG_FLAGS} | {"-pulse": "health is always polled, each `health.poll`"}
_EXPORTER = (
    "health by AMD's metrics exporter, which -pulse switched on, is asked where its socket is: in Kubernetes, add the"
    " component amd-exporter"
)


_OF_THE_CHART = frozenset({"dp", "lbl", "labeller", "nfd", "node_selector_enabled", "node_selector"})
_OF_KUBERNETES = frozenset({"imagePullSecrets", "securityContext", "tolerations", "nameOverride", "fullnameOverride"})


def _translate(invocation: Invocation, file: Mapping[str, Any] | None, *, with_ignored: bool) -> Imported:  # noqa: ARG001 - no file
    imported = Imported("amd")
    given = Given({f"-{name}": each[-1] for name, each in flags(invocation.flag_words, LOG_SWITCHES, _FLAGS).items()})
    options = {}
    if (naming := given.take("-resource_naming_strategy", "single")) != "single":
        options["naming"] = naming
    if driver_type := given.take("-driver_type"):
        options["driver_type"] = driver_type.replace("-", "_")
    imported.say("vendors.amd", options)
    left = list(given.left())
    imported.note_left_out(left, _REASONS, "it has no counterpart")
    if "-pulse" in left:
        imported.note(_EXPORTER)
    return imported


def _started_for(item: Mapping[str, Any]) -> Iterator[Invocation | File]:
    """What the operator starts for a DeviceConfig: `SetDevicePluginAsDesired` of ROCm/gpu-operator."""
    spec = section(item, "spec")
    plugin, driver = section(spec, "devicePlugin"), section(spec, "driver")
    arguments = dict(section(plugin, "devicePluginArguments"))
    if str(driver.get("driverType", "")).endswith("-passthrough"):
        arguments = {"resource_naming_strategy": "mixed"} | arguments
    notes = []
    if plugin.get("enableDevicePlugin", True):
        notes.append("set spec.devicePlugin.enableDevicePlugin to false, or the operator starts its plugin again")
    if directory := plugin.get("kubeletSocketPath"):
        notes.append(
            f"kubeletSocketPath {directory} is left out: start devherd with `--kubelet-dir"
            f" {PurePosixPath(str(directory)).parent}`, the directory that `device-plugins` is in"
        )
    words = ["-pulse=30", *(f"-{name}={value}" for name, value in arguments.items())]
    yield Invocation(words, notes=tuple(notes))


def _is_values(content: Mapping[str, Any]) -> bool:
    return bool(content.keys() & _OF_THE_CHART) and content.keys() <= _OF_THE_CHART | _OF_KUBERNETES


def _started_by_chart(values: Mapping[str, Any]) -> Iterator[Invocation | File]:
    notes = []
    if section(values, "labeller").get("enabled"):
        notes.append(f"labeller is left out: {LABELS}")
    if others := ", ".join(key for key in values if key != "labeller"):
        notes.append(f"{others} left out: settings of the plugin's pods; see devherd's own manifests")
    yield Invocation(notes=tuple(notes))


AMD = Plugin(
    "amd",
    lambda name: name == "k8s-device-plugin" or "rocm/" in name or "amdgpu" in name,
    _translate,
    _FLAGS,
    kinds={"amd.com/DeviceConfig": _started_for},
    charts=(Chart("amd-gpu", _is_values, _started_by_chart),),
)
