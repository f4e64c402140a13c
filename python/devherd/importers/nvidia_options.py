"""The flags and variables of NVIDIA's plugin, and where each stands in its file."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any


def _text(values: Sequence[str]) -> str:
    return values[-1]


def _switch(values: Sequence[str]) -> bool:
    return values[-1].lower() in {"true", "1", "t", "yes"}


def _list(values: Sequence[str]) -> list[str]:
    return [each.strip() for value in values for each in value.split(",") if each.strip()]


def _numbers(values: Sequence[str]) -> list[int | str]:
    texts = _list([value.strip("[]") for value in values])
    return [int(text) if text.isdecimal() else text for text in texts]


@dataclass(frozen=True, slots=True)
class Option:
    """One option: the keys that lead to it in the file, its variables, and how its text is read."""

    path: tuple[str, ...]
    variables: tuple[str, ...]
    read: Callable[[Sequence[str]], Any] = _text

    def put(self, content: dict[str, Any], values: Sequence[str]) -> None:
        """Set it in a file's content."""
        place = content
        for key in self.path[:-1]:
            place = place.setdefault(key, {})
        place[self.path[-1]] = self.read(values)


def _flag(key: str, *variables: str, read: Callable[[Sequence[str]], Any] = _text) -> Option:
    return Option(("flags", key), variables, read)


def _plugin(key: str, *variables: str, read: Callable[[Sequence[str]], Any] = _text) -> Option:
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
    "nvidia-driver-root": "driver-root",
    "nvidia-dev-root": "dev-root",
    "nvidia-ctk-path": "nvidia-cdi-hook-path",
    "container-driver-root": "driver-root-ctr-path",
}
SWITCHES = frozenset(name for name, option in OPTIONS.items() if option.read is _switch)
