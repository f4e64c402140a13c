"""Delays between attempts that keep failing: each twice as long as the last, up to a limit."""

import random

_DOUBLINGS = 32  # far beyond any longest delay, and far below what a float can hold


class Backoff:
    """Doubles from `first` to `longest` seconds until it is reset.

    `jitter` is the largest random fraction by which a delay is shortened, so that processes that failed together do not
    try again together.
    """

    def __init__(self, first: float, longest: float, jitter: float = 0.0) -> None:
        self._first = first
        self._longest = longest
        self._jitter = jitter
        self._given = 0

    @property
    def is_fresh(self) -> bool:
        """True if no delay was returned since the last reset."""
        return self._given == 0

    @property
    def is_longest(self) -> bool:
        """True if the delay has reached its limit."""
        return self._whole(self._given) == self._longest

    def seconds(self) -> float:
        """The next delay in seconds; the one after it is twice as long."""
        self._given += 1
        return self.after(self._given - 1)

    def after(self, delays: int) -> float:
        """The delay in seconds that follows `delays` earlier ones."""
        return self._whole(delays) * (1 - self._jitter * random.random())  # noqa: S311 - chance, not secrecy

    def reset(self) -> None:
        """Start again with the first delay."""
        self._given = 0

    def _whole(self, delays: int) -> float:
        return min(self._first * 2.0 ** min(delays, _DOUBLINGS), self._longest)
