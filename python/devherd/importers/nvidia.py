"""NVIDIA's plugin: its file of version v1, its flags and its environment variables.

A flag is stronger than a variable, a variable than the file.
"""

import copy
from collections.abc import Mapping
from typing import Any

from devherd.errors import UsageError
from devherd.importers import nvidia_chart, nvidia_health, nvidia_operator
from devherd.importers.given import Given
from devherd.importers.go_flags import flags
from devherd.importers.imported import LABELS, Imported
from devherd.importers.invocation import Invocation
from devherd.importers.nvidia_file import Resources, Sharing, read, unknown, without_ignored
from devherd.importers.nvidia_options import ALIASES, OPTIONS, SWITCHES, VARIABLES
from devherd.importers.nvidia_sharing import rules
from devherd.importers.plugin import Chart, Plugin

_WITHOUT_COUNTERPART = {
    "kubelet-socket": "KUBELET_SOCKET",
    "cdi-feature-flags": "CDI_FEATURE_FLAGS",
    "cdi-disable-hooks": "CDI_DISABLE_HOOKS",
}
"""Flag and variable."""
_FLAGS = (
    frozenset(OPTIONS)
    | {alias for each in ALIASES.values() for alias in each}
    | frozenset(_WITHOUT_COUNTERPART)
    | {"config-file"}
)
_FILE_KEYS = frozenset({"version", "flags", "resources", "sharing", "imex"})
_OPERATORS_ENTRYPOINT = "entrypoint.sh"
_AT_RUN_TIME = (
    "the GPU operator's entrypoint decides some settings on the node: write `driver_root: /run/nvidia/driver` where the"
    " operator installs the driver (`NVIDIA_DRIVER_ROOT` in /run/nvidia/validations/driver-ready), `gdrcopy_enabled`"
    " where the module gdrdrv is loaded, `gds_enabled` and `mofed_enabled` where nvidia_fs is"
)

_PLUGIN_KEYS = {
    "passDeviceSpecs": "pass_device_specs",
    "deviceListStrategy": "device_list_strategy",
    "deviceIDStrategy": "device_id_strategy",
    "cdiAnnotationPrefix": "cdi_annotation_prefix",
    "nvidiaCTKPath": "cdi_hook_path",
    "sharedDevicesAllocationPolicy": "shared_devices_allocation_policy",
}
_FLAG_KEYS = {
    "migStrategy": "mig_strategy",
    "nvidiaDriverRoot": "driver_root",
    "nvidiaDevRoot": "dev_root",
    "gdrcopyEnabled": "gdrcopy_enabled",
    "gdsEnabled": "gds_enabled",
    "mofedEnabled": "mofed_enabled",
    "mpsRoot": "mps_root",
    "deviceDiscoveryStrategy": "device_discovery_strategy",
}
_DEFAULTS = {
    "mig_strategy": "none",
    "driver_root": "/",
    "pass_device_specs": False,
    "device_list_strategy": ["envvar"],
    "device_id_strategy": "uuid",
    "cdi_annotation_prefix": "cdi.k8s.io/",
    "cdi_hook_path": "/usr/bin/nvidia-ctk",
    "gdrcopy_enabled": False,
    "gds_enabled": False,
    "mofed_enabled": False,
    "device_discovery_strategy": "auto",
    "shared_devices_allocation_policy": "distributed",
}
_CHARTS_MPS_ROOT = "/run/nvidia/mps"
"""The file seldom has it: the chart sets MPS_ROOT."""
_CDI_HOOKS = "the hooks are those of the vendor's default"
_REASONS = {
    "flags.failOnInitError": "without a driver devherd waits and reports a problem",
    "flags.useNodeFeatureAPI": LABELS,
    "flags.gfd": LABELS,
    "flags.plugin.containerDriverRoot": "the host is found by `host_root`",
    "kubelet-socket": "see `kubelet_dir`",
    "cdi-feature-flags": _CDI_HOOKS,
    "cdi-disable-hooks": _CDI_HOOKS,
}


def _translate(invocation: Invocation, file: Mapping[str, Any] | None, *, with_ignored: bool) -> Imported:
    given = flags(invocation.flag_words, SWITCHES, _FLAGS)
    variables = invocation.variables()
    content: dict[str, Any] = copy.deepcopy(dict(file or {}))
    called = {}
    for name, option in OPTIONS.items():
        flag = next((each for each in (name, *ALIASES.get(name, ())) if each in given), None)
        variable = next((each for each in option.variables if variables.get(each)), None)
        if said := f"--{flag}" if flag else variable:
            called[".".join(option.path)] = said
            option.put(content, given[flag] if flag else [variables[said]], said)
    imported = _from_file(content, called, with_ignored=with_ignored)
    _note_what_is_no_option(invocation, given, imported, has_file=file is not None)
    return imported


def _note_what_is_no_option(
    invocation: Invocation, given: Mapping[str, Any], imported: Imported, *, has_file: bool
) -> None:
    variables = invocation.variables()
    for name, is_given in (("--config-file", "config-file" in given), ("CONFIG_FILE", "CONFIG_FILE" in variables)):
        if is_given and not has_file:
            imported.note(f"the file of {name} is not read: import it in one stream with this")
    for flag, variable in _WITHOUT_COUNTERPART.items():
        if flag in given:
            imported.note(f"--{flag} is left out: {_REASONS[flag]}")
        elif variable in variables:
            imported.note(f"{variable} is left out: {_REASONS[flag]}")
    nvidia_health.put(variables, imported)
    if invocation.program == _OPERATORS_ENTRYPOINT:
        imported.note(_AT_RUN_TIME)


def _from_file(content: Mapping[str, Any], called: Mapping[str, str], *, with_ignored: bool) -> Imported:
    """The configuration that does the same as a file of version v1; `called`: what the user knows a key by.

    Raises UsageError for another version.
    """
    imported = Imported("nvidia")
    given = Given(content)
    if (version := given.take("version", "")) not in ("", "v1"):
        raise UsageError(f"version {version} is not known", "the plugin knows v1 only", "write `version: v1`")
    settings = given.section("flags")
    options = _translated(settings, _FLAG_KEYS) | _translated(settings.section("plugin"), _PLUGIN_KEYS)
    if "device_list_strategy" in options:
        options["device_list_strategy"] = _as_list(options["device_list_strategy"])
    options = {name: value for name, value in options.items() if value != _DEFAULTS.get(name)}
    imex = _translated(given.section("imex"), {"channelIDs": "channel_ids", "required": "required"})
    if any(imex.values()):
        options["imex"] = imex
    resources = read(Resources, "resources", given.take("resources", {}))
    sharing = read(Sharing, "sharing", given.take("sharing", {}))
    left = [*given.left(), *unknown(resources, "resources"), *unknown(sharing, "sharing")]
    if not with_ignored:
        resources, sharing = without_ignored(resources, sharing, imported)
    made = rules(resources, sharing, imported)
    if "mps_root" not in options and any(rule.get("sharing", {}).get("strategy") == "mps" for rule in made):
        options["mps_root"] = _CHARTS_MPS_ROOT
        imported.note(f"mps_root is {_CHARTS_MPS_ROOT}, what the plugin's chart gives it: see its value `mps.root`")
    imported.say("vendors.nvidia", options)
    if made:
        imported.config["resources"] = made
    reasons = _REASONS | {name: _REASONS[key] for key, name in called.items() if key in _REASONS}
    imported.note_left_out([called.get(name, name) for name in left], reasons, "the plugin does not know it")
    return imported


def _translated(given: Given, keys: Mapping[str, str]) -> dict[str, Any]:
    values = {ours: given.take(theirs) for theirs, ours in keys.items()}
    return {name: value for name, value in values.items() if value is not None}


def _as_list(value: Any) -> Any:
    return [each.strip() for each in value.split(",")] if isinstance(value, str) else value


NVIDIA = Plugin(
    "nvidia",
    lambda name: "nvidia-device-plugin" in name or "nvidia/k8s-device-plugin" in name,
    _translate,
    _FLAGS,
    VARIABLES | frozenset(_WITHOUT_COUNTERPART.values()) | {"CONFIG_FILE", *nvidia_health.VARIABLES},
    is_file=lambda content: bool(content) and content.keys() <= _FILE_KEYS,
    kinds={"nvidia.com/ClusterPolicy": nvidia_operator.from_policy},
    charts=(
        Chart("gpu-operator", nvidia_operator.is_values, nvidia_operator.from_values),
        Chart("nvidia-device-plugin", nvidia_chart.is_values, nvidia_chart.from_values),
    ),
)
