"""Signs of life in anonymous shared pages, mapped before the forks: beating is a store, watching is a load.

Slot n holds the monotonic time of the last beat of the child that was given slot n; before its first, that of its start
with a minus sign. Beside it is whether the child waits for the kubelet.
"""

import mmap
import struct
import time

_SLOT = struct.Struct("=dd")
_BEAT, _WAITS = struct.Struct("=d"), struct.Struct("=?")


MOST_CHILDREN = 1 << 16
"""Far more than a node has processes for. What is mapped and not written takes no memory."""


class Heartbeats:
    """The pages. The supervisor makes them once and gives out slots; children inherit the mapping."""

    def __init__(self, slots: int = MOST_CHILDREN) -> None:
        self._page = mmap.mmap(-1, slots * _SLOT.size)
        self._slots = slots
        self._used = 0
        self._released: list[int] = []

    @property
    def free(self) -> int:
        """How many more children there can be."""
        return self._slots - self._used + len(self._released)

    def claim(self) -> int:
        """A slot for a new child; only while there are `free` ones."""
        if self._released:
            slot = self._released.pop()
        else:
            assert self._used < self._slots
            slot = self._used
            self._used += 1
        self.clear(slot)
        return slot

    def release(self, slot: int) -> None:
        """Take a slot back from a child that has gone for good."""
        self.clear(slot)
        self._released.append(slot)

    def clear(self, slot: int) -> None:
        """Forget the last beat: the child is being started."""
        _SLOT.pack_into(self._page, slot * _SLOT.size, -time.monotonic(), 0.0)

    def beat(self, slot: int) -> None:
        """Say that the child of this slot is alive now."""
        _BEAT.pack_into(self._page, slot * _SLOT.size, time.monotonic())

    def waits_for_the_kubelet(self, slot: int, waits: bool) -> None:
        """Say whether the child of this slot can do nothing before the kubelet is there."""
        _WAITS.pack_into(self._page, slot * _SLOT.size + _BEAT.size, waits)

    def awaits_the_kubelet(self, slot: int) -> bool:
        """Whether it has said so."""
        waits: bool = _WAITS.unpack_from(self._page, slot * _SLOT.size + _BEAT.size)[0]
        return waits

    def last_beat(self, slot: int) -> float:
        """Monotonic seconds of the last beat, 0.0 before the first."""
        return max(0.0, self._value(slot))

    def silence_seconds(self, slot: int) -> float:
        """Time since the last beat, or since the start of a child that has not beaten yet."""
        return time.monotonic() - abs(self._value(slot))

    def _value(self, slot: int) -> float:
        value: float = _BEAT.unpack_from(self._page, slot * _SLOT.size)[0]
        return value
