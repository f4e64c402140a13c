"""Signs of life in one anonymous shared page, mapped before the forks: beating is a store, watching is a load.

Slot n holds the monotonic time of the last beat of the child that was given slot n; before its first, that of its start
with a minus sign.
"""

import mmap
import struct
import time

_SLOT = struct.Struct("=d")


class Heartbeats:
    """The page. The supervisor makes it once and gives out slots; children inherit the mapping."""

    def __init__(self, slots: int = 4096) -> None:
        self._page = mmap.mmap(-1, slots * _SLOT.size)
        self._free = list(range(slots - 1, -1, -1))

    def claim(self) -> int:
        """A slot for a new child."""
        slot = self._free.pop()
        self.clear(slot)
        return slot

    def release(self, slot: int) -> None:
        """Take a slot back from a child that has gone for good."""
        self.clear(slot)
        self._free.append(slot)

    def clear(self, slot: int) -> None:
        """Forget the last beat: the child is being started."""
        _SLOT.pack_into(self._page, slot * _SLOT.size, -time.monotonic())

    def beat(self, slot: int) -> None:
        """Say that the child of this slot is alive now."""
        _SLOT.pack_into(self._page, slot * _SLOT.size, time.monotonic())

    def last_beat(self, slot: int) -> float:
        """Monotonic seconds of the last beat, 0.0 before the first."""
        return max(0.0, self._value(slot))

    def silence_seconds(self, slot: int) -> float:
        """Time since the last beat, or since the start of a child that has not beaten yet."""
        return time.monotonic() - abs(self._value(slot))

    def _value(self, slot: int) -> float:
        value: float = _SLOT.unpack_from(self._page, slot * _SLOT.size)[0]
        return value
