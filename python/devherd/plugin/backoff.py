"""How long to wait after one registration has ended before the next one begins."""

import random

FIRST_SECONDS = 0.05
LONGEST_SECONDS = 30.0
JITTER = 0.25
"""Share of a delay that chance takes off, so that the children of a node do not knock together."""


class Backoff:
    """Doubles from FIRST_SECONDS to LONGEST_SECONDS until it is reset."""

    def __init__(self) -> None:
        self._next = FIRST_SECONDS

    def seconds(self) -> float:
        """The delay that is due now; the one after it will be twice as long."""
        delay = self._next
        self._next = min(2 * delay, LONGEST_SECONDS)
        return delay * (1 - JITTER * random.random())  # noqa: S311 - chance, not secrecy

    def reset(self) -> None:
        """All is well: the next delay is the first one again."""
        self._next = FIRST_SECONDS
