"""generic-device-plugin: its file, flags and environment variables have the same keys; flags win, then the file."""

from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

import yaml

from devherd.errors import UsageError
from devherd.importers.imported import GivenSettings, Imported, flags, listed, without_file
from devherd.importers.manifest import section
from devherd.importers.plugin import Chart, ConfigFile, Invocation, Plugin

_FLAGS = frozenset({"config", "device", "domain", "listen", "log-level", "plugin-directory", "version"})
_DOMAIN = "devic.es"
_DOMAIN_BEFORE = (0, 2)
"""Releases before this one use `squat.ai`."""
_VARIABLES = {name.upper().replace("-", "_"): name for name in ("domain", "listen", "log-level", "plugin-directory")}
_LOG_LEVELS = {"all": "debug", "debug": "debug", "info": "info", "warn": "warning", "error": "error", "none": "error"}
_REASONS = {"version": "it only prints the plugin's version"}


def _translate(invocation: Invocation, file: Mapping[str, Any] | None, *, with_ignored: bool) -> Imported:  # noqa: ARG001 - it ignores nothing
    given = flags(invocation.flag_words, {"version"}, _FLAGS)
    variables = {_VARIABLES[name]: value for name, value in invocation.variables().items() if name in _VARIABLES}
    content: dict[str, Any] = {**variables, **(file or {})}
    content |= {name: values[-1] for name, values in given.items() if name != "device"}
    if "device" in given:
        content["devices"] = [_device(text) for text in given["device"]]
        content.pop("device", None)
    if "config" in given and file is None:
        if "device" not in given:
            raise without_file("generic", content["config"])
        imported = _from_settings(GivenSettings(content), invocation.version)
        imported.note(f"--config {content['config']} is not read: import it in one stream with these flags")
        return imported
    return _from_settings(GivenSettings(content), invocation.version)


def _from_settings(given: GivenSettings, version: tuple[int, ...] | None) -> Imported:
    imported = Imported("generic")
    given.take("config")
    domain = given.take("domain")
    if domain is None:
        domain = "squat.ai" if version is not None and version < _DOMAIN_BEFORE else _DOMAIN
        if version is None:
            imported.note(f"no domain is given: `{domain}`, as from release 0.2.0; before it was `squat.ai`")
    devices = [device for key in ("device", "devices") for device in given.items(key)]
    imported.config["generic"] = [_named(device, domain) for device in devices]
    if listen := given.take("listen"):
        imported.config["listen"] = _address(str(listen))
    if (level := given.take("log-level", "info")) != "info":
        imported.config["log_level"] = _LOG_LEVELS.get(str(level), level)
    directory = PurePosixPath(str(given.take("plugin-directory") or "/var/lib/kubelet/device-plugins"))
    if directory.name != "device-plugins":
        imported.note_loss(f"plugin-directory {directory} is left out: it is always <kubelet_dir>/device-plugins")
    elif str(directory.parent) != "/var/lib/kubelet":
        imported.config["kubelet_dir"] = str(directory.parent)
    imported.note_left_out(given.left(), _REASONS, "the plugin does not know it")
    return imported


_MICROSHIFT = "genericDevicePlugin"
_MICROSHIFTS_DOMAIN = "device.microshift.io"
"""<https://github.com/openshift/microshift/blob/main/pkg/config/gdp.go>, as the keys of the section."""


def _of_microshift(content: Mapping[str, Any]) -> Iterator[Invocation | ConfigFile]:
    """What MicroShift runs in its own process for this section of its file."""
    given = dict(section(content, _MICROSHIFT))
    is_on = str(given.pop("status", "Disabled")).casefold() == "enabled"
    off = () if is_on else (f"{_MICROSHIFT}.status is not Enabled: MicroShift serves no such device",)
    others = ", ".join(str(key) for key in content if key != _MICROSHIFT)
    notes = (
        [f"write {_MICROSHIFT}.status: Disabled into MicroShift's file, or it goes on serving them"] if is_on else []
    )
    if others:
        notes.append(f"{others} left out: settings of MicroShift")
    devices = [_with_usb(device) for device in listed(f"{_MICROSHIFT}.devices", given.get("devices"))]
    yield Invocation(notes=tuple(notes), differences=off)
    yield ConfigFile({"domain": _MICROSHIFTS_DOMAIN} | given | {"devices": devices})


def _with_usb(device: Any) -> Any:
    """A device whose groups have `usb`, which MicroShift calls `usbs`."""
    if not isinstance(device, Mapping) or not isinstance(device.get("groups"), list):
        return device
    groups = [
        {"usb" if key == "usbs" else key: value for key, value in group.items()}
        if isinstance(group, Mapping)
        else group
        for group in device["groups"]
    ]
    return {**device, "groups": groups}


def _device(text: str) -> Any:
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        like = "{name: kvm, groups: [{paths: [{path: /dev/kvm}]}]}"
        raise UsageError(f"--device {text}", "it is not valid YAML", f"write it like `{like}`") from error


def _named(device: Any, domain: str) -> Any:
    """The device under its full resource name; anything else is left to the check of the configuration."""
    if not isinstance(device, dict) or "name" not in device:
        return device
    return {**device, "name": f"{domain}/{str(device['name']).strip()}"}


def _address(listen: str) -> str:
    """The address with a host: Go listens on all addresses without one."""
    return f"0.0.0.0{listen}" if listen.startswith(":") else listen


GENERIC = Plugin(
    "generic",
    lambda name: "generic-device-plugin" in name,
    _translate,
    _FLAGS,
    variables=frozenset(_VARIABLES),
    is_file=lambda content: bool(content) and content.keys() <= _FLAGS | {"devices"},
    charts=(Chart("microshift", lambda content: isinstance(content.get(_MICROSHIFT), Mapping), _of_microshift),),
)
