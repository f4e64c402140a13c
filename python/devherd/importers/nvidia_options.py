"""The flags and variables of NVIDIA's plugin, and where each stands in its file."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from devherd.importers.go_flags import number, truth

_Read = Callable[[Sequence[str], str], Any]
"""Values of a flag and its name to what the file would hold."""


def _text(values: Sequence[str], name: str) -> str:  # noqa: ARG001 - any text will do
    return values[-1]


def _switch(values: Sequence[str], name: str) -> bool:
    return truth(values[-1], name)


def _list(values: Sequence[str], name: str) -> list[str]:  # noqa: ARG001 - any text will do
    return [each.strip() for value in values for each in value.split(",") if each.strip()]


def _numbers(values: Sequence[str], name: str) -> list[int | str]:
    return [number(text) for text in _list([value.strip("[]") for value in values], name)]


@dataclass(frozen=True, slots=True)
class Option:
    """One option: the keys that lead to it in the file, its variables, and how its text is read."""

    path: tuple[str, ...]
    variables: tuple[str, ...]
    read: _Read = _text

    def put(self, content: dict[str, Any], values: Sequence[str], name: str) -> None:
        """Set it in a file's content. Raises UsageError for a value that the plugin would refuse."""
        place = content
        for key in self.path[:-1]:
            if place.get(key) is None:
                place[key] = {}
            if not isinstance(place[key], dict):
                return  # the file's reader refuses it
            place = place[key]
        place[self.path[-1]] = self.read(values, name)


def _flag(key: str, *variables: str, read: _Read = _text) -> Option:
    return Option(("flags", key), variables, read)


def _plugin(key: str, *variables: str, read: _Read = _text) -> Option:
    return Option(("flags", "plugin", key), variables, read)


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
    "imex-channel-ids": Option(("imex", "channelIDs"), ("IMEX_CHANNEL_IDS",), _numbers),
    "imex-required": Option(("imex", "required"), ("IMEX_REQUIRED",), _switch),
}
"""By flag. Kubelet socket, configuration file and CDI feature flags are known, and have no counterpart."""
ALIASES = {
    "driver-root": ("nvidia-driver-root",),
    "dev-root": ("nvidia-dev-root",),
    "nvidia-cdi-hook-path": ("nvidia-ctk-path",),
    "driver-root-ctr-path": ("container-driver-root",),
}
"""Other names of a flag."""
SWITCHES = frozenset(name for name, option in OPTIONS.items() if option.read is _switch)
VARIABLES = frozenset(variable for option in OPTIONS.values() for variable in option.variables)
