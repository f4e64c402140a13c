"""The supervisor's own log: on stderr like every process's, and in a file for `supervisorctl maintail`.

supervisord has a logger of its own. Its messages about processes are repeated here with their full names, so below
level error they are for debugging only.
"""

import contextlib
import logging
from logging.handlers import RotatingFileHandler
from typing import Any

from supervisor import loggers
from supervisor.loggers import LevelsByName

from devherd import log as logs
from devherd.settings import Settings
from devherd.supervisor.output import LOG_BACKUPS, LOG_BYTES
from devherd.supervisor.stderr import Stderr

log = logging.getLogger("devherd.supervisor.supervisord")

NAME = "supervisor"


class _File(RotatingFileHandler):
    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's name
        """On a full disk the file loses lines; stderr has them."""

    def close(self) -> None:
        """Close it, also when there is no room for what was not yet written."""
        with contextlib.suppress(OSError):
            super().close()


class _Bridge(loggers.Handler):
    """Gives supervisord's messages to `logging`."""

    def __init__(self, file: _File) -> None:
        super().__init__()
        self._file = file

    def emit(self, record: Any) -> None:
        level = logging.ERROR if record.level >= LevelsByName.ERRO else logging.DEBUG
        log.log(level, "%s", record.asdict()["message"])

    def reopen(self) -> None:
        """For SIGUSR2 and `clear`: logging opens a closed file again with its next record."""
        self._file.close()

    def close(self) -> None:
        self._file.close()


def configure(settings: Settings, stderr: Stderr) -> Any:
    """Start logging; supervisord's logger."""
    logs.configure(NAME, settings.log_level, settings.log_format)
    root = logging.getLogger()
    terminal = root.handlers[0]
    assert isinstance(terminal, logging.StreamHandler)
    terminal.setStream(stderr)
    file = _File(main_log_path(settings), maxBytes=LOG_BYTES, backupCount=LOG_BACKUPS, delay=True)
    file.setFormatter(terminal.formatter)
    root.addHandler(file)
    level = LevelsByName.DEBG if root.isEnabledFor(logging.DEBUG) else LevelsByName.ERRO
    return loggers.Logger(level, [_Bridge(file)])


def main_log_path(settings: Settings) -> str:
    """The file that `supervisorctl maintail` shows."""
    return str(settings.logs_directory / f"{NAME}.log")
