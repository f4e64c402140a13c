"""Intel's plugins for FPGAs and GPUs: flags only."""

from typing import Any

from devherd.importers.command_line import Invocation, flags
from devherd.importers.imported import Imported

_LOGGING = frozenset(
    {"v", "logtostderr", "alsologtostderr", "stderrthreshold", "vmodule", "log_dir", "log_file", "log_file_max_size"}
    | {"log_backtrace_at", "skip_headers", "skip_log_headers", "add_dir_header", "one_output"}
)
_LOG_SWITCHES = frozenset({"logtostderr", "alsologtostderr", "skip_headers", "skip_log_headers", "add_dir_header"})
FPGA_FLAGS = frozenset({"mode", "node-name", "kubeconfig", "master"}) | _LOGGING
GPU_FLAGS = (
    frozenset({"prefix", "shared-dev-num", "allocation-policy", "enable-monitoring", "monitoring-mode", "wsl"})
    | {"health-management", "xpumd-endpoint", "temp-limit", "gpu-temp-limit", "memory-temp-limit"}
    | {"allow-ids", "deny-ids", "bypath"}
    | _LOGGING
)
_GPU_SWITCHES = _LOG_SWITCHES | {"enable-monitoring", "health-management", "wsl"}
_HEALTH = {"health-management", "xpumd-endpoint", "temp-limit", "gpu-temp-limit", "memory-temp-limit"}


def from_fpga_command_line(invocation: Invocation) -> Imported:
    """The configuration that does the same. Raises UsageError for a flag that the plugin does not know."""
    imported = Imported("intel-fpga")
    given = _last(invocation, _LOG_SWITCHES, FPGA_FLAGS)
    imported.say("vendors.intel_fpga", {"mode": given["mode"]} if given.get("mode", "af") != "af" else {})
    if given.keys() & {"node-name", "kubeconfig", "master"}:
        imported.note(
            "-node-name, -kubeconfig and -master are left out: the mode is not read from the node's annotation"
            " `fpga.intel.com/device-plugin-mode`; give such nodes a configuration of their own"
        )
    return imported


def from_gpu_command_line(invocation: Invocation) -> Imported:
    """The configuration that does the same. Raises UsageError for a flag that the plugin does not know."""
    imported = Imported("intel-gpu")
    given = _last(invocation, _GPU_SWITCHES, GPU_FLAGS)
    options: dict[str, Any] = {}
    if given.get("shared-dev-num", "1") != "1":
        options["shared_devices"] = _number(given["shared-dev-num"])
    for flag, option, default in (("allocation-policy", "allocation_policy", "none"), ("bypath", "bypath", "single")):
        if given.get(flag, default) != default:
            options[option] = given[flag]
    if given.get("enable-monitoring") == "true":
        options["monitoring"] = given.get("monitoring-mode", "single")
    for flag, option in (("allow-ids", "allow_ids"), ("deny-ids", "deny_ids")):
        if given.get(flag):
            options[option] = [each.strip().lower() for each in given[flag].split(",")]
    imported.say("vendors.intel_gpu", options)
    _note_the_rest(imported, given)
    return imported


def _note_the_rest(imported: Imported, given: dict[str, str]) -> None:
    if given.keys() & _HEALTH:
        imported.note("health flags are left out: health is read from sysfs, without a sidecar, and always on")
    if given.get("prefix"):
        imported.config["host_root"] = given["prefix"]
    if given.get("wsl") == "true":
        imported.note("-wsl is left out: GPUs under WSL are not served")


def _last(invocation: Invocation, switches: frozenset[str], known: frozenset[str]) -> dict[str, str]:
    """Flag to its value, the last one where it is given twice, as Go has it."""
    return {name: values[-1] for name, values in flags(invocation.flag_words, switches, known).items()}


def _number(text: str) -> int | str:
    """The number; other text stays as it is, for the configuration's own check to refuse."""
    return int(text) if text.isdecimal() else text
