"""A program that goes on running and prints lines."""

import logging
import time

from devherd.backoff import Backoff
from devherd.health.sources.external.program import UNENDING, NotStartedError, RunningProgram, how_it_ended, started
from devherd.health.sources.external.report import LONGEST_DETAIL, LONGEST_LINE, LineError, Report, plain
from devherd.health.sources.order import Order

log = logging.getLogger(__name__)

MOST_LINES_A_SECOND = 1000


class LeftRunning:
    """Ended when it is silent for too long, started again when it has ended."""

    def __init__(self, order: Order) -> None:
        self.report = Report(order.command[0])
        self.spoke_at = time.monotonic()
        self._order = order
        self._program: RunningProgram | None = None
        self._backoff = Backoff(1.0, 60.0)
        self._due_at = self._started_at = self._second_began = self.spoke_at
        self._line = bytearray()
        self._lines = self._dropped = 0
        self._has_complained = False

    def listen(self, timeout: float) -> None:
        """Start it when it is due, and take in its lines."""
        now = time.monotonic()
        if self._program is None and now < self._due_at:
            time.sleep(min(timeout, self._due_at - now))
            return
        if self._program is None:
            self._start()
        if self._program is not None:
            self._follow(self._program, timeout)

    def close(self) -> None:
        """End it."""
        if self._program is not None:
            self._program.end()

    def _start(self) -> None:
        self._line.clear()
        self._started_at = time.monotonic()
        try:
            self._program = started(self._order.command)
        except NotStartedError as error:
            self._again_later(str(error))

    def _follow(self, program: RunningProgram, timeout: float) -> None:
        self._take(program.read(timeout))
        status = program.exit_status()
        max_age = self.report.max_age or self._order.max_age
        if status is not None:
            while written := program.read(0.0):
                self._take(written)
            self._give_up(program, f"it ended, {how_it_ended(status)}")
        elif time.monotonic() - max(self.spoke_at, self._started_at) > max_age:
            self._give_up(program, f"it said nothing for {max_age:g} s")

    def _give_up(self, program: RunningProgram, why: str) -> None:
        if program.end():
            self._program = None
            self._again_later(why)
        else:
            self.report.failed = UNENDING

    def _again_later(self, why: str) -> None:
        seconds = self._backoff.seconds()
        self._due_at = time.monotonic() + seconds
        self.report.failed = f"{why}; it is started again after {seconds:g} s"
        log.warning("%s: %s", self._order.command[0], self.report.failed)

    def _take(self, written: bytes) -> None:
        *lines, rest = bytes(self._line + written).split(b"\n")
        self._line[:] = rest[: LONGEST_LINE + 1]  # enough to see that it is too long
        for line in lines:
            if self._may_say_more():
                self._take_line(line)

    def _may_say_more(self) -> bool:
        now = time.monotonic()
        if now - self._second_began >= 1.0:
            if self._dropped:
                log.warning(
                    "%s: %d lines were dropped: it may print %d a second",
                    self._order.command[0],
                    self._dropped,
                    MOST_LINES_A_SECOND,
                )
            self._second_began, self._lines, self._dropped = now, 0, 0
        self._lines += 1
        self._dropped += self._lines > MOST_LINES_A_SECOND
        return self._lines <= MOST_LINES_A_SECOND

    def _take_line(self, line: bytes) -> None:
        try:
            self.report.take(line)
        except LineError as error:
            if not self._has_complained:
                said = plain(line[:LONGEST_DETAIL].decode(errors="replace"), LONGEST_DETAIL)
                log.warning("%s: a line is ignored, and others like it: %s: %s", self._order.command[0], error, said)
            self._has_complained = True
            return
        if not self.report.failed:
            self.spoke_at = time.monotonic()
            self._backoff.reset()
