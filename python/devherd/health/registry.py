"""What can be found wrong with a device: every source with its reasons, what each does to health, what takes it back.

The scan core registers its own sources (rust/src/health/sources); those of Python are added here, a line each.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

from devherd._native import health_sources
from devherd.health.clears import LEVEL, Clears, Evidence, Level, Never, Quiet, Until
from devherd.health.sources import AMD_EXPORTER, XPUMD
from devherd.health.sources import EXTERNAL as EXTERNAL_PREFIX

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
MPS = "mps"
MPS_DAEMON = "mps-daemon"
ALL_AT_ONCE = "unhealthy, as all at once"
"""What AMD's exporter says of a GPU that it calls unhealthy together with all others."""


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


_OURS = {
    (INVENTORY, GONE): Meaning("unhealthy", "no scan finds the device any more", is_damped=False),
    (CDI, CDI_UNWRITABLE): Meaning(
        "unhealthy", "the CDI spec that names the device cannot be written", is_damped=False
    ),
    (CORDON, CORDONED): Meaning("unhealthy", "an operator has cordoned the device", is_damped=False),
    (EXTERNAL, EXTERNAL): Meaning("unhealthy", "a program or file of the operator's says so"),
    (AMD_EXPORTER, EXTERNAL): Meaning(
        "unhealthy",
        "AMD's metrics exporter calls the GPU unhealthy",
        by_value={ALL_AT_ONCE: Meaning("warn", "AMD's metrics exporter calls all GPUs unhealthy at once")},
    ),
    (XPUMD, EXTERNAL): Meaning(
        "unhealthy",
        "xpumd calls a domain of the GPU critical or failed",
        by_value={"warning": Meaning("warn", "xpumd warns of a domain of the GPU")},
    ),
    (NVML, "gpu-lost"): Meaning("unhealthy", "NVML returns NVML_ERROR_GPU_IS_LOST for the GPU"),
    (PCI_RECOVERY, PCI_RECOVERY): Meaning(
        "unhealthy",
        "a uevent of the PCI function or of a port above it has ERROR_EVENT=BEGIN_RECOVERY or FAILED_RECOVERY",
        Until(frozenset({Evidence.REBOUND, Evidence.READDED, Evidence.REBOOTED})),
    ),
    (WEDGED, WEDGED): Meaning(
        "unhealthy",
        "a uevent of the DRM device has WEDGED, with something that may help",
        Until(frozenset({Evidence.REBOUND, Evidence.READDED, Evidence.REBOOTED})),
        by_value={
            "none": Meaning("warn", "a uevent of the DRM device has WEDGED=none: a reset has helped", Quiet(600))
        },
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
