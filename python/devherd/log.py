"""Logging to stderr, as text or as JSON, one object a line."""

import json
import logging
import sys
import time

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
_LIBRARIES = ("asyncio", "grpc")
"""Libraries whose debug lines are left out."""


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
        # The subject of the message, by `extra={"fields": …}`, without empty fields.
        entry |= self.about | {name: value for name, value in getattr(record, "fields", {}).items() if value}
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        return json.dumps(entry, ensure_ascii=False)


def _is_worth_a_line(record: logging.LogRecord) -> bool:
    """False for calls that were cancelled before gRPC handled them, as at a shutdown: they need no action."""
    error = record.exc_info[0] if record.exc_info else None
    return not (record.name.startswith("grpc") and error is not None and error.__name__ == "CancelledError")


def configure(process: str, level: str, log_format: str) -> None:
    """Send this process's log to stderr; `process` is its name in supervisorctl."""
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
    """Set the fields that every further JSON line of this process contains."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler.formatter, _JsonFormatter):
            handler.formatter.about = fields
