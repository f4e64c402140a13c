"""NVIDIA's plugin: its file of version v1, its flags and its environment variables.

A flag is stronger than a variable, a variable than the file. Of the file, `resources` and the `devices` and `rename` of
shared resources are parsed and then ignored by the plugin; here they do what they say.
"""

from collections.abc import Mapping
from typing import Any

from devherd.errors import UsageError
from devherd.importers.command_line import Invocation, flags
from devherd.importers.imported import Imported
from devherd.importers.nvidia_file import Resources, Sharing, read
from devherd.importers.nvidia_options import ALIASES, OPTIONS, SWITCHES
from devherd.importers.nvidia_sharing import rules

_WITHOUT_COUNTERPART = {"config-file", "kubelet-socket", "cdi-feature-flags", "cdi-disable-hooks"}
FLAGS = frozenset(OPTIONS) | frozenset(ALIASES) | _WITHOUT_COUNTERPART
FILE_KEYS = frozenset({"version", "flags", "resources", "sharing", "imex"})

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
_LEFT_OUT = {
    "failOnInitError": "failOnInitError is left out: without a driver devherd waits and reports a problem",
    "useNodeFeatureAPI": "useNodeFeatureAPI and gfd are left out: devherd writes no node labels",
    "gfd": "useNodeFeatureAPI and gfd are left out: devherd writes no node labels",
    "containerDriverRoot": "containerDriverRoot is left out: the host is found by `host_root`",
}


def from_command_line(invocation: Invocation) -> Imported:
    """The configuration that does the same as these flags and variables. Raises UsageError for an unknown flag."""
    given = {ALIASES.get(name, name): values for name, values in flags(invocation.flag_words, SWITCHES, FLAGS).items()}
    content: dict[str, Any] = {"flags": {"plugin": {}}, "imex": {}}
    for name, option in OPTIONS.items():
        variables = (invocation.environment[each] for each in option.variables if each in invocation.environment)
        values = given.get(name) or [text for text in variables if text]
        if values:
            option.put(content, values)
    imported = from_file(content)
    if "config-file" in given or invocation.environment.get("CONFIG_FILE"):
        imported.note("the configuration file is not read: import it instead, and add what the flags here say")
    for name in ("DP_DISABLE_HEALTHCHECKS", "DP_ENABLE_HEALTHCHECKS"):
        if name in invocation.environment:
            imported.note(f"{name} is left out: Xids are not watched yet")
    return imported


def from_file(content: Mapping[str, Any]) -> Imported:
    """The configuration that does the same as a file of version v1. Raises UsageError for another version."""
    if content.get("version") not in (None, "", "v1"):
        raise UsageError(f"version {content['version']} is not known", "the plugin knows v1 only", "correct the file")
    imported = Imported("nvidia")
    flags = _section(content, "flags")
    plugin = _section(flags, "plugin")
    options = _translated(flags, _FLAG_KEYS) | _translated(plugin, _PLUGIN_KEYS)
    if "device_list_strategy" in options:
        options["device_list_strategy"] = _as_list(options["device_list_strategy"])
    options = {name: value for name, value in options.items() if value != _DEFAULTS.get(name)}
    imex = _translated(_section(content, "imex"), {"channelIDs": "channel_ids", "required": "required"})
    if any(imex.values()):
        options["imex"] = imex
    made = rules(
        read(Resources, "resources", _section(content, "resources")),
        read(Sharing, "sharing", _section(content, "sharing")),
        imported,
    )
    if "mps_root" not in options and any(rule.get("sharing", {}).get("strategy") == "mps" for rule in made):
        options["mps_root"] = _CHARTS_MPS_ROOT
        imported.note(f"mps_root is {_CHARTS_MPS_ROOT}, what the plugin's chart gives it: see its value `mps.root`")
    imported.say("vendors.nvidia", options)
    if made:
        imported.config["resources"] = made
    for key, note in _LEFT_OUT.items():
        if key in flags or key in plugin:
            imported.note(note)
    return imported


def _translated(section: Mapping[str, Any], keys: Mapping[str, str]) -> dict[str, Any]:
    return {ours: section[theirs] for theirs, ours in keys.items() if section.get(theirs) is not None}


def _section(content: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    section = content.get(key) or {}
    if not isinstance(section, Mapping):
        raise UsageError(f"`{key}` is not a section", "it must be a mapping of keys", "correct the file")
    return section


def _as_list(value: Any) -> Any:
    return [each.strip() for each in value.split(",")] if isinstance(value, str) else value
