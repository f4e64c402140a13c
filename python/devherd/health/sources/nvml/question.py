"""One question to NVML, in a thread of its own: it may hang, in the kernel even."""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

from devherd.child import BEAT_PERIOD_SECONDS

T = TypeVar("T")


class Hangs(Exception):  # noqa: N818 - it is what NVML does
    """A question was not answered in time. Its thread is still there."""

    def __init__(self, *, is_in_the_kernel: bool) -> None:
        super().__init__()
        self.is_in_the_kernel = is_in_the_kernel
        """Whether it is in uninterruptible sleep (state D), out of the reach of signals."""


class _Question(threading.Thread, Generic[T]):
    def __init__(self, ask: Callable[[], T]) -> None:
        super().__init__(name="nvml", daemon=True)
        self._ask = ask
        self.answers: list[T] = []
        self.error: Exception | None = None

    def run(self) -> None:
        """Ask."""
        try:
            self.answers.append(self._ask())
        except Exception as error:  # noqa: BLE001 - raised again where it is waited for
            self.error = error

    def is_in_the_kernel(self) -> bool:
        """Whether it is in uninterruptible sleep."""
        try:
            stat = Path(f"/proc/self/task/{self.native_id}/stat").read_text()
        except OSError:
            return False
        return stat.rpartition(")")[2].split()[0] == "D"


def answered(
    ask: Callable[[], T],
    seconds: float,
    beat: Callable[[], None],
    slow: tuple[float, Callable[[], None]] | None = None,
) -> T:
    """What `ask` returns or raises, asked in a thread while this one beats; `slow`: what is done once after how long.

    Raises Hangs when it takes longer than `seconds`.
    """
    question = _Question(ask)
    begin = time.monotonic()
    hangs_at = begin + seconds
    slow_at, be_slow = (begin + slow[0], slow[1]) if slow else (hangs_at, None)
    question.start()
    while question.is_alive():
        beat()
        now = time.monotonic()
        if now >= hangs_at:
            raise Hangs(is_in_the_kernel=question.is_in_the_kernel())
        if be_slow and now >= slow_at:
            be_slow()
            be_slow = None
        due = slow_at if be_slow else hangs_at
        question.join(min(BEAT_PERIOD_SECONDS, max(0.0, due - now)))
    if question.error:
        raise question.error
    return question.answers[0]
