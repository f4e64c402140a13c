"""The output of processes: a child's stdout and stderr, the supervisor's stderr and its own log.

supervisord has its own logger. devherd logs the same events with full process names, so supervisord's messages below
level error are logged at debug.
"""

import contextlib
import logging
import logging.handlers
import os
import re
import select
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from supervisor import loggers
from supervisor.dispatchers import POutputDispatcher
from supervisor.events import ProcessCommunicationStdoutEvent
from supervisor.loggers import LevelsByName, RotatingFileHandler

from devherd import log as logs
from devherd.settings import Settings

log = logging.getLogger(__name__)
_supervisord = logging.getLogger("devherd.supervisor.supervisord")

MAIN_LOG = "supervisor"
"""Name of the supervisor's own log."""
LOG_BYTES = 256 * 1024
LOG_BACKUPS = 1
_LONGEST_LINE = 64 * 1024
_NO_THREAD = re.compile(rb"pthread_create failed|can't start new thread|no thread: ")
"""Of gRPC (src/core/util/posix/thd.cc), which then crashes or answers no more; of Python; of devherd's scan core."""
_LAST_WORDS_SECONDS = 30.0
"""A line that is older says nothing about the end of the process."""
PATIENCE_SECONDS = 0.2
"""How long a write to stderr waits for its reader."""
_PIPE_BYTES = select.PIPE_BUF  # a pipe that polls as writable takes this many bytes without blocking


class LogFile(RotatingFileHandler):  # supervisord's own, so that `supervisorctl clear` and SIGUSR2 work on it
    """A child's log file. On a full disk the file loses lines; nothing else fails."""

    stream: Any
    _complained = False

    def emit(self, record: Any) -> None:
        """Write a line, or lose it. A file that a failed rotation has closed is opened again."""
        try:
            if self.stream.closed:
                self.stream = Path(self.baseFilename).open(self.mode)  # noqa: SIM115 - a handler's file
            super().emit(record)
        except OSError:
            self.handleError()

    def close(self) -> None:
        """Close it, even if buffered lines cannot be written."""
        try:
            if not self.stream.closed:
                super().close()
        except OSError:
            self.handleError()
        self.closed = True

    def handleError(self) -> None:  # noqa: N802 - supervisord's name
        """Warn once that lines are lost; called in an `except` clause."""
        if not self._complained:
            log.warning("cannot write %s; logging to stderr only", self.baseFilename, exc_info=False)
        self._complained = True


class Output(POutputDispatcher):
    """One child's pipe. `forward` gets whole lines, so that lines of two children do not mix."""

    def __init__(self, process: Any, descriptor: int, forward: Callable[[bytes], None]) -> None:
        super().__init__(process, ProcessCommunicationStdoutEvent, descriptor)
        config = process.config
        self._name = config.child_name if config.options.settings.log_format == "json" else ""
        self._forward = forward
        self._line = b""
        self._no_thread_at = float("-inf")

    @property
    def lacks_threads(self) -> bool:
        """True if the child has just said that it could start no thread."""
        return time.monotonic() - self._no_thread_at < _LAST_WORDS_SECONDS

    def _init_normallog(self) -> None:
        config = self.process.config
        self.normallog = config.options.getLogger()
        try:
            file = LogFile(config.stdout_logfile, "ab", config.stdout_logfile_maxbytes, config.stdout_logfile_backups)
        except OSError as error:
            log.warning("cannot write the log file: %s; logging to stderr only", error)
        else:
            self.normallog.addHandler(file)

    def _log(self, data: bytes) -> None:
        if _NO_THREAD.search(data):
            self._no_thread_at = time.monotonic()
        lines, newline, rest = (self._line + data).rpartition(b"\n")
        if len(rest) > _LONGEST_LINE:
            lines, newline, rest = lines + newline + rest, b"\n", b""
        self._line = rest
        self._pass_on(lines + newline)

    def end(self) -> None:
        """Forward the unfinished line and close the file, after the child has ended."""
        if self._line:
            self._pass_on(self._line + b"\n")
        self._line = b""
        self.normallog.close()

    def _pass_on(self, lines: bytes) -> None:
        """Write lines to the file and forward them; in a log in JSON also those of libraries are objects."""
        if self._name:
            lines = b"".join(
                line if line.startswith(b"{") else logs.as_json(line, self._name)
                for line in lines.splitlines(keepends=True)
            )
        super()._log(lines)
        self._forward(lines)


class Stderr:
    """Writes to a descriptor that may be a pipe, a terminal or a file. Also a stream for `logging`."""

    def __init__(self, descriptor: int = 2) -> None:
        self._descriptor = descriptor
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLOUT)
        self._is_journal = logs.is_journal(descriptor)
        self._lost = 0

    def write(self, text: str) -> None:
        """Write text, or lose it."""
        self.send(text.encode(errors="replace"))

    def flush(self) -> None:
        """Do nothing: nothing is buffered."""

    def send(self, data: bytes) -> None:
        """Write bytes, or lose them."""
        if self._lost and self._takes_more(0):
            lost, self._lost = self._lost, 0
            self._send(f"devherd: {lost} bytes of log lost: stderr was not read in time\n".encode())
        self._send(data)

    def _send(self, data: bytes) -> None:
        if self._is_journal:
            data = logs.for_journal(data)
        while data:
            if not self._takes_more(0 if self._lost else PATIENCE_SECONDS):
                self._lost += len(data)
                return
            try:
                written = os.write(self._descriptor, data[:_PIPE_BYTES])
            except OSError:  # closed, or on a full disk: it cannot be reported anywhere else
                self._lost += len(data)
                return
            data = data[written:]

    def _takes_more(self, seconds: float) -> bool:
        return any(event & select.POLLOUT for _, event in self._poll.poll(seconds * 1000))


class _MainLogFile(logging.handlers.RotatingFileHandler):
    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's name
        """Ignore the error: on a full disk the file loses lines, and stderr has them."""

    def close(self) -> None:
        """Close it, even if buffered lines cannot be written."""
        with contextlib.suppress(OSError):
            super().close()


class _Bridge(loggers.Handler):
    """Passes supervisord's messages to `logging`."""

    def __init__(self, file: _MainLogFile) -> None:
        super().__init__()
        self._file = file

    def emit(self, record: Any) -> None:
        level = logging.ERROR if record.level >= LevelsByName.ERRO else logging.DEBUG
        _supervisord.log(level, "%s", record.asdict()["message"])

    def reopen(self) -> None:
        """Close the file for SIGUSR2 and `clear`: logging opens it again with the next record."""
        self._file.close()

    def close(self) -> None:
        self._file.close()


def configure_main_log(settings: Settings, stderr: Stderr) -> Any:
    """Start logging; returns supervisord's logger."""
    logs.configure(MAIN_LOG, settings.log_level, settings.log_format)
    root = logging.getLogger()
    terminal = root.handlers[0]
    assert isinstance(terminal, logging.StreamHandler)
    terminal.setStream(stderr)
    file = _MainLogFile(main_log_path(settings), maxBytes=LOG_BYTES, backupCount=LOG_BACKUPS, delay=True)
    file.setFormatter(terminal.formatter)
    root.addHandler(file)
    level = LevelsByName.DEBG if root.isEnabledFor(logging.DEBUG) else LevelsByName.ERRO
    return loggers.Logger(level, [_Bridge(file)])


def main_log_path(settings: Settings) -> str:
    """The file that `supervisorctl maintail` shows."""
    return str(settings.logs_directory / f"{MAIN_LOG}.log")
