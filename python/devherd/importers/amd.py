"""AMD's plugin: its flags, and the DeviceConfig from which AMD's GPU operator makes them."""

from pathlib import PurePosixPath
from typing import Any

from devherd.importers.command_line import Invocation, flags
from devherd.importers.imported import Imported

_LOGGING = {"logtostderr", "alsologtostderr", "stderrthreshold", "v", "vmodule", "log_dir", "log_link"} | {
    "log_backtrace_at",
    "logbuflevel",
}
FLAGS = frozenset({"pulse", "resource_naming_strategy", "driver_type"} | _LOGGING)
_SWITCHES = frozenset({"logtostderr", "alsologtostderr"})


def from_command_line(invocation: Invocation) -> Imported:
    """The configuration that does the same. Raises UsageError for a flag that the plugin does not know."""
    imported = Imported("amd")
    given = {name: values[-1] for name, values in flags(invocation.flag_words, _SWITCHES, FLAGS).items()}
    options = {}
    if given.get("resource_naming_strategy", "single") != "single":
        options["naming"] = given["resource_naming_strategy"]
    if given.get("driver_type"):
        options["driver_type"] = given["driver_type"].replace("-", "_")
    imported.say("vendors.amd", options)
    if "pulse" in given:
        imported.note("-pulse is left out: health is always polled, each `health.poll`")
        imported.note(
            "health by AMD's metrics exporter, which -pulse switched on, is lost: a GPU with uncorrectable ECC errors "
            "stays Healthy"
        )
    if given.keys() & _LOGGING:
        imported.note("log flags are left out: see `log_level` and `log_format`")
    return imported


def from_device_config(spec: dict[str, Any]) -> Imported:
    """The configuration that does what the operator's plugin does, from the `spec` of its DeviceConfig.

    As `SetDevicePluginAsDesired` of <https://github.com/ROCm/gpu-operator> starts it. Raises UsageError for an argument
    that the plugin does not know.
    """
    device_plugin, driver = _section(spec, "devicePlugin"), _section(spec, "driver")
    arguments = _section(device_plugin, "devicePluginArguments")
    if str(driver.get("driverType", "")).endswith("-passthrough"):
        arguments = {"resource_naming_strategy": "mixed"} | arguments
    imported = from_command_line(Invocation(["-pulse=30", *(f"-{name}={value}" for name, value in arguments.items())]))
    if device_plugin.get("enableDevicePlugin", True):
        imported.note("set spec.devicePlugin.enableDevicePlugin to false, or the operator starts its plugin again")
    if directory := device_plugin.get("kubeletSocketPath"):
        imported.note(
            f"kubeletSocketPath {directory} is left out: start devherd with `--kubelet-dir "
            f"{PurePosixPath(str(directory)).parent}`, the directory that `device-plugins` is in"
        )
    return imported


def _section(content: dict[str, Any], name: str) -> dict[str, Any]:
    section = content.get(name)
    return section if isinstance(section, dict) else {}
