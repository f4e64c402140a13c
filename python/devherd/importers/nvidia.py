"""NVIDIA's plugin: its file of version v1, its flags and its environment variables, Xids among them."""

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from devherd.errors import UsageError
from devherd.importers import nvidia_operator
from devherd.importers.imported import LABELS, GivenSettings, Imported, flags, number, truth
from devherd.importers.nvidia_file import Resources, SharingSection, read, rules, unknown, without_ignored
from devherd.importers.plugin import Chart, Invocation, Plugin
from devherd.reasons.xids import OF_PLUGIN_IGNORED

_Read = Callable[[Sequence[str], str], Any]
"""Takes the values of a flag and its name; returns the value for the file."""

ALIASES = {
    "driver-root": ("nvidia-driver-root",),
    "dev-root": ("nvidia-dev-root",),
    "nvidia-cdi-hook-path": ("nvidia-ctk-path",),
    "driver-root-ctr-path": ("container-driver-root",),
}
"""Aliases of flags."""
_DISABLE, _ENABLE = "DP_DISABLE_HEALTHCHECKS", "DP_ENABLE_HEALTHCHECKS"
XID_VARIABLES = (_DISABLE, _ENABLE)
_WITHOUT_COUNTERPART = {
    "kubelet-socket": "KUBELET_SOCKET",
    "cdi-feature-flags": "CDI_FEATURE_FLAGS",
    "cdi-disable-hooks": "CDI_DISABLE_HOOKS",
}
"""Flags without a counterpart in devherd, with their variables."""
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
"""The chart's default of MPS_ROOT; files seldom set it."""
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


def _text(values: Sequence[str], name: str) -> str:  # noqa: ARG001 - any text will do
    return values[-1]


def _switch(values: Sequence[str], name: str) -> bool:
    return truth(values[-1], name)


def _list(values: Sequence[str], name: str) -> list[str]:  # noqa: ARG001 - any text will do
    return [each.strip() for value in values for each in value.split(",") if each.strip()]


def _numbers(values: Sequence[str], name: str) -> list[int | str]:
    return [number(text) for text in _list([value.strip("[]") for value in values], name)]


@dataclass(frozen=True, slots=True)
class PluginOption:
    """One option: its path of keys in the file, its variables, and how its text is read."""

    path: tuple[str, ...]
    variables: tuple[str, ...]
    read: _Read = _text

    def put(self, content: dict[str, Any], values: Sequence[str], name: str) -> None:
        """Set it in a file's content. Raises UsageError for a value that the plugin refuses."""
        place = content
        for key in self.path[:-1]:
            if place.get(key) is None:
                place[key] = {}
            if not isinstance(place[key], dict):
                return  # the file's reader refuses it
            place = place[key]
        place[self.path[-1]] = self.read(values, name)


def _flag(key: str, *variables: str, read: _Read = _text) -> PluginOption:
    return PluginOption(("flags", key), variables, read)


def _plugin(key: str, *variables: str, read: _Read = _text) -> PluginOption:
    return PluginOption(("flags", "plugin", key), variables, read)


OPTIONS = {
    "mig-strategy": _flag("migStrategy", "MIG_STRATEGY"),
    "fail-on-init-error": _flag("failOnInitError", "FAIL_ON_INIT_ERROR", read=_switch),
    "driver-root": _flag("nvidiaDriverRoot", "NVIDIA_DRIVER_ROOT"),
    "dev-root": _flag("nvidiaDevRoot", "NVIDIA_DEV_ROOT"),
    "gdrcopy-enabled": _flag("gdrcopyEnabled", "GDRCOPY_ENABLED", read=_switch),
    "gds-enabled": _flag("gdsEnabled", "GDS_ENABLED", read=_switch),
    "mofed-enabled": _flag("mofedEnabled", "MOFED_ENABLED", read=_switch),
    "mps-root": _flag("mpsRoot", "MPS_ROOT"),
    "device-discovery-strategy": _flag("deviceDiscoveryStrategy", "DEVICE_DISCOVERY_STRATEGY"),
    "pass-device-specs": _plugin("passDeviceSpecs", "PASS_DEVICE_SPECS", read=_switch),
    "device-list-strategy": _plugin("deviceListStrategy", "DEVICE_LIST_STRATEGY", read=_list),
    "device-id-strategy": _plugin("deviceIDStrategy", "DEVICE_ID_STRATEGY"),
    "cdi-annotation-prefix": _plugin("cdiAnnotationPrefix", "CDI_ANNOTATION_PREFIX"),
    "nvidia-cdi-hook-path": _plugin("nvidiaCTKPath", "NVIDIA_CDI_HOOK_PATH", "NVIDIA_CTK_PATH"),
    "driver-root-ctr-path": _plugin("containerDriverRoot", "DRIVER_ROOT_CTR_PATH", "CONTAINER_DRIVER_ROOT"),
    "shared-devices-allocation-policy": _plugin("sharedDevicesAllocationPolicy", "SHARED_DEVICES_ALLOCATION_POLICY"),
    "imex-channel-ids": PluginOption(("imex", "channelIDs"), ("IMEX_CHANNEL_IDS",), _numbers),
    "imex-required": PluginOption(("imex", "required"), ("IMEX_REQUIRED",), _switch),
}
"""Options by flag; `_WITHOUT_COUNTERPART` has the others."""
SWITCHES = frozenset(name for name, option in OPTIONS.items() if option.read is _switch)
VARIABLES = frozenset(variable for option in OPTIONS.values() for variable in option.variables)


def put_xids(variables: Mapping[str, str], imported: Imported) -> None:
    """Translate the plugin's two variables on Xids; an Xid in both counts as enabled."""
    disabled, enabled = (variables.get(name, "").strip().lower() for name in XID_VARIABLES)
    if disabled == "all" or "xids" in disabled:
        imported.put("health", {"rules": [{"reason": "xid", "action": "ignore"}]})
        imported.note(f"{_DISABLE} applies to Xids only: other problems of a GPU still count")
    elif disabled or enabled:
        xid: dict[Any, str] = {"policy": "plugin"}
        xid |= dict.fromkeys(_codes(_DISABLE, disabled, imported), "ignore")
        every = enabled == "all"
        counting = sorted(OF_PLUGIN_IGNORED | {code for code in xid if code != "policy"}) if every else ()
        xid |= dict.fromkeys(counting or _codes(_ENABLE, enabled, imported), "unhealthy")
        imported.put("health.xid", xid)


def _codes(variable: str, text: str, imported: Imported) -> Iterator[int]:
    for word in filter(None, (word.strip() for word in text.split(","))):
        if word.isascii() and word.isdigit():
            yield int(word)
        else:
            imported.note(f"{variable}: `{word}` is left out: it is not an Xid")


_FLAGS = (
    frozenset(OPTIONS)
    | {alias for each in ALIASES.values() for alias in each}
    | frozenset(_WITHOUT_COUNTERPART)
    | {"config-file"}
)


def _translate(invocation: Invocation, file: Mapping[str, Any] | None, *, with_ignored: bool) -> Imported:
    given = flags(invocation.flag_words, SWITCHES, _FLAGS)
    variables = invocation.variables()
    content: dict[str, Any] = copy.deepcopy(dict(file or {}))
    called = {}
    for name, option in OPTIONS.items():
        flag = next((each for each in (name, *ALIASES.get(name, ())) if each in given), None)
        variable = next((each for each in option.variables if variables.get(each)), None)
        if name_given := f"--{flag}" if flag else variable:
            called[".".join(option.path)] = name_given
            option.put(content, given[flag] if flag else [variables[name_given]], name_given)
    imported = _from_file(content, called, with_ignored=with_ignored)
    _note_what_is_no_option(invocation, given, imported, has_file=file is not None)
    return imported


def _note_what_is_no_option(
    invocation: Invocation, given: Mapping[str, Any], imported: Imported, *, has_file: bool
) -> None:
    variables = invocation.variables()
    for name, is_given in (("--config-file", "config-file" in given), ("CONFIG_FILE", "CONFIG_FILE" in variables)):
        if is_given and not has_file:
            imported.note_difference(f"the file of {name} is not read: import it in one stream with this")
    for flag, variable in _WITHOUT_COUNTERPART.items():
        if flag in given:
            imported.note(f"--{flag} is left out: {_REASONS[flag]}")
        elif variable in variables:
            imported.note(f"{variable} is left out: {_REASONS[flag]}")
    put_xids(variables, imported)
    if invocation.program == _OPERATORS_ENTRYPOINT:
        imported.note(_AT_RUN_TIME)


def _from_file(content: Mapping[str, Any], called: Mapping[str, str], *, with_ignored: bool) -> Imported:
    """The equivalent of a file of version v1; `called` has, by key, the flag or variable that set it.

    Raises UsageError for another version.
    """
    imported = Imported("nvidia")
    given = GivenSettings(content)
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
    sharing = read(SharingSection, "sharing", given.take("sharing", {}))
    left = [*given.left(), *unknown(resources, "resources"), *unknown(sharing, "sharing")]
    if not with_ignored:
        resources, sharing = without_ignored(resources, sharing, imported)
    made = rules(resources, sharing, imported)
    if "mps_root" not in options and any(rule.get("sharing", {}).get("strategy") == "mps" for rule in made):
        options["mps_root"] = _CHARTS_MPS_ROOT
        imported.note(f"mps_root is {_CHARTS_MPS_ROOT}, the default of `mps.root` in the plugin's chart")
    imported.put("vendors.nvidia", options)
    if made:
        imported.config["resources"] = made
    if "plugin" in left:
        left.remove("plugin")
        imported.note_loss("plugin is left out: the plugin does not know it here; its place is `flags.plugin`")
    reasons = _REASONS | {name: _REASONS[key] for key, name in called.items() if key in _REASONS}
    imported.note_left_out([called.get(name, name) for name in left], reasons, "the plugin does not know it")
    return imported


def _translated(given: GivenSettings, keys: Mapping[str, str]) -> dict[str, Any]:
    values = {ours: given.take(theirs) for theirs, ours in keys.items()}
    return {name: value for name, value in values.items() if value is not None}


def _as_list(value: Any) -> Any:
    return [each.strip() for each in value.split(",")] if isinstance(value, str) else value


NVIDIA = Plugin(
    "nvidia",
    lambda name: "nvidia-device-plugin" in name or "nvidia/k8s-device-plugin" in name,
    _translate,
    _FLAGS,
    "nvidia",
    VARIABLES | frozenset(_WITHOUT_COUNTERPART.values()) | {"CONFIG_FILE", *XID_VARIABLES},
    is_file=lambda content: content.get("version") == "v1" or (bool(content) and content.keys() <= _FILE_KEYS),
    kinds={"nvidia.com/ClusterPolicy": nvidia_operator.from_policy},
    charts=(
        Chart("gpu-operator", nvidia_operator.is_operator_values, nvidia_operator.from_operator_values),
        Chart("nvidia-device-plugin", nvidia_operator.is_chart_values, nvidia_operator.from_chart_values),
    ),
)
