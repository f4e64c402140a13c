"""AMD's plugin: its flags, and the DeviceConfig from which AMD's GPU operator makes them."""

from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

from devherd.importers.given import Given
from devherd.importers.go_flags import LOG_FLAGS, LOG_REASON, LOG_SWITCHES, flags
from devherd.importers.imported import Imported
from devherd.importers.invocation import Invocation
from devherd.importers.manifest import section
from devherd.importers.plugin import File, Plugin

_FLAGS = frozenset({"pulse", "resource_naming_strategy", "driver_type"}) | LOG_FLAGS
_REASONS = {f"-{name}": LOG_REASON for name in LOG_FLAGS} | {"-pulse": "health is always polled, each `health.poll`"}
_EXPORTER = (
    "health by AMD's metrics exporter, which -pulse switched on, is asked where its socket is: in Kubernetes, add the"
    " component amd-exporter"
)


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


AMD = Plugin(
    "amd",
    lambda name: name == "k8s-device-plugin" or "rocm/" in name or "amdgpu" in name,
    _translate,
    _FLAGS,
    kinds={"amd.com/DeviceConfig": _started_for},
)
