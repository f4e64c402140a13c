"""What comes and goes: the third time within an hour it is held for ten minutes, each further time for twice as long.

A device that is well for a moment only costs one pod after the other.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from devherd.health.held import Place
from devherd.inventory import DeviceKey

FLAPPING = "flapping"
"""The warning beside the reason."""

WINDOW_SECONDS = 3600.0
RAISES = 3
FIRST_HOLD_SECONDS = 600.0
LONGEST_HOLD_SECONDS = 7200.0


@dataclass(frozen=True, slots=True)
class Record:
    """When something was raised, and for how long the last time made it held."""

    raised: tuple[float, ...] = ()
    """CLOCK_MONOTONIC seconds within the window, in their order."""
    hold: float = 0.0

    def with_raise(self, monotonic: float) -> "Record":
        """The record with another one."""
        recent = (*(moment for moment in self.raised if monotonic - moment < WINDOW_SECONDS), monotonic)
        if self.hold and not self.is_calm(monotonic):
            return Record(recent, min(2 * self.hold, LONGEST_HOLD_SECONDS))
        return Record(recent, FIRST_HOLD_SECONDS if len(recent) >= RAISES else 0.0)

    def is_calm(self, monotonic: float) -> bool:
        """Whether it tells nothing any more: an hour has passed since the last one, and since what it was held for."""
        return not self.raised or monotonic - self.raised[-1] >= WINDOW_SECONDS + self.hold


class Flapping:
    """What was raised against each device lately."""

    def __init__(self) -> None:
        self._records: dict[tuple[DeviceKey, Place], Record] = {}

    def raised(self, key: DeviceKey, place: Place, monotonic: float) -> float:
        """Take in that something was raised; for how many seconds that makes it held after it was seen last."""
        record = self._records.get((key, place), Record()).with_raise(monotonic)
        self._records[key, place] = record
        return record.hold

    def forget(self, key: DeviceKey, place: Place) -> None:
        """Begin anew: an operator says that it is well."""
        self._records.pop((key, place), None)

    def forget_calm(self, monotonic: float) -> None:
        """Drop what tells nothing any more."""
        self._records = {where: record for where, record in self._records.items() if not record.is_calm(monotonic)}

    def restore(self, key: DeviceKey, place: Place, record: Record) -> None:
        """Go on with what an earlier scanner knew, in this boot."""
        self._records[key, place] = record

    def everything(self) -> Iterator[tuple[DeviceKey, Place, Record]]:
        """Sorted by device and place."""
        for key, place in sorted(self._records):
            yield key, place, self._records[key, place]
