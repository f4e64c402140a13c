"""What sources see of the devices: what the policy takes in. No source knows what comes of it."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from devherd.health.clears import Evidence
from devherd.inventory import DeviceKey

if TYPE_CHECKING:
    from devherd._native import Finding

ANY_SOURCE = ""
"""In `Seen.not_looked`: no source has looked at the device."""


@dataclass(frozen=True, slots=True)
class Now:
    """A moment: wall-clock seconds to show, CLOCK_MONOTONIC seconds to reckon with, and the boot that they are of."""

    wall: float
    monotonic: float
    boot_id: str = ""

    def wall_at(self, monotonic: float) -> float:
        """The wall clock at another moment of this boot, as far as it is known."""
        return self.wall - (self.monotonic - monotonic)


class Event(NamedTuple):
    """Something that happened to a device."""

    key: DeviceKey
    finding: "Finding"
    monotonic: float
    times: int


class Statement(NamedTuple):
    """What ends events that were raised before it. Empty source, reason: of every source, every reason."""

    evidence: Evidence
    source: str = ""
    reason: str = ""


@dataclass(slots=True)
class Seen:
    """One look at all devices, and what was told in between."""

    findings: dict[DeviceKey, list["Finding"]] = field(default_factory=dict)
    """What stands, and events that their source counts: the same count again is the same event."""
    not_looked: dict[DeviceKey, dict[str, str]] = field(default_factory=dict)
    """By device and source: why the source has not looked."""
    failed: dict[str, str] = field(default_factory=dict)
    """By source: why it can look at no device."""
    reported: dict[str, float] = field(default_factory=dict)
    """By source that is a process of its own: wall-clock second at which it looked last."""
    let_go: set[str] = field(default_factory=set)
    """Those of them whose findings no longer count: they look at no device, and are not waited for."""
    events: list[Event] = field(default_factory=list)
    stated: list[tuple[DeviceKey, Statement, float]] = field(default_factory=list)
    last_at: dict[tuple[DeviceKey, "Finding"], float] = field(default_factory=dict)
    """When a counted event happened last, where its source knows that."""

    def add(self, key: DeviceKey, findings: Iterable["Finding"]) -> None:
        """Take in what a source sees on a device."""
        self.findings.setdefault(key, []).extend(findings)

    def happened(self, key: DeviceKey, finding: "Finding", monotonic: float, times: int = 1) -> None:
        """Take in an event of that CLOCK_MONOTONIC second. Its reason is no level."""
        self.events.append(Event(key, finding, monotonic, times))

    def evident(self, key: DeviceKey, evidence: Evidence, monotonic: float) -> None:
        """Take in what ends every event of the device, raised before that second, whose way back it is."""
        self.stated.append((key, Statement(evidence), monotonic))

    def cleared(self, key: DeviceKey, source: str, reason: str, monotonic: float) -> None:
        """Take in that a source takes its own event back, if that was raised before that second."""
        self.stated.append((key, Statement(Evidence.SOURCE_CLEARED, source, reason), monotonic))

    def cleared_by_operator(self, key: DeviceKey, reason: str, monotonic: float) -> None:
        """Take in that an operator takes back every event of a reason that was raised before that second."""
        self.stated.append((key, Statement(Evidence.OPERATOR, reason=reason), monotonic))

    def why_not_looked(self, key: DeviceKey, source: str) -> str:
        """Why a source has not looked at a device; empty when it has."""
        not_looked = self.not_looked.get(key, {})
        failed = "" if source in self.let_go else self.failed.get(source)
        return failed or not_looked.get(source) or not_looked.get(ANY_SOURCE) or ""
