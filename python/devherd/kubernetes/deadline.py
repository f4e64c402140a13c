"""How long something made of steps may take in all, whatever each of them takes."""

import time
from collections.abc import Callable


class Deadline:
    """So many seconds from now on; `clock` counts them."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.seconds = seconds
        self._clock = clock
        self._until = clock() + seconds

    def left(self) -> float:
        """Seconds for the next step: more than none. Raises TimeoutError when it is over."""
        left = self._until - self._clock()
        if left <= 0:
            raise TimeoutError(f"no whole answer within {self.seconds:g} s")
        return left
