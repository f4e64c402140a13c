"""What was stated about devices that ends events: an event that is read late, after its end, must not be raised."""

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

from devherd.health.clears import Clears, Evidence, Level, Until
from devherd.health.seen import Statement

if TYPE_CHECKING:
    from devherd._native import Finding
    from devherd.inventory import DeviceKey


class Stated:
    """The latest moment of each statement about each device, in this boot."""

    def __init__(self) -> None:
        self._latest: dict[DeviceKey, dict[Statement, float]] = {}
        self.version = 0
        """Raised by each change."""

    def note(self, key: "DeviceKey", statement: Statement, monotonic: float) -> bool:
        """Take in a statement of that CLOCK_MONOTONIC second; whether it is news."""
        latest = self._latest.setdefault(key, {})
        if statement in latest and latest[statement] >= monotonic:
            return False
        latest[statement] = monotonic
        self.version += 1
        return True

    def ends(self, key: "DeviceKey", finding: "Finding", clears: Clears, monotonic: float) -> bool:
        """Whether an event that happened at that second is over."""
        after = (statement for statement, moment in self._latest.get(key, {}).items() if moment > monotonic)
        return any(is_about(statement, finding, clears) for statement in after)

    def is_cleared(self, key: "DeviceKey", reason: str, after: float) -> bool:
        """Whether an operator has taken a reason back after that second."""
        return self._latest.get(key, {}).get(Statement(Evidence.OPERATOR, reason=reason), 0.0) > after

    def forget_all_but(self, known: Collection["DeviceKey"]) -> None:
        """Drop what was stated about devices that are no longer known."""
        for key in self._latest.keys() - known:
            del self._latest[key]
            self.version += 1

    def everything(self) -> Iterator[tuple["DeviceKey", Statement, float]]:
        """Sorted by device and statement."""
        for key in sorted(self._latest):
            for statement in sorted(self._latest[key]):
                yield key, statement, self._latest[key][statement]


def is_about(statement: Statement, finding: "Finding", clears: Clears) -> bool:
    """Whether a statement ends a finding that is taken back in this way; none ends what stands."""
    if isinstance(clears, Level):
        return False
    if statement.evidence is Evidence.SOURCE_CLEARED:
        return (statement.source, statement.reason) == (finding.source, finding.reason)
    if statement.reason:
        return statement.reason == finding.reason
    return isinstance(clears, Until) and statement.evidence in clears.evidence
