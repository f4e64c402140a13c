"""So many at once, and then one in so many seconds."""

import time


class RateLimit:
    """A bucket of tokens, full at first."""

    def __init__(self, burst: int, seconds: float) -> None:
        self.seconds = seconds
        """Until there is another one."""
        self._burst = float(burst)
        self._tokens = float(burst)
        self._filled_at = time.monotonic()

    def allows(self) -> bool:
        """Whether one more may be; then it counts."""
        now = time.monotonic()
        self._tokens = min(self._burst, self._tokens + (now - self._filled_at) / self.seconds)
        self._filled_at = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True
