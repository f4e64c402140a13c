"""What can be found wrong with a device: every source with its reasons, what each does to health, what takes it back.

The scan core registers its own sources (rust/src/health/sources); those of Python are added here, a line each.
"""

from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from devherd._native import health_sources

Action = Literal["unhealthy", "warn"]

GONE = "gone"
CDI_UNWRITABLE = "cdi-unwritable"
INVENTORY = "inventory"
CDI = "cdi"
NVML = "nvml"
CORDON = "cordon"
CORDONED = "cordoned"
EXTERNAL = "external"


@dataclass(frozen=True, slots=True)
class Meaning:
    """What a reason of a source means for a device."""

    action: Action
    """`unhealthy` takes the device out of the kubelet's hands, `warn` only says so."""
    threshold: str
    """When it is raised, for people."""
    quiet_seconds: float | None = None
    """For an event: it is taken back when none has followed for so long. None: it stands while it is seen."""
    only_when_new: bool = False
    """What stands at the first look at a device is a warning: it may have worked with it since the boot."""


_OURS = {
    (INVENTORY, GONE): Meaning("unhealthy", "no scan finds the device any more"),
    (CDI, CDI_UNWRITABLE): Meaning("unhealthy", "the CDI spec that names the device cannot be written"),
    (CORDON, CORDONED): Meaning("unhealthy", "an operator has cordoned the device"),
    (NVML, "gpu-lost"): Meaning("unhealthy", "NVML returns NVML_ERROR_GPU_IS_LOST for the GPU"),
}

MEANINGS = MappingProxyType(
    {
        (source.name, meaning.reason): Meaning(
            meaning.action, meaning.threshold, meaning.quiet_seconds, meaning.only_when_new
        )
        for source in health_sources()
        for meaning in source.meanings
    }
    | _OURS
)
"""By source and reason. A word that is not registered for its source is refused where it is read."""

FIRST_SIGHT_SOURCES = frozenset(source for (source, _), meaning in MEANINGS.items() if meaning.only_when_new)
"""Sources whose first look at a device is a base to compare with."""

EVENT_SOURCES = frozenset(source for (source, _), meaning in MEANINGS.items() if meaning.quiet_seconds is not None)
"""Sources that go on counting what is over."""
