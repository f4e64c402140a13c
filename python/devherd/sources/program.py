"""Runs an operator's program: starts it, reads it within limits, and ends it with all that it has started."""

import contextlib
import logging
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import IO

from devherd import signals
from devherd._native import adopt_orphans, die_with_parent
from devherd.process import SOURCE_MARK, children
from devherd.sources.report import LONGEST_DETAIL, plain
from devherd.sources.request import unusable
from devherd.text import amount

PATIENCE_SECONDS = 2.0
"""Time from SIGTERM to SIGKILL, and from SIGKILL to the conclusion that the program cannot be ended."""
_STEP_SECONDS = 0.05
_CHUNK = 65_536
MOST_BYTES_A_SECOND = 1 << 20
"""Read limit for each of its pipes; a full pipe then slows the program down."""
MOST_STDERR_LINES = 20
"""Lines of its stderr that are logged at once; then one line every `STDERR_LINE_SECONDS`."""
STDERR_LINE_SECONDS = 10.0
_LONGEST_NAMED = 80
log = logging.getLogger(__name__)


class NotStartedError(Exception):
    """A program cannot be started; the text is the reason."""


def started(
    command: Sequence[str], stderr: "ProgramStderr", environment: Mapping[str, str] = MappingProxyType({})
) -> "RunningProgram":
    """Start the program, with `environment` added to its environment. Raises NotStartedError."""
    why = unusable(command)
    if why is None:
        try:
            return RunningProgram(command, stderr, environment)
        except OSError as error:  # a script's interpreter is missing
            why = f"{command[0]} cannot be started: {error.strerror or error}"
    raise NotStartedError(why)


class Second:
    """Counts what was taken in the current second, up to a limit."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._began = time.monotonic()
        self._taken = 0

    def take(self, number: int = 1) -> None:
        """Count `number` units as taken now."""
        self._renew()
        self._taken += number

    def left(self) -> float:
        """Seconds until more may be taken; 0.0 if more may be taken now."""
        self._renew()
        return max(0.0, self._began + 1.0 - time.monotonic()) if self._taken >= self._most else 0.0

    def _renew(self) -> None:
        if time.monotonic() >= self._began + 1.0:
            self._began, self._taken = time.monotonic(), 0


class ProgramStderr:
    """The stderr of a program: its lines go to this process's log, within limits; the last one is kept."""

    def __init__(self) -> None:
        self.last = ""
        """The last line of the program that was started last."""
        self._line = bytearray()
        self._room = float(MOST_STDERR_LINES)
        self._counted_at = time.monotonic()
        self._dropped = 0

    def begin(self) -> None:
        """Begin with the stderr of a new program."""
        self.last = ""
        self._line.clear()

    def take(self, written: bytes) -> None:
        """Take what was written; nothing at the end of the pipe."""
        *lines, rest = bytes(self._line + written).split(b"\n")
        self._line[:] = rest[: LONGEST_DETAIL * 4] if written else b""  # of UTF-8, a character has at most four bytes
        for line in lines if written else [rest]:
            text = plain(line.decode(errors="replace"), LONGEST_DETAIL)
            if text:
                self.last = text
                self._log(text)

    def _log(self, text: str) -> None:
        now = time.monotonic()
        self._room = min(MOST_STDERR_LINES, self._room + (now - self._counted_at) / STDERR_LINE_SECONDS)
        self._counted_at = now
        if self._room < 1.0:
            self._dropped += 1
            return
        self._room -= 1.0
        before = f" (after {amount(self._dropped, 'line')} that are left out)" if self._dropped else ""
        self._dropped = 0
        log.info("stderr%s: %s", before, text)


class RunningProgram:
    """A started program with pipes from its stdout and stderr. Raises OSError."""

    def __init__(
        self, command: Sequence[str], stderr: ProgramStderr, environment: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        adopt_orphans()
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            cwd="/",
            env=os.environ | {SOURCE_MARK: str(os.getpid()), **environment},
            process_group=0,
            preexec_fn=_prepare,  # noqa: PLW1509 - this process has one thread
        )
        stderr.begin()
        self._taker = stderr
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._stdout, self._stderr = self._process.stdout, self._process.stderr
        self._open = [self._stdout, self._stderr]
        for pipe in self._open:
            os.set_blocking(pipe.fileno(), False)
        self._seconds = {pipe: Second(MOST_BYTES_A_SECOND) for pipe in self._open}

    def read(self, timeout: float, *, is_braked: bool = False) -> bytes:
        """New output, after waiting at most `timeout` seconds; empty if there is none, or if `is_braked`.

        Its stderr is read as well.
        """
        waits = {pipe: self._seconds[pipe].left() for pipe in self._open}
        wanted = [pipe for pipe in self._open if not waits[pipe] and not (is_braked and pipe is self._stdout)]
        least = min((wait for wait in waits.values() if wait), default=timeout)
        if not self._open:
            least = _STEP_SECONDS  # it may end any time
        ready = signals.ready(wanted, min(timeout, least))
        if self._stderr in ready:
            self._taker.take(self._chunk(self._stderr))
        return self._chunk(self._stdout) if self._stdout in ready else b""

    def _chunk(self, pipe: IO[bytes]) -> bytes:
        written = pipe.read(_CHUNK)
        if written == b"":
            self._open.remove(pipe)
        self._seconds[pipe].take(len(written or b""))
        return written or b""

    def exit_status(self) -> int | None:
        """The exit status as in `subprocess`; None while the program runs."""
        self._reap_adopted()
        return self._process.poll()

    def end(self) -> tuple[bool, list[str]]:
        """End it, its process group and all other processes that it has started, by SIGTERM and then SIGKILL.

        Returns False if a process sleeps in the kernel and cannot be ended, and the names of processes outside its
        group.
        """
        if not self._ends(signal.SIGTERM) and not self._ends(signal.SIGKILL):
            return False, []
        self._signal(signal.SIGKILL)  # remaining processes of its group
        return self._end_orphans()

    def rest(self) -> bytes:
        """Return the rest of the output after its end, and close its pipes."""
        rest = b""
        for pipe in [*self._open]:
            written = pipe.read() or b""  # what it holds: nobody else writes
            if pipe is self._stdout:
                rest = written
            else:
                self._taker.take(written)
                self._taker.take(b"")
        self._stdout.close()
        self._stderr.close()
        self._open = []
        return rest

    def _ends(self, number: signal.Signals) -> bool:
        if self._process.poll() is None:
            self._signal(number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(PATIENCE_SECONDS)
        return self._process.poll() is not None

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)

    def _reap_adopted(self) -> None:
        """Reap the processes that have outlived their parents and have ended, so that none stays as a zombie."""
        with contextlib.suppress(ChildProcessError):
            while ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                if ended.si_pid == self._process.pid:
                    return
                os.waitpid(ended.si_pid, 0)

    def _end_orphans(self) -> tuple[bool, list[str]]:
        """End the processes that have outlived their parents, of which this process has become the parent."""
        names: dict[int, str] = {}
        deadline = time.monotonic() + PATIENCE_SECONDS
        while _has_children():
            for child, stat in children():
                if stat.state == "Z":
                    continue
                if stat.group != self._process.pid:
                    names[child] = plain(stat.name, _LONGEST_NAMED)
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(child, signal.SIGKILL)  # a child's id is not given to another process before it is reaped
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            if time.monotonic() > deadline:
                return False, []
            time.sleep(_STEP_SECONDS / 10)
        return True, list(names.values())


def left_behind(names: Sequence[str]) -> str:
    """The processes that a program has left behind, as text."""
    number = "1 process" if len(names) == 1 else f"{len(names)} processes"
    return f"{number} left behind and ended: {', '.join(sorted(set(names)))[:_LONGEST_NAMED]}"


def _has_children() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _prepare() -> None:
    """Set up the new process: it ends with this one, and no signal is blocked."""
    die_with_parent(signal.SIGKILL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def how_it_ended(status: int) -> str:
    """The exit status as text."""
    return f"exit status {status}" if status >= 0 else f"killed by {signal.Signals(-status).name}"
