"""Logging on stderr, as lines for people or as JSON, one object a line."""

import json
import logging
import sys
import time

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
_LIBRARIES = ("asyncio", "grpc")
"""They log each turn of their loops at debug, which is for devherd's own lines."""


class _TextFormatter(logging.Formatter):
    def __init__(self, process: str) -> None:
        super().__init__(f"%(asctime)s.%(msecs)03dZ %(levelname)-7s {process}: %(message)s", "%Y-%m-%dT%H:%M:%S")
        self.converter = time.gmtime


class _JsonFormatter(logging.Formatter):
    def __init__(self, process: str) -> None:
        super().__init__()
        self._process = process
        self.about: dict[str, str] = {}

    def format(self, record: logging.LogRecord) -> str:
        entry = {
            "time": f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(record.created))}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "process": self._process,
            "message": record.getMessage(),
        }
        # What the message is about, by `extra={"fields": …}`; parts that say nothing are left out.
        entry |= self.about | {name: value for name, value in getattr(record, "fields", {}).items() if value}
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        return json.dumps(entry, ensure_ascii=False)


def _is_worth_a_line(record: logging.LogRecord) -> bool:
    """Not that a call ended before grpc had begun to handle it, as at a stop: nobody can do anything about that."""
    error = record.exc_info[0] if record.exc_info else None
    return not (record.name.startswith("grpc") and error is not None and error.__name__ == "CancelledError")


def configure(process: str, level: str, log_format: str) -> None:
    """Send this process's log to stderr; `process` is the name supervisorctl knows it by."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonFormatter(process) if log_format == "json" else _TextFormatter(process))
    handler.addFilter(_is_worth_a_line)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    if root.level != LEVELS[level]:  # setting it touches every logger, and a forked process shares those until then
        root.setLevel(LEVELS[level])
    if level == "debug":
        for library in _LIBRARIES:
            logging.getLogger(library).setLevel(logging.WARNING)


def about(**fields: str) -> None:
    """What every line of this process is about from now on: fields of the JSON lines."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler.formatter, _JsonFormatter):
            handler.formatter.about = fields
