"""What a child writes to stdout and stderr: to a log file of bounded size, and line by line to our stderr."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from supervisor.dispatchers import POutputDispatcher
from supervisor.events import ProcessCommunicationStdoutEvent
from supervisor.loggers import RotatingFileHandler

log = logging.getLogger(__name__)

LOG_BYTES = 256 * 1024
LOG_BACKUPS = 1
_LONGEST_LINE = 64 * 1024


class LogFile(RotatingFileHandler):  # supervisord's own, so that `supervisorctl clear` and SIGUSR2 work on it
    """A child's log file. On a full disk the file loses lines; nothing else fails."""

    stream: Any
    _complained = False

    def emit(self, record: Any) -> None:
        """Write a line, or lose it; one that was closed half way through a rotation is opened again."""
        try:
            if self.stream.closed:
                self.stream = Path(self.baseFilename).open(self.mode)  # noqa: SIM115 - a handler's file
            super().emit(record)
        except OSError:
            self.handleError()

    def close(self) -> None:
        """Close it, also when there is no room for what was not yet written."""
        try:
            if not self.stream.closed:
                super().close()
        except OSError:
            self.handleError()
        self.closed = True

    def handleError(self) -> None:  # noqa: N802 - supervisord's name
        """Say once that lines are lost; called in an `except` clause."""
        if not self._complained:
            log.warning("cannot write %s, its lines are only on stderr", self.baseFilename, exc_info=False)
        self._complained = True


class Output(POutputDispatcher):
    """One child's pipe. `forward` is given whole lines, so that those of two children do not mix."""

    def __init__(self, process: Any, descriptor: int, forward: Callable[[bytes], None]) -> None:
        super().__init__(process, ProcessCommunicationStdoutEvent, descriptor)
        self._forward = forward
        self._line = b""

    def _init_normallog(self) -> None:
        config = self.process.config
        self.normallog = config.options.getLogger()
        try:
            file = LogFile(config.stdout_logfile, "ab", config.stdout_logfile_maxbytes, config.stdout_logfile_backups)
        except OSError as error:
            log.warning("no log file, its lines are only on stderr: %s", error)
        else:
            self.normallog.addHandler(file)

    def _log(self, data: bytes) -> None:
        super()._log(data)
        lines, newline, rest = (self._line + data).rpartition(b"\n")
        if len(rest) > _LONGEST_LINE:
            lines, newline, rest = lines + newline + rest, b"\n", b""
        self._line = rest
        self._forward(lines + newline)

    def end(self) -> None:
        """Give out the unfinished line and close the file: the child has ended."""
        if self._line:
            self._forward(self._line + b"\n")
        self._line = b""
        self.normallog.close()
