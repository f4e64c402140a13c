"""NVIDIA's charts: the GPU operator's ClusterPolicy and values, and the values of the plugin's own chart."""

from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from devherd.config import yaml_file
from devherd.config.yaml_file import fault_of
from devherd.errors import UsageError
from devherd.importers.imported import LABELS, GivenSettings, listed, not_keys
from devherd.importers.manifest import section
from devherd.importers.plugin import ConfigFile, Invocation

_VARIABLES = {
    "migStrategy": "MIG_STRATEGY",
    "failOnInitError": "FAIL_ON_INIT_ERROR",
    "compatWithCPUManager": "PASS_DEVICE_SPECS",
    "deviceListStrategy": "DEVICE_LIST_STRATEGY",
    "deviceIDStrategy": "DEVICE_ID_STRATEGY",
    "nvidiaDriverRoot": "NVIDIA_DRIVER_ROOT",
    "nvidiaDevRoot": "NVIDIA_DEV_ROOT",
    "gdrcopyEnabled": "GDRCOPY_ENABLED",
    "gdsEnabled": "GDS_ENABLED",
    "mofedEnabled": "MOFED_ENABLED",
    "deviceDiscoveryStrategy": "DEVICE_DISCOVERY_STRATEGY",
}
_OF_KUBERNETES = frozenset(
    {"nameOverride", "fullnameOverride", "namespaceOverride", "selectorLabelsOverride", "allowDefaultNamespace"}
    | {"imagePullSecrets", "image", "updateStrategy", "podAnnotations", "podSecurityContext", "securityContext"}
    | {"resources", "nodeSelector", "affinity", "tolerations", "priorityClassName", "runtimeClassName"}
)
"""Settings of the plugin's pods: devherd's own manifests have their counterparts."""
_OTHERS = frozenset({"config", "devicePlugin", "gfd", "nfd", "mps", "cdi"})
_OWN_SECTIONS = frozenset({"driver", "toolkit", "mig", "dcgmExporter", "dcgm", "migManager", "operator", "validator"})
_OF_THE_PLUGIN = frozenset({"enabled", "args", "env", "config", "mps", "repository", "image", "version"})
_READ_SECTIONS = frozenset({"devicePlugin", "mig", "driver", "hostPaths", "cdi", "toolkit", "gds", "gdrcopy"})
_OF_VIRTUAL_MACHINES = ("sandboxDevicePlugin", "kataSandboxDevicePlugin")
_MANAGERS = ("driver", "migManager")
"""The parts of the operator that sometimes need exclusive use of the GPUs."""
_BESIDE_MANAGERS = (
    "the operator manages the nodes' driver or MIG devices: deploy devherd with the component nvidia-operator, "
    "by which its pod leaves a node meanwhile, or nvidia-pause with `kubernetes: {nvidia_pause: true}`, "
    "by which it stays for other devices"
)
_DRIVER_DIRECTORY = "/run/nvidia/driver"
_TOOLKIT_DIRECTORY = "/usr/local/nvidia"


def is_chart_values(content: Mapping[str, Any]) -> bool:
    """Whether a mapping has values of the plugin's chart, and nothing else."""
    ours = _VARIABLES.keys() | _OTHERS
    return bool(content.keys() & ours) and content.keys() <= ours | _OF_KUBERNETES


def from_chart_values(content: Mapping[str, Any]) -> Iterator[Invocation | ConfigFile]:
    """The container that the plugin's chart creates, and the files of its ConfigMap."""
    given = GivenSettings(content)
    environment: dict[str, str | None] = {
        variable: text(value) for key, variable in _VARIABLES.items() if (value := given.take(key)) is not None
    }
    mps_root, cdi = given.section("mps").take("root"), given.section("cdi")
    more = {"MPS_ROOT": mps_root} | {
        "NVIDIA_CDI_HOOK_PATH": cdi.take("nvidiaHookPath"),
        "CDI_FEATURE_FLAGS": cdi.take("featureFlags"),
    }
    config = given.section("config")
    files = list(files_of("config.map", config.take("map"), config.take("default")))
    if files or config.take("name"):
        environment["CONFIG_FILE"] = "/config/config.yaml"
    notes = []
    config.take("fallbackStrategies")
    given.section("devicePlugin").take("enabled")
    if left := ", ".join(given.left()):
        notes.append(f"{left} left out: settings of the plugin's pods; see devherd's own manifests")
    variables = environment | {name: str(value) for name, value in more.items() if value}
    yield Invocation(environment=variables, notes=tuple(notes))
    yield from files


def files_of(key: str, configurations: Any, default: Any = None) -> Iterator[ConfigFile]:
    """The files in the mapping at `key` of the values: configurations by name; `default` is the name of the default.

    Raises UsageError for one that is not a mapping.
    """
    if configurations is None:
        return
    if not isinstance(configurations, Mapping):
        raise not_keys(key, configurations)
    for name, written in configurations.items():
        content = _parsed(f"{key}.{name}", written) if isinstance(written, str) else written
        if not isinstance(content, Mapping):
            raise not_keys(f"{key}.{name}", content)
        yield ConfigFile(content, str(name), is_default=name == default)


def _parsed(key: str, written: str) -> Any:
    try:
        return yaml_file.parse(written)[0] or {}
    except yaml.YAMLError as error:
        fault = fault_of(error, written)
        line, _, column = fault.position.partition(":")
        where = f"`{key}` is not valid YAML at line {line}, column {column}"
        raise UsageError(where, fault.what, fault.cure) from error


def text(value: Any) -> str:
    """A value as the chart writes it into an environment variable."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def is_operator_values(content: Mapping[str, Any]) -> bool:
    """Whether a mapping has values of the operator's chart; the plugin's has only `enabled` in `devicePlugin`."""
    return bool(content.keys() & _OWN_SECTIONS or section(content, "devicePlugin").keys() - {"enabled"})


def from_policy(item: Mapping[str, Any]) -> Iterator[Invocation | ConfigFile]:
    """The container that the operator creates for a ClusterPolicy."""
    yield from from_operator_values(section(item, "spec"))


def from_operator_values(spec: Mapping[str, Any]) -> Iterator[Invocation | ConfigFile]:
    """The container that the operator creates, and the files of the ConfigMap that its chart creates.

    The chart's values and a ClusterPolicy have the same keys, except `devicePlugin.config.data`.
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
    files = list(files_of("devicePlugin.config.data", config.get("data"), config.get("default")))
    if files or config.get("name"):
        environment["CONFIG_FILE"] = "/config/config.yaml"
    variables = [each for each in listed("devicePlugin.env", plugin.get("env")) if isinstance(each, Mapping)]
    given = {str(each.get("name")): text(each.get("value", "")) for each in variables}
    others = sorted(plugin.keys() - _OF_THE_PLUGIN)
    notes = [f"devicePlugin.{key} is left out: a setting of the plugin's pods" for key in others]
    off = ["devicePlugin.enabled is false: the operator starts no plugin"] if plugin.get("enabled") is False else []
    words = [str(word) for word in listed("devicePlugin.args", plugin.get("args"))]
    components: tuple[str, ...] = ()
    if any(_is_enabled(spec, key, default=True) for key in _MANAGERS):
        notes.append(_BESIDE_MANAGERS)
        components = ("nvidia-operator",)
    notes += _of_other_parts(spec)
    yield Invocation(words, environment | given, notes=tuple(notes), differences=tuple(off), components=components)
    yield from files


def _of_other_parts(spec: Mapping[str, Any]) -> Iterator[str]:
    """Notes on the sections of the operator's other parts, neither of the plugin nor of the host."""
    given = [key for key, value in spec.items() if key not in _READ_SECTIONS and value is not None]
    if "gfd" in given and _is_enabled(spec, "gfd", default=True):
        yield f"gfd is left out: {LABELS}"
    if machines := ", ".join(
        key for key in given if key in _OF_VIRTUAL_MACHINES and _is_enabled(spec, key, default=True)
    ):
        yield f"{machines} left out: these plugins serve GPUs to virtual machines, and the operator goes on with them"
    if rest := ", ".join(key for key in given if key != "gfd" and key not in _OF_VIRTUAL_MACHINES):
        yield f"{rest} left out: parts of the operator beside the plugin, which goes on with them"


def _is_enabled(spec: Mapping[str, Any], key: str, *, default: bool) -> bool:
    enabled = section(spec, key).get("enabled")
    return default if enabled is None else bool(enabled)
