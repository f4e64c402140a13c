"""NVIDIA's GPU operator: what it makes of a ClusterPolicy, or of its chart's values, for the device plugin.

`TransformDevicePlugin` in the operator's `controllers/object_controls.go`, and its manifests of `state-device-plugin`.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from devherd.importers.given import listed
from devherd.importers.invocation import Invocation
from devherd.importers.manifest import section
from devherd.importers.nvidia_chart import files_of, text
from devherd.importers.plugin import File

_OWN_SECTIONS = frozenset({"driver", "toolkit", "mig", "dcgmExporter", "dcgm", "migManager", "operator", "validator"})
_OF_THE_PLUGIN = frozenset({"enabled", "args", "env", "config", "mps", "repository", "image", "version"})
_DRIVER_DIRECTORY = "/run/nvidia/driver"
_TOOLKIT_DIRECTORY = "/usr/local/nvidia"


def is_values(content: Mapping[str, Any]) -> bool:
    """Whether a mapping has values of the operator's chart; that of the plugin has a `devicePlugin` with less in it."""
    return bool(content.keys() & _OWN_SECTIONS or section(content, "devicePlugin").keys() - {"enabled"})


def from_policy(item: Mapping[str, Any]) -> Iterator[Invocation | File]:
    """The container that the operator makes for a ClusterPolicy."""
    yield from from_values(section(item, "spec"))


def from_values(spec: Mapping[str, Any]) -> Iterator[Invocation | File]:
    """The container that the operator makes, and the configurations that its chart makes a ConfigMap of.

    The chart's values and a ClusterPolicy have the same keys, but for `devicePlugin.config.data`.
    """
    plugin = section(spec, "devicePlugin")
    environment = {"PASS_DEVICE_SPECS": "true", "FAIL_ON_INIT_ERROR": "true", "DEVICE_LIST_STRATEGY": "envvar"}
    environment["MPS_ROOT"] = section(plugin, "mps").get("root") or "/run/nvidia/mps"
    if strategy := section(spec, "mig").get("strategy"):
        environment["MIG_STRATEGY"] = str(strategy)
    if _is_enabled(spec, "driver", default=True):
        environment["NVIDIA_DRIVER_ROOT"] = section(spec, "hostPaths").get("driverInstallDir") or _DRIVER_DIRECTORY
    if _is_enabled(spec, "cdi", default=True):
        environment |= {"DEVICE_LIST_STRATEGY": "cdi-annotations,cdi-cri", "CDI_ANNOTATION_PREFIX": "cdi.k8s.io/"}
        if _is_enabled(spec, "toolkit", default=True):
            directory = section(spec, "toolkit").get("installDir") or _TOOLKIT_DIRECTORY
            environment["NVIDIA_CDI_HOOK_PATH"] = f"{directory}/toolkit/nvidia-cdi-hook"
    if _is_enabled(spec, "gds", default=False):
        environment |= {"GDS_ENABLED": "true", "MOFED_ENABLED": "true"}
    if _is_enabled(spec, "gdrcopy", default=False):
        environment["GDRCOPY_ENABLED"] = "true"
    config = section(plugin, "config")
    files = list(files_of("devicePlugin.config.data", config.get("data")))
    if files or config.get("name"):
        environment["CONFIG_FILE"] = "/config/config.yaml"
    variables = [each for each in listed("devicePlugin.env", plugin.get("env")) if isinstance(each, Mapping)]
    given = {str(each.get("name")): text(each.get("value", "")) for each in variables}
    others = sorted(plugin.keys() - _OF_THE_PLUGIN)
    notes = [f"devicePlugin.{key} is left out: a setting of the plugin's pods" for key in others]
    if plugin.get("enabled") is False:
        notes.append("devicePlugin.enabled is false: the operator starts no plugin")
    words = [str(word) for word in listed("devicePlugin.args", plugin.get("args"))]
    yield Invocation(words, environment | given, notes=tuple(notes))
    yield from files


def _is_enabled(spec: Mapping[str, Any], key: str, *, default: bool) -> bool:
    enabled = section(spec, key).get("enabled")
    return default if enabled is None else bool(enabled)
