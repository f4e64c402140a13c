"""Delays between attempts that keep failing: each twice as long as the last, up to a longest."""

import random

_DOUBLINGS = 32  # far beyond any longest delay, and far below what a float can hold


class Backoff:
    """Doubles from `first` to `longest` seconds until it is reset.

    `jitter` is the share of a delay that chance takes off, so that processes which failed together do not try together.
    """

    def __init__(self, first: float, longest: float, jitter: float = 0.0) -> None:
        self._first = first
        self._longest = longest
        self._jitter = jitter
        self._given = 0

    @property
    def is_fresh(self) -> bool:
        """Whether no delay was given since the reset."""
        return self._given == 0

    @property
    def is_longest(self) -> bool:
        """Whether delays do not grow any more."""
        return self._whole(self._given) == self._longest

    def seconds(self) -> float:
        """The delay that is due now; the one after it will be twice as long."""
        self._given += 1
        return self.after(self._given - 1)

    def after(self, delays: int) -> float:
        """The delay after this many others."""
        return self._whole(delays) * (1 - self._jitter * random.random())  # noqa: S311 - chance, not secrecy

    def reset(self) -> None:
        """All is well: the next delay is the first one again."""
        self._given = 0

    def _whole(self, delays: int) -> float:
        return min(self._first * 2.0 ** min(delays, _DOUBLINGS), self._longest)
