"""Sources `external-<name>`: an operator's program that keeps running, one that runs at intervals, or a file."""

import contextlib
import logging
import os
import select
import signal
import stat
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from devherd._native import die_with_parent
from devherd.backoff import Backoff
from devherd.sources.report import LONGEST_DETAIL, LONGEST_LINE, LineError, Report, plain
from devherd.sources.request import Order, distrusted
from devherd.spool import Identity, identity_of

MOST_FILE = 1 << 20
PATIENCE_SECONDS = 2.0
"""Time from SIGTERM to SIGKILL, and from SIGKILL to the conclusion that the program cannot be ended."""
_STEP_SECONDS = 0.05
UNENDING = "it cannot be ended: it sleeps in the kernel (state D)"
MOST_OUTPUT = 65_536
_PROBLEM = 1
log = logging.getLogger(__name__)
MOST_LINES_A_SECOND = 1000


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
        time.sleep(timeout)

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


class NotStartedError(Exception):
    """A program cannot be started; the text is the reason."""


def started(command: Sequence[str]) -> "RunningProgram":
    """Start the program. Raises NotStartedError."""
    try:
        why = distrusted(Path(command[0]))
        if why is None:
            return RunningProgram(command)
    except OSError as error:
        why = f"{command[0]} cannot be started: {error.strerror or error}"
    raise NotStartedError(why)


class RunningProgram:
    """A started program with a pipe from its stdout; its stderr goes to this process's log. Raises OSError."""

    def __init__(self, command: Sequence[str]) -> None:
        with _sigterm_held():
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                bufsize=0,
                process_group=0,
                preexec_fn=_prepare,  # noqa: PLW1509 - this process has one thread
            )
        assert self._process.stdout is not None
        self._stdout = self._process.stdout
        os.set_blocking(self._stdout.fileno(), False)
        self.is_at_end = False
        """Whether its stdout is closed."""

    def read(self, timeout: float) -> bytes:
        """New output, after waiting at most `timeout` seconds; empty if there is none."""
        if self.is_at_end:
            time.sleep(min(timeout, _STEP_SECONDS))
            return b""
        if not select.select([self._stdout], [], [], timeout)[0]:
            return b""
        written = self._stdout.read(65_536)
        self.is_at_end = written == b""
        return written or b""

    def exit_status(self) -> int | None:
        """The exit status as in `subprocess`; None while the program runs."""
        return self._process.poll()

    def end(self) -> bool:
        """End all processes of its group: close stdin, then SIGTERM, then SIGKILL.

        Returns False if the program sleeps in the kernel and cannot be ended.
        """
        with contextlib.suppress(OSError):
            if self._process.stdin:
                self._process.stdin.close()
        if not self._ends(signal.SIGTERM) and not self._ends(signal.SIGKILL):
            return False
        self._signal(signal.SIGKILL)  # remaining processes of its group
        self._stdout.close()
        return True

    def _ends(self, number: signal.Signals) -> bool:
        if self._process.poll() is None:
            self._signal(number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(PATIENCE_SECONDS)
        return self._process.poll() is not None

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)


@contextlib.contextmanager
def _sigterm_held() -> Iterator[None]:
    """Block SIGTERM during a fork, in which the exception of the signal's handler would be lost."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _prepare() -> None:
    """Set up the new process: it ends with this one, and no signal is blocked."""
    die_with_parent(signal.SIGKILL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def how_it_ended(status: int) -> str:
    """The exit status as text."""
    return f"exit status {status}" if status >= 0 else f"killed by {signal.Signals(-status).name}"


class RunAtIntervals:
    """Exit status 0: no problem; 1: a problem, described on stdout; others: the program cannot check."""

    def __init__(self, order: Order) -> None:
        self.report = Report(order.command[0])
        self.spoke_at = time.monotonic()
        self._order = order
        self._interval = order.interval or 0.0
        self._program: RunningProgram | None = None
        self._output = bytearray()
        self._due_at = self._ends_at = self.spoke_at

    def listen(self, timeout: float) -> None:
        """Start the program when it is due, and take its result when it has ended."""
        now = time.monotonic()
        if self._program is None and now < self._due_at:
            time.sleep(min(timeout, self._due_at - now))
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
            self._program = started(self._order.command)
        except NotStartedError as error:
            self.report.failed = str(error)

    def _follow(self, program: RunningProgram, timeout: float) -> None:
        self._output += program.read(min(timeout, max(0.0, self._ends_at - time.monotonic())))
        status = program.exit_status()
        if status is not None:
            self._output += program.read(0.0)
            self._judge(status)
        elif len(self._output) > MOST_OUTPUT:
            self.report.failed = f"it wrote more than {MOST_OUTPUT} bytes"
        elif time.monotonic() >= self._ends_at:
            self.report.failed = f"it took longer than {self._order.timeout:g} s"
        else:
            return
        if program.end():
            self._program = None
        else:
            self.report.failed = UNENDING

    def _judge(self, status: int) -> None:
        message = plain(self._output[:LONGEST_LINE].decode(errors="replace"), LONGEST_DETAIL)
        if status == 0:
            self.report.clear()
        elif status != _PROBLEM:
            self.report.failed = ": ".join(filter(None, (how_it_ended(status), message)))
        elif self._output.lstrip().startswith(b"{"):
            self.report.replace(bytes(self._output))
        else:
            self.report.complain(message or "it found a problem, without a message")
        if not self.report.failed:
            self.spoke_at = time.monotonic()


class LeftRunning:
    """A program that keeps running: ended if it is silent for too long, restarted if it has ended."""

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
        """Start the program when it is due, and take its lines."""
        now = time.monotonic()
        if self._program is None and now < self._due_at:
            time.sleep(min(timeout, self._due_at - now))
            return
        if self._program is None:
            self._start()
        if self._program is not None:
            self._follow(self._program, timeout)

    def close(self) -> None:
        """End the program."""
        if self._program is not None:
            self._program.end()

    def _start(self) -> None:
        self._line.clear()
        self._started_at = time.monotonic()
        try:
            self._program = started(self._order.command)
        except NotStartedError as error:
            self._restart_later(str(error))

    def _follow(self, program: RunningProgram, timeout: float) -> None:
        self._take(program.read(timeout))
        status = program.exit_status()
        max_age = self.report.max_age or self._order.max_age
        if status is not None:
            while written := program.read(0.0):
                self._take(written)
            self._give_up(program, f"it ended, {how_it_ended(status)}")
        elif time.monotonic() - max(self.spoke_at, self._started_at) > max_age:
            self._give_up(program, f"no report for {max_age:g} s")

    def _give_up(self, program: RunningProgram, why: str) -> None:
        if program.end():
            self._program = None
            self._restart_later(why)
        else:
            self.report.failed = UNENDING

    def _restart_later(self, why: str) -> None:
        seconds = self._backoff.seconds()
        self._due_at = time.monotonic() + seconds
        self.report.failed = f"{why}; next start in {seconds:g} s"
        log.warning("%s: %s", self._order.command[0], self.report.failed)

    def _take(self, written: bytes) -> None:
        *lines, rest = bytes(self._line + written).split(b"\n")
        self._line[:] = rest[: LONGEST_LINE + 1]  # long enough to be refused as too long
        for line in lines:
            if self._is_within_rate():
                self._take_line(line)

    def _is_within_rate(self) -> bool:
        now = time.monotonic()
        if now - self._second_began >= 1.0:
            if self._dropped:
                log.warning(
                    "%s: %d lines were dropped: the limit is %d a second",
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
                text = plain(line[:LONGEST_DETAIL].decode(errors="replace"), LONGEST_DETAIL)
                log.warning("%s: a line is ignored, and others like it: %s: %s", self._order.command[0], error, text)
            self._has_complained = True
            return
        if not self.report.failed:
            self.spoke_at = time.monotonic()
            self._backoff.reset()
