"""generic-device-plugin: its file and its flags have the same keys; environment variables stand behind both."""

from pathlib import PurePosixPath
from typing import Any

import yaml

from devherd.errors import UsageError
from devherd.importers.command_line import Invocation, flags
from devherd.importers.imported import Imported

FLAGS = frozenset({"config", "device", "domain", "listen", "log-level", "plugin-directory", "version"})
DOMAIN = "devic.es"
_LOG_LEVELS = {"all": "debug", "debug": "debug", "info": "info", "warn": "warning", "error": "error", "none": "error"}


def from_command_line(invocation: Invocation) -> Imported:
    """The configuration that does the same. Raises UsageError for an unknown flag or a device that is bad YAML."""
    given = flags(invocation.flag_words, {"version"}, FLAGS)
    variables = {
        name: invocation.environment[variable]
        for name in ("domain", "listen", "log-level", "plugin-directory")
        if (variable := name.upper().replace("-", "_")) in invocation.environment
    }
    content: dict[str, Any] = variables | {name: values[-1] for name, values in given.items() if name != "device"}
    content["devices"] = [_device(text) for text in given.get("device", ())]
    imported = from_file(content)
    if "config" in given:
        imported.note(f"{content['config']} is not read: import it as well; its devices count where no flag gives any")
    return imported


def from_file(content: dict[str, Any]) -> Imported:
    """The configuration that does the same as a file of the plugin."""
    imported = Imported("generic")
    domain = content.get("domain")
    if domain is None:
        imported.note(f"no domain is given: `{DOMAIN}`, as from release 0.2.0; before it was `squat.ai`")
    devices = [device for key in ("device", "devices") for device in _list(content.get(key))]
    imported.config["generic"] = [_named(device, domain or DOMAIN) for device in devices]
    if content.get("listen"):
        imported.config["listen"] = _address(str(content["listen"]))
    if content.get("log-level", "info") != "info":
        imported.config["log_level"] = _LOG_LEVELS.get(str(content["log-level"]), content["log-level"])
    directory = PurePosixPath(str(content.get("plugin-directory") or "/var/lib/kubelet/device-plugins"))
    if directory.name != "device-plugins":
        imported.note(f"plugin-directory {directory} is left out: it is always <kubelet_dir>/device-plugins")
    elif str(directory.parent) != "/var/lib/kubelet":
        imported.config["kubelet_dir"] = str(directory.parent)
    return imported


def _device(text: str) -> Any:
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise UsageError(f"--device {text}", "it is not valid YAML", "correct it") from error


def _list(value: Any) -> list[Any]:
    if isinstance(value, list | None):
        return value or []
    raise UsageError("the devices are not a list", f"they are {value!r}", "correct the file")


def _named(device: Any, domain: str) -> Any:
    """The device under its full resource name; what is not a device is left for the configuration's own check."""
    if not isinstance(device, dict) or "name" not in device:
        return device
    return {**device, "name": f"{domain}/{str(device['name']).strip()}"}


def _address(listen: str) -> str:
    """Go listens on all addresses when none is given."""
    return f"0.0.0.0{listen}" if listen.startswith(":") else listen
