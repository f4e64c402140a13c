"""What can be found wrong with a device: every source with its reasons, what each does to health, what takes it back.

The scan core registers its own sources (rust/src/health/sources); those of Python are added here, a line each.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

from devherd._native import health_sources
from devherd.health.clears import LEVEL, Clears, Evidence, Level, Never, Quiet, Until
from devherd.health.sources import AMD_EXPORTER, AMD_KFD, AMD_NIC_EXPORTER, XPUMD
from devherd.health.sources import EXTERNAL as EXTERNAL_PREFIX
from devherd.health.xids import TOLD, UNKNOWN, XID, Kind, kinds, told

if TYPE_CHECKING:
    from devherd._native import Finding
    from devherd._native import Meaning as NativeMeaning

Action = Literal["unhealthy", "warn", "ignore"]

GONE = "gone"
DRIVER_UNBOUND = "driver-unbound"
CDI_UNWRITABLE = "cdi-unwritable"
INVENTORY = "inventory"
CDI = "cdi"
NVML = "nvml"
CORDON = "cordon"
OPERATOR = "operator"
"""It gives no reason, and takes back those of others."""
CORDONED = "cordoned"
OF_OPERATORS = (CORDON, OPERATOR)
"""Sources without a process: an operator's commands write what they say."""
EXTERNAL = "external"
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
"""What devlink says of a part of a card whose driver stays with an error that it has seen once."""
MPS_DAEMON = "mps-daemon"
HANGING = "ERROR=1"
"""What i915 says of a GPU that hangs, until its reset has helped."""
ALL_AT_ONCE = "unhealthy, as all at once"
"""What AMD's exporter says of a GPU that it calls unhealthy together with all others."""

EVENT_SECONDS = 600.0
"""For how long an event that has no other end is held."""


@dataclass(frozen=True, slots=True)
class Meaning:
    """What a reason of a source means for a device."""

    action: Action
    """`unhealthy` takes the device out of the kubelet's hands, `warn` only says so, `ignore` counts it."""
    threshold: str
    """When it is raised, for people."""
    clears: Clears = LEVEL
    after: float = 0.0
    """For how many seconds it must stand before it counts."""
    hold: float = 0.0
    """For how many seconds after it was seen last it is held at least."""
    only_when_new: bool = False
    """What stands at the first look at a device is a warning: it may have worked with it since the boot."""
    is_damped: bool = True
    """Whether it is held for longer when it comes often: not what is seen to be there again, or wanted."""
    by_value: Mapping[str, "Meaning"] = field(default_factory=dict)
    """What certain values of the finding mean instead, each held by itself: the codes of an Xid."""
    rule: str = ""
    """Where the configuration says so: `health.rules[0]`."""


def _clears_of(meaning: "NativeMeaning") -> Clears:
    if meaning.clears == "until":
        return Until(frozenset(map(Evidence, meaning.evidence)))
    if meaning.clears == "never":
        return Never()
    return LEVEL if meaning.quiet_seconds is None else Quiet(meaning.quiet_seconds)


def _meaning_of(meaning: "NativeMeaning") -> Meaning:
    return Meaning(
        meaning.action,
        meaning.threshold,
        _clears_of(meaning),
        after=meaning.after,
        only_when_new=meaning.only_when_new,
        is_damped=meaning.is_damped,
    )


def _xids(threshold: str, of_codes: Mapping[int, Kind]) -> Meaning:
    by_value = {str(code): Meaning(kind.action, told(code), kind.clears) for code, kind in of_codes.items()}
    return Meaning(UNKNOWN.action, threshold, UNKNOWN.clears, by_value=by_value)


_NEW_START = frozenset({Evidence.REBOUND, Evidence.READDED, Evidence.REBOOTED, Evidence.OPERATOR})
_UNTIL_RECOVERED = Until(_NEW_START | {Evidence.RECOVERY_NONE})
_UNTIL_WELL = Until(_UNTIL_RECOVERED.evidence | {Evidence.RECOVERY_UNASKED})
_RECOVERY = Meaning("unhealthy", "the NVIDIA driver prints that the GPU needs recovery (Xid 154)", _UNTIL_WELL)

_OURS = {
    (KERNEL_LOG, XID): _xids("the NVIDIA driver prints an Xid", kinds(nvlink=TOLD)),
    (KERNEL_LOG, "recovery-action"): replace(_RECOVERY, by_value={"3": replace(_RECOVERY, action="warn")}),
    (KERNEL_LOG, "gpu-lost"): Meaning(
        "unhealthy", "the NVIDIA driver prints that the GPU has fallen off the bus", _UNTIL_RECOVERED
    ),
    (KERNEL_LOG, "wedged"): Meaning(
        "unhealthy", "the kernel prints that the GPU is wedged", Until(_NEW_START | {Evidence.SOURCE_CLEARED})
    ),
    (KERNEL_LOG, "fabric"): Meaning("warn", "an NVSwitch prints an SXid", Quiet(EVENT_SECONDS)),
    (KERNEL_LOG, "firmware"): Meaning(
        "unhealthy", "the driver prints that the NIC's firmware does not answer", Until(_NEW_START)
    ),
    (KERNEL_LOG, "kernel-log"): Meaning("warn", "a rule of the user's own matches", Quiet(EVENT_SECONDS)),
    (INVENTORY, GONE): Meaning("unhealthy", "no scan finds the device any more", is_damped=False),
    (CDI, CDI_UNWRITABLE): Meaning(
        "unhealthy", "the CDI spec that names the device cannot be written", is_damped=False
    ),
    (CORDON, CORDONED): Meaning("unhealthy", "an operator has cordoned the device", is_damped=False),
    (EXTERNAL, EXTERNAL): Meaning("unhealthy", "a program or file of the operator's says so"),
    (NVML, XID): _xids("NVML tells of an Xid", kinds()),
    (NVML, "recovery-action"): Meaning(
        "unhealthy",
        "NVML's GPU recovery action is not none",
        by_value={"3": Meaning("warn", "NVML's GPU recovery action is to drain traffic between GPUs")},
    ),
    (NVML, "gpu-lost"): Meaning("unhealthy", "NVML returns NVML_ERROR_GPU_IS_LOST, or says that it is unavailable"),
    (NVML, "needs-reset"): Meaning("unhealthy", "NVML returns NVML_ERROR_RESET_REQUIRED for the GPU"),
    (NVML, "insufficient-power"): Meaning("unhealthy", "NVML returns NVML_ERROR_INSUFFICIENT_POWER for the GPU"),
    (NVML, "interrupts"): Meaning("warn", "NVML returns NVML_ERROR_IRQ_ISSUE for the GPU"),
    (NVML, "firmware"): Meaning("warn", "NVML returns NVML_ERROR_CORRUPTED_INFOROM for the GPU"),
    (NVML, "row-remap-failed"): Meaning("unhealthy", "a row of the GPU's memory could not be remapped", Never()),
    (NVML, "row-remap-pending"): Meaning("warn", "rows of the GPU's memory wait for a reset to be remapped"),
    (NVML, "retired-pages"): Meaning("unhealthy", "63 or more pages of the GPU's memory are retired"),
    (NVML, "retirement-pending"): Meaning("warn", "pages of the GPU's memory wait for a reset to be retired"),
    (NVML, "ecc"): Meaning(
        "unhealthy",
        "uncorrected memory errors since the GPU's last start, and no GPU recovery action that could be read",
    ),
    (NVML, "ecc-contained"): Meaning("warn", "uncorrected memory errors since the GPU's last start"),
    (NVML, "ecc-storm"): Meaning(
        "warn",
        "NVML tells of a storm of corrected memory errors, or more than 60 were counted within a minute",
        Quiet(EVENT_SECONDS),
    ),
    (NVML, "memory-poison"): Meaning(
        "warn",
        "NVML tells of a poison error of the GPU's memory that is not fatal",
        Quiet(EVENT_SECONDS),
    ),
    (NVML, "sram-threshold"): Meaning(
        "warn", "the GPU's SRAM had more uncorrected errors than NVIDIA's threshold: ask for another card"
    ),
    (NVML, "repair-pending"): Meaning("warn", "a repair of the GPU's memory or clusters waits for a reset"),
    (NVML, "unrepairable-memory"): Meaning("unhealthy", "the GPU's memory has what nothing can repair"),
    (NVML, "nvlink-down"): Meaning("warn", "an NVLink of the GPU that was up in this boot is down"),
    (NVML, "nvlink-errors"): Meaning("warn", "an NVLink of the GPU could not be recovered", Quiet(EVENT_SECONDS)),
    (NVML, "fabric"): Meaning(
        "unhealthy",
        "the GPU is not registered with its NVLink fabric",
        after=120.0,
        by_value={
            "failed": Meaning("unhealthy", "the GPU's registration with its NVLink fabric failed"),
            "unhealthy": Meaning("unhealthy", "the GPU's NVLink fabric is unhealthy"),
            "limited capacity": Meaning("warn", "the GPU's NVLink fabric has limited capacity"),
        },
    ),
    (NVML, "temperature"): Meaning("warn", "the GPU's clocks are lowered because it is too hot", after=60.0),
    (NVML, "power-brake"): Meaning("warn", "the GPU's clocks are lowered from outside (power brake)", after=60.0),
    (AMD_EXPORTER, EXTERNAL): Meaning(
        "unhealthy",
        "AMD's metrics exporter calls the GPU unhealthy",
        by_value={ALL_AT_ONCE: Meaning("warn", "AMD's metrics exporter calls all GPUs unhealthy at once")},
    ),
    (AMD_NIC_EXPORTER, EXTERNAL): Meaning(
        "unhealthy",
        "AMD's metrics exporter calls a logical interface of the network card unhealthy: it is administratively down",
        by_value={ALL_AT_ONCE: Meaning("warn", "AMD's metrics exporter calls all interfaces unhealthy at once")},
    ),
    (AMD_KFD, GPU_RESET): Meaning(
        "unhealthy",
        "AMD's driver tells that it resets the GPU, and has not told that it is done",
        Until(_NEW_START | {Evidence.SOURCE_CLEARED}),
        is_damped=False,
    ),
    (XPUMD, EXTERNAL): Meaning(
        "unhealthy",
        "xpumd calls a domain of the GPU critical or failed",
        by_value={"warning": Meaning("warn", "xpumd warns of a domain of the GPU")},
    ),
    (PCI_RECOVERY, PCI_RECOVERY): Meaning(
        "unhealthy",
        "a uevent of the PCI function or of a port above it has ERROR_EVENT=FAILED_RECOVERY",
        Until(frozenset({Evidence.REBOUND, Evidence.READDED, Evidence.REBOOTED})),
        by_value={
            "BEGIN_RECOVERY": Meaning(  # its end may be lost: with a full socket, or while nobody listens
                "unhealthy",
                "a uevent of the PCI function or of a port above it has ERROR_EVENT=BEGIN_RECOVERY, and none its end",
                Quiet(EVENT_SECONDS),
            )
        },
    ),
    (WEDGED, WEDGED): Meaning(
        "unhealthy",
        "a uevent of the DRM device has WEDGED, with something that may help",
        Until(frozenset({Evidence.REBOUND, Evidence.READDED, Evidence.REBOOTED})),
        by_value={
            "none": Meaning("warn", "a uevent of the DRM device has WEDGED=none: a reset has helped", Quiet(600)),
            HANGING: Meaning(
                "unhealthy",
                "a uevent of the DRM device has ERROR=1, as i915 sends it when the GPU hangs, and none ERROR=0",
                Until(_NEW_START | {Evidence.SOURCE_CLEARED}),
                after=5.0,  # a reset that helps takes less
            ),
        },
    ),
    (DEVLINK, FIRMWARE): Meaning(
        "unhealthy",
        "a health reporter of the card's firmware (`fw_fatal`, `fw`) is in state error",
        by_value={LATCHED: Meaning("warn", "such a reporter has seen an error, and its driver knows no way back")},
    ),
    (DEVICE_DUMP, DEVICE_DUMP): Meaning(
        "warn",
        "the device's driver has dumped its state, as drivers do when a card hangs, and the dump is still there",
        is_damped=False,
    ),
    (MPS, MPS_DAEMON): Meaning(
        "unhealthy", "no MPS control daemon listens for the resource that shares the GPU", is_damped=False
    ),
}

_OF_THE_SCAN_CORE = {
    (source.name, meaning.reason): _meaning_of(meaning) for source in health_sources() for meaning in source.meanings
}


class _Meanings(dict[tuple[str, str], Meaning]):
    """What is said of source `external` holds for each `external-<name>` of the configuration."""

    def __missing__(self, key: tuple[str, str]) -> Meaning:
        source, reason = key
        if not source.startswith(EXTERNAL_PREFIX):
            raise KeyError(key)
        return self[EXTERNAL, reason]

    def __contains__(self, key: object) -> bool:
        try:
            return bool(self[key])  # type: ignore[index]
        except KeyError:
            return False


MEANINGS = MappingProxyType(_Meanings(_OF_THE_SCAN_CORE | _OURS))
"""By source and reason. A word that is not registered for its source is refused where it is read."""


def meaning_of(finding: "Finding") -> Meaning:
    """What a finding means, by value where its reason has meanings for values. Raises KeyError for an unknown word."""
    meaning = MEANINGS[finding.source, finding.reason]
    return meaning.by_value.get(finding.value, meaning)


def _is_event(meaning: Meaning) -> bool:
    return any(not isinstance(one.clears, Level) for one in (meaning, *meaning.by_value.values()))


FIRST_SIGHT_SOURCES = frozenset(source for (source, _), meaning in MEANINGS.items() if meaning.only_when_new)
"""Sources whose first look at a device is a base to compare with."""

EVENT_SOURCES = frozenset(source for (source, _), meaning in MEANINGS.items() if _is_event(meaning))
"""Sources that go on counting what is over."""
