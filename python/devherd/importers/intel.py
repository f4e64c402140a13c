"""Intel's plugins for FPGAs and GPUs: flags, the operators' custom resources, and the charts of the GPU one.

The charts are `charts/gpu-device-plugin` of intel/helm-charts and `charts/gpu-base-operator-policy` of
intel/gpu-base-operator.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from devherd.importers.imported import (
    LOG_FLAGS,
    LOG_REASON,
    LOG_SWITCHES,
    GivenSettings,
    Imported,
    flags,
    listed,
    number,
    truth,
)
from devherd.importers.manifest import section
from devherd.importers.plugin import Chart, ConfigFile, Invocation, Plugin

_HEALTH = "health is read from sysfs, without a sidecar"
_LIMITS = ("-temp-limit", "-gpu-temp-limit", "-memory-temp-limit")
_ANNOTATION = (
    "the mode is not read from the node's annotation `fpga.intel.com/device-plugin-mode`; give such nodes a"
    " configuration of their own"
)
INTELS_OPERATOR = "deviceplugin.intel.com"
"""The API group of the objects for which Intel's operator starts plugins."""
_NOT_SERVED = {
    "-wsl": "GPUs under WSL are not served",
    "-resource-manager": "fractions of a GPU are not served; the plugin has no such flag from release 0.34 on",
}
_REASONS = {f"-{name}": LOG_REASON for name in LOG_FLAGS} | {
    "-health-management": _HEALTH,
    "-debug": LOG_REASON,
    "-node-name": _ANNOTATION,
    "-kubeconfig": _ANNOTATION,
    "-master": _ANNOTATION,
    "NODE_NAME": _ANNOTATION,
}
_FPGA_FLAGS = frozenset({"mode", "node-name", "kubeconfig", "master"}) | LOG_FLAGS
_GPU_SWITCHES = LOG_SWITCHES | {"enable-monitoring", "health-management", "wsl", "resource-manager", "debug"}
_GPU_FLAGS = (
    frozenset({"prefix", "shared-dev-num", "allocation-policy", "monitoring-mode", "bypath", "allow-ids", "deny-ids"})
    | {"xpumd-endpoint", "temp-limit", "gpu-temp-limit", "memory-temp-limit"}
    | _GPU_SWITCHES
    | LOG_FLAGS
)
_OF_THE_PODS = frozenset({"image", "initImage", "nodeSelector", "tolerations"})
_SPLIT_BEFORE = (0, 36)
"""Releases before this one always have a monitoring resource for each driver, and no `-monitoring-mode`."""

_AS_IN_THE_OBJECT = frozenset(
    {"sharedDevNum", "enableMonitoring", "monitoringMode", "bypathMode", "allowIDs", "denyIDs"}
)
_OF_THE_CHART = frozenset({"name", "annotations", "nodeFeatureRule", "logLevel"}) | _OF_THE_PODS


def _fpga(invocation: Invocation, file: Mapping[str, Any] | None, *, with_ignored: bool) -> Imported:  # noqa: ARG001 - no file
    imported = Imported("intel-fpga")
    given = _given(invocation, LOG_SWITCHES, _FPGA_FLAGS)
    mode = given.take("-mode", "af")
    imported.put("vendors.intel_fpga", {"mode": mode} if mode != "af" else {})
    imported.note_left_out(given.left(), _REASONS, "it has no counterpart")
    return imported


def _gpu(invocation: Invocation, file: Mapping[str, Any] | None, *, with_ignored: bool) -> Imported:  # noqa: ARG001 - no file
    imported = Imported("intel-gpu")
    given = _given(invocation, _GPU_SWITCHES, _GPU_FLAGS)
    options: dict[str, Any] = {}
    if (shares := number(given.take("-shared-dev-num", "1"))) != 1:
        options["shared_devices"] = shares
    for flag, option, default in (("-allocation-policy", "allocation_policy", "none"), ("-bypath", "bypath", "single")):
        if (value := given.take(flag, default)) != default:
            options[option] = value
    if monitoring := _monitoring(invocation, given, imported):
        options["monitoring"] = monitoring
    for flag, option in (("-allow-ids", "allow_ids"), ("-deny-ids", "deny_ids")):
        if ids := [each.strip().lower() for each in given.take(flag, "").split(",") if each.strip()]:
            options[option] = ids
    imported.put("vendors.intel_gpu", options)
    if endpoint := given.take("-xpumd-endpoint"):
        imported.put("health", {"xpumd": str(endpoint).removeprefix("unix://")})
        imported.note(
            "what xpumd calls critical or failed is Unhealthy, a warning warns; in Kubernetes by the component xpumd"
        )
    if prefix := given.take("-prefix"):
        imported.config["host_root"] = prefix
    _note_limits(given, imported)
    for flag in (flag for flag in _NOT_SERVED if truth(given.take(flag, "false"), flag)):
        imported.note_difference(f"{flag} is left out: {_NOT_SERVED[flag]}")
    imported.note_left_out(given.left(), _REASONS, "it has no counterpart")
    return imported


def _note_limits(given: GivenSettings, imported: Imported) -> None:
    if limits := ", ".join(flag for flag in _LIMITS if given.take(flag)):
        imported.note_loss(f"{limits} left out: the limits of temperatures are the card's own")


def _monitoring(invocation: Invocation, given: GivenSettings, imported: Imported) -> str | None:
    """The kind of monitoring resources; without a flag, the release decides."""
    mode: str | None = given.take("-monitoring-mode")
    if not truth(given.take("-enable-monitoring", "false"), "-enable-monitoring"):
        if mode:
            imported.note("-monitoring-mode is left out: it has no effect without -enable-monitoring")
        return None
    if mode:
        return mode
    if invocation.version is None:
        imported.note(
            "monitoring is one resource, as from release 0.36 on; write `monitoring: split` if the plugin was older:"
            " it had a resource for each driver"
        )
        return "single"
    return "split" if invocation.version < _SPLIT_BEFORE else "single"


def _given(invocation: Invocation, switches: frozenset[str], known: frozenset[str]) -> GivenSettings:
    """Flags with their last value, as in Go, and NODE_NAME, the variable of a flag."""
    given = {f"-{name}": each[-1] for name, each in flags(invocation.flag_words, switches, known).items()}
    variables = {name: name for name in ("NODE_NAME",) if name in invocation.environment and "mode" in known}
    return GivenSettings(given | variables)


def started_by(flag_names: Mapping[str, str]) -> Callable[[Mapping[str, Any]], Iterator[Invocation | ConfigFile]]:
    """How Intel's operator starts a plugin for an object: with a flag for each key of its `spec`."""

    def start(item: Mapping[str, Any]) -> Iterator[Invocation | ConfigFile]:
        spec = item.get("spec") or {}
        words = [
            f"-{flag}={_of_a_flag(spec[key])}" for key, flag in flag_names.items() if spec.get(key) not in (None, "")
        ]
        others = sorted(spec.keys() - flag_names.keys() - _OF_THE_PODS)
        notes = tuple(f"spec.{key} is left out: it has no counterpart" for key in others)
        name = str((item.get("metadata") or {}).get("name", ""))
        yield Invocation(words, image=str(spec.get("image", "")), workload=name, notes=notes)

    return start


def _of_a_flag(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


_gpu_object = started_by(
    {
        "sharedDevNum": "shared-dev-num",
        "preferredAllocationPolicy": "allocation-policy",
        "enableMonitoring": "enable-monitoring",
        "monitoringMode": "monitoring-mode",
        "bypathMode": "bypath",
        "allowIDs": "allow-ids",
        "denyIDs": "deny-ids",
        "resourceManager": "resource-manager",
        "logLevel": "v",
    }
)


def _is_values(content: Mapping[str, Any]) -> bool:
    ours = _AS_IN_THE_OBJECT | {"allocationPolicy"}
    return bool(content.keys() & ours) and content.keys() <= ours | _OF_THE_CHART


def _started_by_chart(values: Mapping[str, Any]) -> Iterator[Invocation | ConfigFile]:
    """What the operator starts for the chart's object; the chart's default is monitoring on."""
    spec = {"enableMonitoring": True} | {key: values[key] for key in values if key in _AS_IN_THE_OBJECT | {"logLevel"}}
    if tag := section(values, "image").get("tag"):
        spec["image"] = f"intel/intel-gpu-plugin:{tag}"
    yield from _gpu_object({"spec": spec | {"preferredAllocationPolicy": values.get("allocationPolicy")}})


_OF_THE_POLICY = frozenset({"resourceRegistration", "resourceMonitoring", "dp"})


def _from_policy(item: Mapping[str, Any]) -> Iterator[Invocation | ConfigFile]:
    """What Intel's base operator starts for a ClusterPolicy: `dpArgs` in its internal/controller."""
    spec = section(item, "spec")
    plugin, words = section(spec, "dp"), []
    if spec.get("resourceMonitoring"):
        words += ["-enable-monitoring", "-xpumd-endpoint=/run/xpumd/intelxpuinfo.sock"]
    if mode := plugin.get("byPathMode"):
        words.append(f"-bypath={mode}")
    for key, flag in (("allowIDs", "allow-ids"), ("denyIDs", "deny-ids")):
        if ids := listed(f"dp.{key}", plugin.get(key)):
            words.append(f"-{flag}={','.join(map(str, ids))}")
    is_plugin = spec.get("resourceRegistration", "dp") == "dp"
    off = () if is_plugin else ("resourceRegistration is not dp: the operator starts no plugin, but a DRA driver",)
    others = ", ".join(key for key in spec if key not in _OF_THE_POLICY)
    notes = (f"{others} left out: settings of the operator, and of parts of it beside the plugin",) if others else ()
    yield Invocation(words, image=str(plugin.get("plugin", "")), notes=notes, differences=off)


FPGA = Plugin(
    "intel-fpga",
    lambda name: "intel" in name and "fpga" in name and "plugin" in name,
    _fpga,
    _FPGA_FLAGS,
    "intel-fpga",
    frozenset({"NODE_NAME"}),
    kinds={f"{INTELS_OPERATOR}/FpgaDevicePlugin": started_by({"mode": "mode", "logLevel": "v"})},
)
GPU = Plugin(
    "intel-gpu",
    lambda name: "intel" in name and "gpu" in name and "plugin" in name,
    _gpu,
    _GPU_FLAGS,
    "intel-gpu",
    kinds={f"{INTELS_OPERATOR}/GpuDevicePlugin": _gpu_object, "intel.com/ClusterPolicy": _from_policy},
    charts=(
        Chart("intel-device-plugins-gpu", _is_values, _started_by_chart),
        Chart(
            "gpu-base-operator-policy",
            lambda content: "resourceRegistration" in content,
            lambda values: _from_policy({"spec": values}),
        ),
    ),
)
