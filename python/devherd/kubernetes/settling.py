"""When to write: a start comes in steps, and labels by which pods choose their node must not come and go with each."""

import time

_SETTLE_SECONDS = 2.0
_LONGEST_WAIT_SECONDS = 30.0


class Settling:
    """Waits until what is found is whole."""

    def __init__(self) -> None:
        self._seen: object = None
        self._changed_at = self._since = time.monotonic()

    def after(self, seen: object, *, is_awaited: bool) -> bool:
        """Whether it has stood for a while, or has been waited for long enough; `is_awaited`: more is known to come."""
        now = time.monotonic()
        if seen != self._seen:
            if now - self._changed_at >= _SETTLE_SECONDS:
                self._since = now  # it was calm until now
            self._seen, self._changed_at = seen, now
        is_calm = now - self._changed_at >= _SETTLE_SECONDS and not is_awaited
        return is_calm or now - self._since >= _LONGEST_WAIT_SECONDS
