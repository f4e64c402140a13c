"""How what is held against a device is taken back. The words are those of rust/src/health/source.rs."""

from dataclasses import dataclass
from enum import StrEnum


class Evidence(StrEnum):
    """What shows that the cause of an event is gone."""

    REBOUND = "rebound"
    """A driver has been bound to the device anew."""
    READDED = "readded"
    """The device was gone and is there again."""
    REBOOTED = "rebooted"
    """The host has booted since."""
    RECOVERY_NONE = "recovery-none"
    """The driver wanted something done to the device, and does no more."""
    RECOVERY_UNASKED = "recovery-unasked"
    """The driver, asked after it, has nothing done to the device."""
    SOURCE_CLEARED = "source-cleared"
    """The source takes its word back."""
    OPERATOR = "operator"
    """An operator says so: `devherd clear`."""


@dataclass(frozen=True, slots=True)
class Level:
    """It holds as long as it is seen."""


@dataclass(frozen=True, slots=True)
class Quiet:
    """An event that is over when none has followed for so long."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Until:
    """An event that is over when one of these was seen after it."""

    evidence: frozenset[Evidence]


@dataclass(frozen=True, slots=True)
class Never:
    """An event that only its source or an operator takes back."""


Clears = Level | Quiet | Until | Never
"""A level stands while it is seen; all others are events."""
LEVEL = Level()
