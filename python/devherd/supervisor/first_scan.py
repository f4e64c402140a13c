"""The first scan, in a process of its own: it reads the configuration and scans while the supervisor still imports.

The supervisor has the configuration from it over a pipe, takes its locks, and only then lets it write the spool. While
the supervisor has to wait for its locks, it rehearses: it scans and writes nothing.
"""

import contextlib
import logging
import os
import pickle
import select
import signal
import sys
import time
from collections.abc import Callable, Mapping
from typing import BinaryIO, NoReturn

from devherd import log as logs
from devherd.config.resolved import Config
from devherd.errors import DevherdError
from devherd.supervisor import fork
from devherd.supervisor.title import entitle

log = logging.getLogger(__name__)

NAME = "scanner"
"""Its name in the log: it does the scanner's work."""
_GO, _REHEARSE = b"g", b"r"
_REHEARSED = b"."

Scan = Callable[[Config], None]


class FirstScan:
    """The supervisor's side; to be closed before other children start. No method raises when the process has died."""

    def __init__(self, load: Callable[[], Config], scan: Scan, rehearse: Scan) -> None:
        answers, answer = os.pipe()
        order, self._orders = os.pipe()
        parent = os.getpid()
        with fork.signals_held():
            self._pid = os.fork()
            if self._pid == 0:
                os.close(answers)
                os.close(self._orders)
                _run(load, {_GO: scan, _REHEARSE: rehearse}, os.fdopen(answer, "wb"), order, parent)
        os.close(answer)
        os.close(order)
        self._answers = os.fdopen(answers, "rb")

    def config(self) -> Config | None:
        """The configuration, once it is read; None when it is bad, which the process has logged."""
        try:
            config: Config = pickle.load(self._answers)  # noqa: S301 - from our own fork
        except (EOFError, pickle.UnpicklingError):
            return None
        return config

    def rehearse(self) -> None:
        """Let it do what it can do before the locks are held; `rehearsed` waits for that."""
        with contextlib.suppress(BrokenPipeError):  # it has died: `rehearsed` says so
            os.write(self._orders, _REHEARSE)

    def rehearsed(self, seconds: float) -> bool:
        """Wait so long for the end of the rehearsal, to be called until it came: whether it has come.

        Raises DevherdError when it went wrong, which is logged.
        """
        if not select.select([self._answers], [], [], seconds)[0]:
            return False
        if self._answers.read(len(_REHEARSED)) != _REHEARSED:
            raise DevherdError(
                "this instance cannot take over", "its rehearsal failed, as logged above", "the one that runs goes on"
            )
        return True

    def begin(self) -> None:
        """Let it scan and write the spool."""
        try:
            os.write(self._orders, _GO)
        except BrokenPipeError:
            log.error("the first scan ended before it began; the scanner makes another")

    def wait(self, seconds: float) -> None:
        """Wait for its end; a scan that takes longer is broken off and left to the scanner."""
        until = time.monotonic() + seconds
        while select.select([self._answers], [], [], max(0.0, until - time.monotonic()))[0]:
            if not self._answers.read1(len(_REHEARSED)):  # its end, and not that of a rehearsal that took long
                os.waitpid(self._pid, 0)
                return
        log.warning("the first scan takes longer than %.0f s; resources come as the scanner finds them", seconds)
        os.kill(self._pid, signal.SIGKILL)  # reaped by the herd: it may be in an uninterruptible sleep

    def exit_code(self) -> int:
        """Its exit code, once it has ended. Raises DevherdError when it was killed."""
        code = os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])
        if code < 0:
            raise DevherdError("the first scan was killed", f"by {signal.Signals(-code).name}", "start devherd again")
        return code

    def close(self) -> None:
        """Close the connection. A first scan that was not started ends without a trace."""
        self._answers.close()
        os.close(self._orders)


def _run(load: Callable[[], Config], work: Mapping[bytes, Scan], answer: BinaryIO, order: int, parent: int) -> NoReturn:
    code = fork.CRASHED
    try:
        fork.reset_signals()
        fork.die_with(parent)
        config = load()
        settings = config.settings()
        entitle("first scan", settings)
        pickle.dump(config, answer)
        answer.flush()
        logs.configure(NAME, settings.log_level, settings.log_format)
        while given := os.read(order, 1):
            work[given](config)
            if given == _GO:
                break
            answer.write(_REHEARSED)
            answer.flush()
        code = 0
    except DevherdError as error:
        print(f"devherd: {error}", file=sys.stderr)  # noqa: T201 - the command's own error line
        code = error.exit_code
    except BrokenPipeError:
        code = 0  # the supervisor ended during its start: the result is not needed
    except BaseException:  # whatever it is, it must not get into the supervisor's frames below
        log.exception("the first scan crashed")
    finally:
        fork.end(code)
