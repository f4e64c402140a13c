"""What can be found wrong with a device: every source with its reasons, what each does to health, what takes it back.

The scan core registers its own sources (rust/src/health/sources); those of Python are added here, a line each.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

from devherd._native import health_sources
from devherd.health.clears import LEVEL, Clears, Evidence, Level, Never, Quiet, Until

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
    """Whether it is held for longer when it comes often: coming and going is a fault of its own."""
    by_value: Mapping[str, "Meaning"] = field(default_factory=dict)
    """What certain values of the finding mean instead, each held by itself: the codes of an Xid."""


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
    (INVENTORY, GONE): Meaning("unhealthy", "no scan finds the device any more"),
    (CDI, CDI_UNWRITABLE): Meaning("unhealthy", "the CDI spec that names the device cannot be written"),
    (NVML, "gpu-lost"): Meaning("unhealthy", "NVML returns NVML_ERROR_GPU_IS_LOST for the GPU"),
}

MEANINGS = MappingProxyType(
    {(source.name, meaning.reason): _meaning_of(meaning) for source in health_sources() for meaning in source.meanings}
    | _OURS
)
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
