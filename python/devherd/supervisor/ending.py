"""The end that SIGTERM or SIGINT asks for while an instance starts, before the herd answers signals.

A handler that raises is not enough: code of others catches what is raised while it is imported, with a bare `except` or
in C. What was asked for is remembered, and asked again before the instance does what others notice.
"""

import signal
import sys
from types import FrameType

_asked_by: list[int] = []


def heed() -> None:
    """From now on the signals end the start, with exit code 0."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _end)


def go_on() -> None:
    """Raises SystemExit when a signal has asked for the end, and what it raised was lost."""
    if _asked_by:
        sys.exit(0)


def _end(number: int, _frame: FrameType | None) -> None:
    _asked_by.append(number)
    sys.exit(0)
