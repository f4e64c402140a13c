"""Ending a process: handlers note SIGTERM and SIGINT, and the process checks for them where it can end.

Waits of this module end at once when a signal comes. The handlers raise nothing: an exception during an import would
reach the initialisation of C extensions, which lose it or crash; during a fork it would be lost, too.
"""

import contextlib
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from types import FrameType
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    import asyncio


class HasDescriptor(Protocol):
    """A file, a socket, or another object with a descriptor."""

    def fileno(self) -> int:
        """The descriptor."""


Source = TypeVar("Source", bound=int | HasDescriptor)
_ENDS = (signal.SIGTERM, signal.SIGINT)
_HANDLED = (*_ENDS, signal.SIGQUIT, signal.SIGHUP, signal.SIGCHLD, signal.SIGUSR2)


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
    """From now on note SIGTERM and SIGINT, and block SIGHUP. Only the first call counts."""
    if _wakeups:
        return
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
    _wakeups.append(Wakeup())
    for number in _ENDS:
        signal.signal(number, _note)


def _note(number: int, _frame: FrameType | None) -> None:
    _received.append(number)


def wakeup() -> Wakeup:
    """The pipe that ends a poll, for a loop with its own handlers."""
    remember()
    return _wakeups[0]


def on_end(loop: "asyncio.AbstractEventLoop", do: Callable[[], object]) -> None:
    """For a process with this loop: call `do` in it at SIGTERM and SIGINT."""
    for number in _ENDS:
        loop.add_signal_handler(number, do)


def is_to_end() -> bool:
    """True once a signal has asked this process to end."""
    return bool(_received)


def end_if_asked() -> None:
    """Raise SystemExit with code 0 if a signal has asked for the end; called between the steps of a start."""
    if is_to_end():
        sys.exit(0)


def rest(seconds: float) -> None:
    """Sleep, but no longer once asked to end."""
    ready((), seconds)


def ready(sources: Iterable[Source], seconds: float | None = None) -> list[Source]:
    """Wait until some of these are readable or at their end, and return them.

    None after `seconds` (None: no limit), or once asked to end.
    """
    poll = select.poll()
    places = {(source if isinstance(source, int) else source.fileno()): source for source in sources}
    for descriptor in [*places, *map(Wakeup.fileno, _wakeups)]:
        poll.register(descriptor, select.POLLIN)
    until = None if seconds is None else time.monotonic() + seconds
    while not is_to_end():
        left = None if until is None else max(0.0, until - time.monotonic()) * 1000
        found = [descriptor for descriptor, _ in poll.poll(left)]
        there = [places[descriptor] for descriptor in found if descriptor in places]
        if there or not found:
            return there if not is_to_end() else []
        _wakeups[0].handle_read_event()  # perhaps another signal, which does not request the end
    return []


@contextlib.contextmanager
def held() -> Iterator[None]:
    """Block signals during a fork: until `reset` the child has its parent's handlers."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _HANDLED)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def reset() -> None:
    """In a forked process: set default handlers, and block SIGHUP alone (devherd/process.py).

    SIGPIPE stays ignored, as Python sets it.
    """
    signal.set_wakeup_fd(-1)
    _wakeups.clear()
    _received.clear()
    for number in _HANDLED:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, {signal.SIGHUP})
