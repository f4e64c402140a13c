"""Intel's plugins for NPU, DSA, IAA, DLB, SGX and QAT, for which shipped device classes stand in: flags and objects.

The flags are those of `cmd/*_plugin` of intel-device-plugins-for-kubernetes v0.36.0 (76f8fcf6), the objects those of
its operator, `pkg/apis/deviceplugin/v1`.
"""

from collections.abc import Callable, Mapping
from typing import Any

from devherd.config.classes import shipped_content
from devherd.importers.imported import (
    LOG_FLAGS,
    LOG_REASON,
    LOG_SWITCHES,
    GivenSettings,
    Imported,
    flags,
    number,
    truth,
)
from devherd.importers.intel import INTELS_OPERATOR, started_by
from devherd.importers.plugin import Invocation, Plugin, Translate

_REASONS = {f"-{name}": LOG_REASON for name in LOG_FLAGS}
_PODS_PER_CORE = "PODS_PER_CORE"
_USUAL_LIMIT = 110
"""Of SGX, `defaultPodCount`."""
_IDS_OF_DRIVERS = {
    "dh895xccvf": ("0x0442", "0x0443"),
    "c4xxxvf": ("0x18a1",),
    "c3xxxvf": ("0x19e3",),
    "4xxxvf": ("0x4941", "0x4943", "0x4945"),
    "420xxvf": ("0x4947",),
    "6xxxvf": ("0x4949",),
    "c6xxvf": ("0x37c9",),
    "d15xxvf": ("0x6f55",),
}
"""`qatDeviceDriver` of the plugin, by driver."""
_WITH_SERVICES = frozenset({"4xxxvf", "420xxvf", "6xxxvf"})
"""Drivers of devices whose resource is named by their services; that of all others is `generic`."""
_USUAL_DRIVERS = "4xxxvf,420xxvf"


def _given(invocation: Invocation, known: frozenset[str], switches: frozenset[str] = frozenset()) -> GivenSettings:
    found = flags(invocation.flag_words, LOG_SWITCHES | switches, known | LOG_FLAGS)
    return GivenSettings({f"-{name}": values[-1] for name, values in found.items()})


def _enable(imported: Imported, *names: str) -> None:
    imported.config.setdefault("classes", {}).setdefault("enable", []).extend(names)


def _define(imported: Imported, name: str, called: str = "", **changed: Any) -> None:
    """A class like the shipped one, with other keys; `called`: its name, that of the shipped one if empty."""
    content = shipped_content(name)
    for word in ("title", "source", "confirmed"):
        content.pop(word)
    for key, value in changed.items():
        content[key] = content[key] | value if isinstance(value, Mapping) else value
    imported.config.setdefault("classes", {}).setdefault("define", {})[called or name] = content


def _end(imported: Imported, given: GivenSettings) -> Imported:
    imported.note_left_out(given.left(), _REASONS, "it has no counterpart")
    return imported


def _npu(invocation: Invocation, file: Mapping[str, Any] | None, *, with_ignored: bool) -> Imported:  # noqa: ARG001 - no file
    imported, given = Imported("intel-npu"), _given(invocation, _NPU_FLAGS)
    if (shares := number(given.take("-shared-dev-num", "1"))) != 1:
        _define(imported, "intel-npu", plugin={"shares": shares})
    else:
        _enable(imported, "intel-npu")
    if prefix := given.take("-prefix"):
        imported.config["host_root"] = prefix
    return _end(imported, given)


def _of_queues(name: str, known: frozenset[str]) -> Translate:
    """The translation of the plugin for DSA or IAA: only shared queues are shared, so each kind is a class."""

    def translate(invocation: Invocation, file: Mapping[str, Any] | None, *, with_ignored: bool) -> Imported:  # noqa: ARG001 - no file
        imported, given = Imported(name), _given(invocation, known)
        if given.take("-driver", "idxd") != "idxd":
            imported.note_difference("-driver is left out: functions under vfio-pci are not served by the class")
        shares = number(given.take("-shared-dev-num", "1"))
        if shares == 1:
            _enable(imported, name)
            return _end(imported, given)
        above = shipped_content(name)["find"]["above"]
        for mode, plugin in (("shared", {"shares": shares}), ("dedicated", {})):
            find = {"above": above | {"attr": above["attr"] | {"mode": mode}}}
            _define(imported, name, f"{name}-{mode}", find=find, plugin=plugin)
        return _end(imported, given)

    return translate


def _dlb(invocation: Invocation, file: Mapping[str, Any] | None, *, with_ignored: bool) -> Imported:  # noqa: ARG001 - no file
    imported = Imported("intel-dlb")
    _enable(imported, "intel-dlb", "intel-dlb-vf")
    return _end(imported, _given(invocation, frozenset()))


def _sgx(invocation: Invocation, file: Mapping[str, Any] | None, *, with_ignored: bool) -> Imported:  # noqa: ARG001 - no file
    imported, given = Imported("intel-sgx"), _given(invocation, _SGX_FLAGS, frozenset({"dcap-infra-resources"}))
    for flag, name in (("-enclave-limit", "intel-sgx"), ("-provision-limit", "intel-sgx-provision")):
        limit = number(given.take(flag, str(_USUAL_LIMIT)))
        if limit == _USUAL_LIMIT:
            _enable(imported, name)
        elif limit != 0:
            _define(imported, name, plugin={"shares": limit})
        else:
            imported.note(f"{flag} is 0: {name} is not served")
    if truth(given.take("-dcap-infra-resources", "false"), "-dcap-infra-resources"):
        imported.note_difference("-dcap-infra-resources is left out: its two resources are not served")
    if per_core := invocation.variables().get(_PODS_PER_CORE):
        imported.note_loss(
            f"{_PODS_PER_CORE}={per_core} is left out: write its product with the node's processors as"
            " `plugin.shares` of a class of your own"
        )
    return _end(imported, given)


def _qat(invocation: Invocation, file: Mapping[str, Any] | None, *, with_ignored: bool) -> Imported:  # noqa: ARG001 - no file
    imported, given = Imported("intel-qat"), _given(invocation, _QAT_FLAGS)
    if given.take("-dpdk-driver", "vfio-pci") != "vfio-pci":
        imported.note_difference("-dpdk-driver is left out: the class serves functions under vfio-pci alone")
    drivers = [name.strip() for name in str(given.take("-kernel-vf-drivers", _USUAL_DRIVERS)).split(",")]
    for unknown in sorted(set(drivers) - _IDS_OF_DRIVERS.keys()):
        imported.note_difference(f"-kernel-vf-drivers: {unknown} is left out: the plugin does not know it either")
    _of_drivers(imported, [name for name in drivers if name in _IDS_OF_DRIVERS])
    policy = given.take("-allocation-policy", "")
    if preferred := {"packed": "packed", "balanced": "distributed"}.get(policy):
        classes = ["intel-qat", "intel-qat-generic"]
        rule = {"match": {"vendor": "classes", "class": classes}, "preferred": preferred, "optional": True}
        imported.config["resources"] = [rule]
    elif policy:
        imported.note_loss(f"-allocation-policy {policy} is left out: it is neither packed nor balanced")
    if most := given.take("-max-num-devices"):
        imported.note_loss(f"-max-num-devices {most} is left out: all functions are served")
    imported.note_difference(
        "containers get no variables QAT0, QAT1, …, and virtual functions must be under vfio-pci already: the plugin"
        " binds them itself"
    )
    return _end(imported, given)


def _of_drivers(imported: Imported, drivers: list[str]) -> None:
    named = [name for name in drivers if name in _WITH_SERVICES]
    if ",".join(named) == _USUAL_DRIVERS:
        _enable(imported, "intel-qat")
    elif named:
        _define(imported, "intel-qat", find={"device": [one for name in named for one in _IDS_OF_DRIVERS[name]]})
    if others := [one for name in drivers if name not in _WITH_SERVICES for one in _IDS_OF_DRIVERS[name]]:
        content = shipped_content("intel-qat")
        generic = {
            "find": {"bus": "pci", "driver": "vfio-pci", "vendor": "0x8086", "device": others},
            "facts": {"vfio_group": content["facts"]["vfio_group"]},
            "nodes": content["nodes"],
            "plugin": content["plugin"] | {"resource": "qat.intel.com/generic"},
        }
        imported.config.setdefault("classes", {}).setdefault("define", {})["intel-qat-generic"] = generic


_SHARED = frozenset({"shared-dev-num"})
_NPU_FLAGS = _SHARED | {"prefix"}
_DSA_FLAGS = _SHARED | {"driver"}
_SGX_FLAGS = frozenset({"enclave-limit", "provision-limit", "dcap-infra-resources"})
_QAT_FLAGS = frozenset({"dpdk-driver", "kernel-vf-drivers", "allocation-policy", "max-num-devices"})
_LEVEL = {"logLevel": "v"}
_SHARES = {"sharedDevNum": "shared-dev-num"} | _LEVEL


def _is_called(device: str) -> Callable[[str], bool]:
    return lambda name: "intel" in name and device in name and "plugin" in name


def _plugin(
    device: str, translate: Translate, known: frozenset[str], keys: Mapping[str, str], variables: frozenset[str]
) -> Plugin:
    return Plugin(
        f"intel-{device}",
        _is_called(device),
        translate,
        known | LOG_FLAGS,
        variables=variables,
        kinds={f"{INTELS_OPERATOR}/{device.capitalize()}DevicePlugin": started_by(keys)},
    )


OTHERS_OF_INTEL = (
    _plugin("npu", _npu, _NPU_FLAGS, _SHARES, frozenset()),
    _plugin("dsa", _of_queues("intel-dsa", _DSA_FLAGS), _DSA_FLAGS, _SHARES | {"driver": "driver"}, frozenset()),
    _plugin("iaa", _of_queues("intel-iaa", _SHARED), _SHARED, _SHARES, frozenset()),
    _plugin("dlb", _dlb, frozenset(), _LEVEL, frozenset()),
    _plugin(
        "sgx",
        _sgx,
        _SGX_FLAGS,
        _LEVEL
        | {
            "enclaveLimit": "enclave-limit",
            "provisionLimit": "provision-limit",
            "dcapInfraResources": "dcap-infra-resources",
        },
        frozenset({_PODS_PER_CORE}),
    ),
    _plugin(
        "qat",
        _qat,
        _QAT_FLAGS,
        _LEVEL
        | {
            "dpdkDriver": "dpdk-driver",
            "kernelVfDrivers": "kernel-vf-drivers",
            "preferredAllocationPolicy": "allocation-policy",
            "maxNumDevices": "max-num-devices",
        },
        frozenset(),
    ),
)
"""By their flags alone some are not told from that for GPUs: these need a name."""
