"""A program of the operator's: in a process group of its own, read without waiting, ended with all that it started."""

import contextlib
import os
import select
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from devherd._native import die_with_parent
from devherd.health.sources.trusted import distrusted

PATIENCE_SECONDS = 2.0
"""Between a friendly request to end and SIGKILL, and from there to giving up: it sleeps in the kernel."""
_STEP_SECONDS = 0.05
UNENDING = "it cannot be ended: it sleeps in the kernel (state D)"


class NotStartedError(Exception):
    """A program cannot be started: why."""


def started(command: Sequence[str]) -> "RunningProgram":
    """The program, running. Raises NotStartedError."""
    try:
        why = distrusted(Path(command[0]))
        if why is None:
            return RunningProgram(command)
    except OSError as error:
        why = f"{command[0]} cannot be started: {error.strerror or error}"
    raise NotStartedError(why)


class RunningProgram:
    """Its stdout is read; its stderr goes to the log of this process. Raises OSError when it cannot be started."""

    def __init__(self, command: Sequence[str]) -> None:
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
        """Nothing more will be read from it."""

    def read(self, timeout: float) -> bytes:
        """What it has written, after at most `timeout` seconds of waiting; empty when that is nothing."""
        if self.is_at_end:
            time.sleep(min(timeout, _STEP_SECONDS))
            return b""
        if not select.select([self._stdout], [], [], timeout)[0]:
            return b""
        written = self._stdout.read(65_536)
        self.is_at_end = written == b""
        return written or b""

    def exit_status(self) -> int | None:
        """As of subprocess; None while it runs."""
        return self._process.poll()

    def end(self) -> bool:
        """End it and everything in its process group; False when it sleeps in the kernel and cannot be ended.

        Its stdin is closed first, which asks it to end.
        """
        with contextlib.suppress(OSError):
            if self._process.stdin:
                self._process.stdin.close()
        if not self._ends(signal.SIGTERM) and not self._ends(signal.SIGKILL):
            return False
        self._signal(signal.SIGKILL)  # what it has left behind in its group
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


def _prepare() -> None:
    """In the new process: it ends with this one, and no signal is held back from it."""
    die_with_parent(signal.SIGKILL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def how_it_ended(status: int) -> str:
    """For people."""
    return f"exit status {status}" if status >= 0 else f"killed by {signal.Signals(-status).name}"
