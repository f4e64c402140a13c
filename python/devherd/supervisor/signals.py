"""Signals to the supervisor before its loop handles them, and the pipe through which they end its waits.

While an instance starts, SIGTERM and SIGINT are remembered. The start checks between its steps whether one came, and
the waits of this module end at once. The handler raises nothing: an exception during an import gets into the
initialisation of C extensions; some lose it, some crash.
"""

import os
import select
import signal
import sys
import time
from types import FrameType
from typing import BinaryIO


class Wakeup:
    """A pipe that signals write to: Python repeats an interrupted poll (PEP 475), unless there is something to read."""

    def __init__(self) -> None:
        self._read, write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(write, False)
        signal.set_wakeup_fd(write, warn_on_full_buffer=False)

    def fileno(self) -> int:
        """The descriptor to poll."""
        return self._read

    def readable(self) -> bool:
        """Return True: always polled for reading."""
        return True

    def writable(self) -> bool:
        """Return False: never polled for writing."""
        return False

    def handle_read_event(self) -> None:
        """Empty the pipe: the handlers have noted the signals."""
        os.read(self._read, 4096)

    def handle_error(self) -> None:
        """Do nothing: the pipe was empty."""


_wakeups: list[Wakeup] = []
"""At most one, for the life of the process."""
_received: list[int] = []


def remember() -> None:
    """From now on remember SIGTERM and SIGINT, and block SIGHUP. Only the first call counts."""
    if _wakeups:
        return
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
    _wakeups.append(Wakeup())
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _note)


def _note(number: int, _frame: FrameType | None) -> None:
    _received.append(number)


def wakeup() -> Wakeup:
    """The pipe that ends a poll, for a loop with its own handlers."""
    remember()
    return _wakeups[0]


def is_to_end() -> bool:
    """True if a signal has requested the end during the start."""
    return bool(_received)


def end_if_asked() -> None:
    """Raise SystemExit with code 0 if a signal has requested the end; call it between steps of the start."""
    if is_to_end():
        sys.exit(0)


def wait_for(source: int | BinaryIO, seconds: float | None = None) -> bool:
    """Wait until `source` is readable or at its end; returns False after `seconds` (None: no limit).

    Raises SystemExit as `end_if_asked`, at once, even if `source` is readable.
    """
    poll = select.poll()
    poll.register(source, select.POLLIN)
    return _wait(poll, seconds)


def rest(seconds: float) -> None:
    """Sleep. Raises SystemExit as `end_if_asked`, at once."""
    _wait(select.poll(), seconds)


def _wait(poll: select.poll, seconds: float | None) -> bool:
    for each in _wakeups:
        poll.register(each, select.POLLIN)
    until = None if seconds is None else time.monotonic() + seconds
    while True:
        end_if_asked()
        left = None if until is None else max(0.0, until - time.monotonic()) * 1000
        ready = {descriptor for descriptor, _ in poll.poll(left)}
        end_if_asked()
        woken = ready.intersection(map(Wakeup.fileno, _wakeups))
        if ready != woken or not ready:
            return bool(ready)
        _wakeups[0].handle_read_event()  # the signal did not request the end
