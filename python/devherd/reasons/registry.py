"""The meaning of every reason of every source: its effect on health, and how it ends. Declared in Rust.

The scan core's own sources: rust/src/health/sources; all others: rust/src/health/reasons.rs. The meanings of single
Xids follow from NVIDIA's catalogue, xids.py.
"""

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

from devherd._native import Evidence, health_sources
from devherd.reasons import xids
from devherd.reasons.xids import Advice

if TYPE_CHECKING:
    from devherd._native import Finding
    from devherd._native import Meaning as NativeMeaning

EXTERNAL_PREFIX = "external-"
"""Prefix of the names of sources that are an operator's programs and files."""
AMD_EXPORTER = "amd-exporter"
AMD_NIC_EXPORTER = "amd-nic-exporter"
XPUMD = "xpumd"
AMD_KFD = "amd-kfd"
MONITORS: Mapping[str, str] = MappingProxyType(
    {
        AMD_EXPORTER: "var/lib/amd-metrics-exporter/amdgpu_device_metrics_exporter_grpc.socket",
        AMD_NIC_EXPORTER: "var/lib/amd-metrics-exporter/amdnic_device_metrics_exporter_grpc.socket",
        XPUMD: "run/xpumd/intelxpuinfo.sock",
    }
)
"""Vendors' monitors of their devices, each with its default socket on the host; they are asked over gRPC."""
_FIRMWARE_TEXTS = frozenset({"amd-bad-pages", "xe-health", "xe-health-warning"})
"""Sources that pass on a text which the card's firmware has written."""


def is_hearsay(source: str) -> bool:
    """True for reports of other programs and of firmware: they may be wrong about all devices at once."""
    return source in MONITORS or source in _FIRMWARE_TEXTS or source.startswith(EXTERNAL_PREFIX)


def uncordon(resource_name: str = "", device_id: str = "") -> str:
    """The command that ends a cordon, of this device if it is given."""
    return " ".join(filter(None, ("devherd uncordon", resource_name, device_id)))


def clear(resource_name: str = "", device_id: str = "", reason: str = "") -> str:
    """The command that ends a finding, of this device and reason if they are given."""
    return " ".join(filter(None, ("devherd clear", resource_name, *((device_id, reason) if device_id else ()))))


def temporary_directory(findings: Path) -> Path:
    """The directory into which an operator's program may write, below the directory of its findings."""
    return findings / "tmp"


GONE = "gone"
RENAMED = "renamed"
DRIVER_UNBOUND = "driver-unbound"
CDI_UNWRITABLE = "cdi-unwritable"
INVENTORY = "inventory"
CDI = "cdi"
NVML = "nvml"
LEDGER = "ledger"
CORDON = "cordon"
OPERATOR = "operator"
"""This source has no reasons; it ends findings of other sources."""
CORDONED = "cordoned"
OF_OPERATORS = (CORDON, OPERATOR)
"""Sources without a process: an operator's commands write their findings."""
EXTERNAL = "external"
CLASS_HEALTH = "class"
"""The source of what `health` of a device class names, and the reason whose meaning all of these have."""
PCI_AER = "pci-aer"
PCI_AER_FATAL = "pci-aer-fatal"
PCI_RECOVERY = "pci-recovery"
WEDGED = "wedged"
KERNEL_LOG = "kernel-log"
MPS = "mps"
DEVLINK = "devlink"
DEVICE_DUMP = "device-dump"
FIRMWARE = "firmware"
GPU_RESET = "gpu-reset"
LATCHED = "error, with no way to recover"
"""The value of devlink's finding for a health reporter in state error that has no way to recover."""
MPS_DAEMON = "mps-daemon"
HANGING = "ERROR=1"
"""The value for a GPU under i915 that hangs, until a reset succeeds."""
ALL_AT_ONCE = "unhealthy, as all at once"
"""The value for a GPU if AMD's exporter reports all GPUs as unhealthy at once."""

Action = Literal["unhealthy", "warn", "ignore"]
"""`unhealthy`: the kubelet does not allocate the device; `warn`: it is shown; `ignore`: it is counted."""


@dataclass(frozen=True, slots=True)
class Meaning:
    """The meaning of a reason of a source for a device; rust/src/health/source.rs documents the words."""

    action: Action
    threshold: str
    """When it is raised, as text."""
    clears: Literal["level", "quiet", "until", "never"] = "level"
    """A level lasts while it is seen; all others are events."""
    quiet_seconds: float | None = None
    """For `quiet`: it ends after this number of seconds without another event."""
    evidence: frozenset[str] = frozenset()
    """For `until`: each of these ends it."""
    after: float = 0.0
    """Seconds for which it must last before it counts."""
    hold: float = 0.0
    """Minimum hold in seconds after it was last seen: `health.rules`."""
    only_when_new: bool = False
    """A finding at the first look at a device is a warning: the device may have worked with it since the boot."""
    is_relative: bool = False
    """It compares with the best value of this boot; an operator may accept the present value."""
    is_damped: bool = True
    """Whether it is held longer if it recurs often; false if presence ends it, or an operator raises it."""
    do: str = ""
    """What a person does about it, in the imperative, with places for what is known: `to_do`."""
    do_by_value: Mapping[str, str] = field(default_factory=dict)
    """The same for certain values of the finding."""
    by_value: Mapping[str, "Meaning"] = field(default_factory=dict)
    """Other meanings of certain values of the finding, each held separately: the codes of an Xid."""
    rule: str = ""
    """The rule of the configuration that changes it: `health.rules[0]`."""

    @property
    def is_event(self) -> bool:
        """True if it happens at a moment; False if it lasts."""
        return self.clears != "level"


def meaning_from(native: "NativeMeaning") -> Meaning:
    """The meaning for a declaration in Rust."""
    return Meaning(
        native.action,
        native.threshold,
        native.clears,
        quiet_seconds=native.quiet_seconds,
        evidence=frozenset(native.evidence),
        after=native.after,
        only_when_new=native.only_when_new,
        is_relative=native.is_relative,
        is_damped=native.is_damped,
        do=native.to_do,
        do_by_value=dict(native.to_do_by_value),
        by_value={value: meaning_from(one) for value, one in native.by_value},
    )


_NEW_START = frozenset({Evidence.REBOUND, Evidence.READDED, Evidence.REBOOTED, Evidence.OPERATOR})
_RECOVERED = _NEW_START | {Evidence.RECOVERY_NONE, Evidence.RESTARTED}
_XID_SECONDS = 3600.0

OF_ADVICE: Mapping[Advice, Meaning] = MappingProxyType(
    {
        "driver-decides": Meaning("unhealthy", "", "until", evidence=_RECOVERED | {Evidence.RECOVERY_UNASKED}),
        "reset": Meaning("unhealthy", "", "until", evidence=_RECOVERED),
        "broken": Meaning("unhealthy", "", "until", evidence=_NEW_START),
        "warn": Meaning("warn", "", "quiet", quiet_seconds=_XID_SECONDS),
        "count": Meaning("ignore", "", "quiet", quiet_seconds=_XID_SECONDS),
    }
)
"""The meaning of an Xid by the advice of NVIDIA's catalogue."""


def xid_meanings(of_nvlink: Advice = "warn") -> dict[str, Meaning]:
    """The meaning of each Xid, by code as text. `of_nvlink`: for NVLink errors, whose severity only the log has."""
    return {
        str(code): _of_xid(code, of_nvlink if code in xids.OF_NVLINK else xid.advice)
        for code, xid in xids.CATALOGUE.items()
    }


@functools.cache
def _of_xid(code: int, advice: Advice) -> Meaning:
    """One for all sources of Xids: there are 116."""
    meaning = OF_ADVICE[advice]
    disproof = {Evidence.STARTED} if code == xids.GPU_INIT_ERROR else set()
    return replace(
        meaning, threshold=xids.described(code), do=xids.CATALOGUE[code].do, evidence=meaning.evidence | disproof
    )


def _meanings() -> dict[tuple[str, str], Meaning]:
    all_meanings = {
        (source.name, native.reason): meaning_from(native) for source in health_sources() for native in source.meanings
    }
    for source, by_code in ((KERNEL_LOG, xid_meanings(of_nvlink="driver-decides")), (NVML, xid_meanings())):
        all_meanings[source, xids.XID] = replace(all_meanings[source, xids.XID], by_value=by_code)
    return all_meanings


class _Meanings(dict[tuple[str, str], Meaning]):
    """A mapping in which every source `external-<name>` has the meanings of source `external`; every reason of source
    `class`, the word of a device class, has that of reason `class`.
    """  # noqa: D205 - one sentence

    def __missing__(self, key: tuple[str, str]) -> Meaning:
        source, reason = key
        if source == CLASS_HEALTH and reason != CLASS_HEALTH:
            return self[CLASS_HEALTH, CLASS_HEALTH]
        if not source.startswith(EXTERNAL_PREFIX):
            raise KeyError(key)
        return self[EXTERNAL, reason]

    def __contains__(self, key: object) -> bool:
        try:
            return bool(self[key])  # type: ignore[index]
        except KeyError:
            return False


MEANINGS = MappingProxyType(_Meanings(_meanings()))
"""By source and reason. A reason that is not registered for its source is refused when it is read."""


def meaning_of(finding: "Finding", driver: str = "") -> Meaning:
    """The meaning of a finding, by its value if there is one for it. Raises KeyError for an unknown reason.

    `driver`: the version of the device's driver, if known. The recovery action of an old driver ignores newer Xids:
    such an Xid does not end when this driver reports that no recovery is needed.
    """
    meaning = MEANINGS[finding.source, finding.reason]
    meaning = meaning.by_value.get(finding.value, meaning)
    if finding.reason == xids.XID and xids.is_unknown_to(finding.value, driver):
        return replace(meaning, evidence=meaning.evidence - {Evidence.RECOVERY_UNASKED})
    return meaning


FACTS = ("pci_address", "slot", "pci_driver", "driver")
"""The facts of a device that `to_do` uses."""
RESOURCE = "resource"
"""The name under which a device is offered, beside its facts."""
_ALTERNATIVES = re.compile(r"\[([^\]]*)\]|\{device\}")
_PLACE = re.compile(r"\{(\w+)\}")


def to_do(finding: "Finding", meaning: Meaning, device_id: str, facts: Mapping[str, str]) -> str:
    """What a person does about a finding against a device, in one line.

    `facts`: FACTS of the device, and RESOURCE. What is not known is left out with the words that need it: `[ {place}]`.
    """
    address = "" if "," in (address := facts.get("pci_address", "")) else address
    slot = facts.get("slot", "")
    known = {
        "pci_address": address,
        "slot": slot,
        "place": f"in slot {slot} ({address})" if slot and address else f"at {address}" if address else "",
        "driver": facts.get("pci_driver", "") or facts.get("driver", ""),
        "resource": facts.get(RESOURCE, ""),
        "device": device_id,
        "node": finding.file if finding.file.startswith("/dev/") else "",
        "file": finding.file,
        "value": finding.value,
        "detail": finding.detail,
        "program": finding.source.removeprefix(EXTERNAL_PREFIX),
    }

    def told(part: "re.Match[str]") -> str:
        alternatives = (part[1] if part[1] is not None else part[0]).split("|")
        tellable = (one for one in alternatives if all(known[name] for name in _PLACE.findall(one)))
        return _PLACE.sub(lambda place: known[place[1]], next(tellable, ""))

    text = meaning.do_by_value.get(finding.value, meaning.do)
    return " ".join(_ALTERNATIVES.sub(told, text).split())


STATES: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "cdi-unwritable": ("its CDI spec not written", "can write it"),
        "class": ("the fault shown", "find it well"),
        "device-dump": ("a dump there", "find none"),
        "driver-unbound": ("without a driver", "find one"),
        "ecc": ("memory errors counted", "find none"),
        "ecc-contained": ("memory errors counted", "find none"),
        "external": ("reported", "find no report of it"),
        "fabric": ("not well in its fabric", "find it well"),
        "firmware": ("reported", "find its firmware well"),
        "fme-error": ("an error read", "read none"),
        "gone": ("not found", "find it"),
        "gpu-lost": ("no answer", "get an answer"),
        "held-elsewhere": ("held by another", "find only its own pod"),
        "insufficient-power": ("too little power", "find enough"),
        "interrupts": ("interrupts failing", "find them working"),
        "left-over-process": ("a process left over", "find none"),
        "link-degraded": ("below its best link", "find its best link"),
        "mps-daemon": ("no daemon", "find one"),
        "needs-reset": ("a reset needed", "find it reset"),
        "node-missing": ("not there", "find it there"),
        "not-examined": ("refused", "can read it"),
        "nvlink-down": ("down", "find it up"),
        "off-bus": ("no answer", "get an answer"),
        "port-down": ("no port active", "find one active"),
        "port-error": ("an error read", "read none"),
        "power-brake": ("clocks lowered", "find them restored"),
        "power-state": ("in state error", "find another state"),
        "power-throttled": ("clocks lowered", "find them restored"),
        "probe-timeout": ("no answer", "get an answer"),
        "recovery-action": ("asked for", "find nothing asked for"),
        "renamed": ("under another name", "find its old name"),
        "repair-pending": ("waiting for a reset", "find it repaired"),
        "retired-pages": ("too many retired", "find fewer"),
        "retirement-pending": ("waiting for a reset", "find them retired"),
        "row-remap-pending": ("waiting for a reset", "find them remapped"),
        "shell-lost": ("without its function", "find the function"),
        "shell-unreadable": ("unreadable", "can read it"),
        "sram-threshold": ("beyond the threshold", "find it below"),
        "temperature": ("too hot", "find it cooler"),
        "unprogrammed": ("not programmed", "find it programmed"),
        "unrepairable-memory": ("beyond repair", "find it repaired"),
    }
)
"""By reason of a condition: what is seen while it lasts, and what a good poll does."""
STATE = ("seen", "find it no more")
"""The same of another condition."""

_NO_READS = frozenset({INVENTORY, CDI, CORDON, EXTERNAL, "probe", "scan"})
"""Sources for findings of the scan, the operator and configured programs: they read nothing themselves."""

CAN_BE_OFF = tuple(sorted({source for source, _ in MEANINGS} - _NO_READS))
"""The sources that `health.sources` can switch off."""


def _is_event(meaning: Meaning) -> bool:
    return any(one.is_event for one in (meaning, *meaning.by_value.values()))


FIRST_SIGHT_SOURCES = frozenset(source for (source, _), meaning in MEANINGS.items() if meaning.only_when_new)
"""Sources whose first look at a device is the baseline of later looks."""

EVENT_SOURCES = frozenset(source for (source, _), meaning in MEANINGS.items() if _is_event(meaning))
"""Sources with at least one reason that is an event."""
