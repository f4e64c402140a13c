"""A finding that is held against a device, as long as something of it must be remembered."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from devherd.health.registry import MEANINGS, Action, Meaning
from devherd.health.seen import Now

if TYPE_CHECKING:
    from devherd._native import Finding

Place = tuple[str, str, str, str]
"""Source, reason, file and, where its meaning depends on it, value: each is held and taken back by itself."""


@dataclass(slots=True)
class Held:
    """A finding, since when, and how far it is on its way back."""

    finding: "Finding"
    """As it was seen last."""
    meaning: Meaning
    """What it means for this device."""
    first: float
    """Wall-clock second at which it was raised."""
    last: float
    """Wall-clock second at which it was seen last; of an event, at which it happened last."""
    since: float
    """CLOCK_MONOTONIC second at which it was raised."""
    last_monotonic: float
    boot_id: str
    count: int = 1
    """How often it was raised."""
    is_waiting: bool = False
    """It has not stood for long enough to count."""
    good_looks: int = 0
    """Since it was seen last."""
    seen_count: int = 0
    """Of an event: the source's own count when it was seen last. The same count again is the same event."""
    is_taken_back: bool = False
    """An event that is held for longer than its way back took."""
    is_over: bool = False
    """An event that is taken back; remembered for as long as its source goes on counting it."""
    was_there: bool = False
    """It stood at the first look at the device."""
    damped: float = 0.0
    """For how many seconds after it was seen last it is held because it comes and goes."""
    doubted_until: float = 0.0
    """CLOCK_MONOTONIC second until which its source alone does not make the device Unhealthy."""
    is_doubted: bool = False

    def renew(self, finding: "Finding", now: Now) -> None:
        """It is seen again."""
        self.was_there &= not has_more(finding.value, self.finding.value)
        self.finding = finding
        self.last, self.last_monotonic, self.boot_id = now.wall, now.monotonic, now.boot_id

    @property
    def place(self) -> Place:
        """What it is held under."""
        return place_of(self.finding)

    @property
    def action(self) -> Action:
        """What it does to the device once it counts."""
        return "warn" if self.condemns and self.is_doubted else self._undoubted

    @property
    def condemns(self) -> bool:
        """Whether it makes the device Unhealthy where its source is not doubted."""
        return self._undoubted == "unhealthy"

    @property
    def _undoubted(self) -> Action:
        is_softened = self.was_there and self.meaning.action == "unhealthy"
        return "warn" if is_softened else self.meaning.action

    @property
    def hold(self) -> float:
        """For how many seconds after it was seen last it is held at least."""
        return max(self.meaning.hold, self.damped)

    @property
    def counts(self) -> bool:
        """Whether it does that now."""
        return not (self.is_over or self.is_waiting)


def place_of(finding: "Finding") -> Place:
    """What a finding is held under."""
    has_meanings = bool(MEANINGS[finding.source, finding.reason].by_value)
    return finding.source, finding.reason, finding.file, finding.value if has_meanings else ""


def has_more(value: str, before: str) -> bool:
    """Whether a register has bits set that it had not; also where it can no longer be read as one."""
    bits, known = bits_of(value), bits_of(before)
    return bits is None or known is None or bool(bits & ~known)


def bits_of(value: str) -> int | None:
    """The bits of a register, decimal or with 0x; None for anything else."""
    try:
        return int(value, 0)
    except ValueError:
        return None
