"""Sources `external-<name>`: an operator's program that keeps running, one that runs at intervals, or a file."""

import logging
import os
import shlex
import stat
import time
from collections.abc import Sequence
from pathlib import Path

from devherd import signals
from devherd.backoff import Backoff
from devherd.sources.program import (
    NotStartedError,
    ProgramStderr,
    RunningProgram,
    Second,
    how_it_ended,
    left_behind,
    started,
)
from devherd.sources.report import LONGEST_DETAIL, LONGEST_LINE, LineError, Report, plain
from devherd.sources.request import Order, distrusted
from devherd.spool import Identity, identity_of
from devherd.waits import Waits

MOST_FILE = 1 << 20
UNENDING = "it cannot be ended: it sleeps in the kernel (state D)"
MOST_OUTPUT = 65_536
_PROBLEM = 1
log = logging.getLogger(__name__)
MOST_LINES_A_SECOND = 1000
GRACE_SECONDS = 0.5
"""Time from a program's end until this is reported as a failure: the scanner first reads its last findings."""


class ReadFile:
    """A file that its writer replaces as a whole: findings that are not in it are cleared."""

    def __init__(self, order: Order) -> None:
        self.report = Report(order.file)
        self.spoke_at = time.monotonic()
        self._path = Path(order.file)
        self._read: Identity | None = None
        """The version that was read; None while there is no readable one: rights can change without a new version."""

    def listen(self, timeout: float) -> None:
        """Wait, and read the file if it has changed."""
        identity = identity_of(self._path, follow_symlinks=True)
        if identity is None or identity != self._read:
            try:
                self._read = identity if self._look() else None
            except OSError as error:
                self._read = None
                self.report.failed = f"it cannot be read: {error.strerror or error}"
        signals.rest(timeout)

    def close(self) -> None:
        """Do nothing: no program was started."""

    def _look(self) -> bool:
        """Read the file; returns whether it may be read, also if its content is bad."""
        why = distrusted(self._path)
        if why:
            self.report.failed = why
            return False
        descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a FIFO would hang
        with os.fdopen(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            content = file.read(MOST_FILE + 1) if stat.S_ISREG(status.st_mode) else b""
        if not stat.S_ISREG(status.st_mode):
            self.report.failed = "it is not a regular file"
        elif len(content) > MOST_FILE:
            self.report.failed = f"it is larger than {MOST_FILE} bytes"
        else:
            self.report.replace(content)
        if not self.report.failed:
            self.spoke_at = time.monotonic() - (time.time() - status.st_mtime)
        return True


def _named(command: Sequence[str]) -> str:
    """The program's name in findings: with its arguments, because `/bin/sh` alone would tell nothing."""
    return plain(shlex.join(command), LONGEST_DETAIL)


class RunAtIntervals:
    """A program that runs at intervals.

    Exit status 0: no problem, or findings on stdout; 1: a problem, described on stdout; others: it cannot check.
    """

    def __init__(self, order: Order) -> None:
        self.report = Report(_named(order.command))
        self.spoke_at = time.monotonic()
        self._order = order
        self._interval = order.interval or 0.0
        self._program: RunningProgram | None = None
        self._stderr = ProgramStderr()
        self._output = bytearray()
        self._due_at = self._ends_at = self.spoke_at

    def listen(self, timeout: float) -> None:
        """Start the program when it is due, and take its result when it has ended."""
        now = time.monotonic()
        if self._program is None and now < self._due_at:
            signals.rest(min(timeout, self._due_at - now))
            return
        if self._program is None:
            self._start(now)
        if self._program is not None:
            self._follow(self._program, timeout)

    def close(self) -> None:
        """End the program."""
        if self._program is not None:
            self._program.end()

    def _start(self, now: float) -> None:
        self._due_at, self._ends_at = now + self._interval, now + self._order.timeout
        self._output.clear()
        try:
            self._program = started(self._order.command, self._stderr)
        except NotStartedError as error:
            self.report.failed = str(error)

    def _follow(self, program: RunningProgram, timeout: float) -> None:
        self._output += program.read(min(timeout, max(0.0, self._ends_at - time.monotonic())))
        status, why = program.exit_status(), ""
        if len(self._output) > MOST_OUTPUT:
            why = f"it wrote more than {MOST_OUTPUT} bytes"
        elif status is None and time.monotonic() >= self._ends_at:
            why = _with(f"it took longer than {self._order.timeout:g} s", self._stderr.last)
        elif status is None:
            return
        is_ended, names = program.end()
        if not is_ended:
            self.report.failed = UNENDING
            return
        self._program = None
        self._output += program.rest()
        if status is None or why:
            self.report.failed = why
        else:
            self._judge(status)
        self.report.errors = [left_behind(names)] if names else []

    def _judge(self, status: int) -> None:
        if status in {0, _PROBLEM}:
            self.report.conclude(bytes(self._output), is_problem=status == _PROBLEM)
        else:
            message = plain(self._output[:LONGEST_LINE].decode(errors="replace"), LONGEST_DETAIL)
            self.report.failed = _with(how_it_ended(status), message or self._stderr.last)
        if not self.report.failed:
            self.spoke_at = time.monotonic()


def _with(what: str, message: str) -> str:
    return f"{what}: {message}" if message else what


class LeftRunning:
    """A program that keeps running: ended if it is silent for too long, restarted if it has ended."""

    def __init__(self, order: Order, waits: Waits) -> None:
        self.report = Report(_named(order.command))
        self.spoke_at = time.monotonic()
        self._order = order
        self._flood_seconds, self._steady_seconds = waits.program_flood, waits.program_steady
        self._program: RunningProgram | None = None
        self._stderr = ProgramStderr()
        self._backoff = Backoff(1.0, 60.0)
        self._due_at = self._started_at = self._heard_at = self._below_limit_at = self.spoke_at
        self._failure = ""
        """Why it does not run; reported after `GRACE_SECONDS`, so that its earlier findings are not missed."""
        self._failed_at = self.spoke_at
        self._unread = bytearray()
        """Unprocessed output from its stdout: some lines, or the beginning of one."""
        self._lines = Second(MOST_LINES_A_SECOND)
        self._own_failure = ""
        """The last reason that the program gave why it cannot check."""
        self._refused = ""
        """The first unusable line of this process, and why it is unusable."""

    def listen(self, timeout: float) -> None:
        """Start the program when it is due, and take its lines."""
        now = time.monotonic()
        if self._program is None and now < self._due_at:
            self._wait(now, timeout)
            return
        if self._program is None:
            self._start()
        if self._program is not None:
            self._follow(self._program, timeout)

    def close(self) -> None:
        """End the program."""
        if self._program is not None:
            self._program.end()

    def _wait(self, now: float, timeout: float) -> None:
        if now < self._failed_at:
            signals.rest(min(timeout, self._failed_at - now))
        elif self.report.failed != self._failure:
            self.report.failed = self._failure  # the caller writes it before the wait goes on
        else:
            signals.rest(min(timeout, self._due_at - now))

    def _start(self) -> None:
        self._unread.clear()
        self._own_failure = self._refused = ""
        self.report.errors = []
        self.report.begin()
        self._started_at = self._heard_at = self._below_limit_at = time.monotonic()
        try:
            self._program = started(self._order.command, self._stderr)
        except NotStartedError as error:
            self._restart_later(str(error))

    def _follow(self, program: RunningProgram, timeout: float) -> None:
        brake = self._lines.left()
        if brake or b"\n" in self._unread:
            program.read(min(timeout, brake), is_braked=True)
        else:
            self._unread += program.read(timeout)
        self._take()
        now, status = time.monotonic(), program.exit_status()
        if not self._lines.left():
            self._below_limit_at = now
        if now - self._started_at >= self._steady_seconds:
            self._backoff.reset()
        max_age = self.report.max_age or self._order.max_age
        if status is not None:
            self._give_up(program, f"it ended, {how_it_ended(status)}", hint=_HINT if status == 0 else "")
        elif now - self._below_limit_at >= self._flood_seconds:
            limit = f"{MOST_LINES_A_SECOND} lines a second for {self._flood_seconds:g} s"
            self._give_up(program, f"it printed more than {limit}")
        elif now - self._heard_at > max_age:
            self._give_up(program, f"no {'valid line' if self._refused else 'report'} for {max_age:g} s")

    def _give_up(self, program: RunningProgram, why: str, hint: str = "") -> None:
        is_ended, names = program.end()
        if not is_ended:
            self.report.failed = UNENDING
            return
        self._program = None
        self._unread += program.rest() + b"\n"
        self._take(without_limit=True)
        is_settled = time.monotonic() - self._started_at >= self._steady_seconds
        parts = [_with(why, self._own_failure or self._refused or self._stderr.last)]
        parts += [left_behind(names)] if names else []
        parts += [hint] if hint and not is_settled else []
        self._restart_later("; ".join(parts))

    def _restart_later(self, why: str) -> None:
        seconds = self._backoff.seconds()
        now = time.monotonic()
        self._due_at, self._failed_at = now + seconds, now + GRACE_SECONDS
        self._failure = f"{why}; next start in {seconds:g} s"

    def _take(self, *, without_limit: bool = False) -> None:
        """Process the lines that have arrived, up to the limit."""
        begins = 0
        while (without_limit or not self._lines.left()) and (ends := self._unread.find(b"\n", begins)) >= 0:
            self._lines.take()
            self._take_line(bytes(self._unread[begins:ends]))
            begins = ends + 1
        del self._unread[:begins]
        if b"\n" not in self._unread:
            del self._unread[LONGEST_LINE + 1 :]  # long enough to be refused as too long

    def _take_line(self, line: bytes) -> None:
        try:
            self.report.take(line)
        except LineError as error:
            if line.strip() and not self._refused:
                text = plain(line[:LONGEST_DETAIL].decode(errors="replace"), LONGEST_DETAIL)
                self._refused = f"{error}: {text}"
                self.report.errors = [f"a line is ignored, and others like it: {self._refused}"]
            return
        self._heard_at = time.monotonic()
        self._own_failure = self.report.failed
        if not self.report.failed:
            self.spoke_at = self._heard_at


_HINT = "if it is to end by itself, give `interval`"
