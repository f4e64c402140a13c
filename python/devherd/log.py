"""Logging on stderr, as lines for people or as JSON, one object a line."""

import json
import logging
import sys
import time

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


class _TextFormatter(logging.Formatter):
    def __init__(self, process: str) -> None:
        super().__init__(f"%(asctime)s.%(msecs)03d %(levelname)-7s {process}: %(message)s", "%Y-%m-%dT%H:%M:%S")
        self.converter = time.gmtime


class _JsonFormatter(logging.Formatter):
    def __init__(self, process: str) -> None:
        super().__init__()
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        entry = {
            "time": f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(record.created))}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "process": self._process,
            "message": record.getMessage(),
        }
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        return json.dumps(entry, ensure_ascii=False)


def configure(process: str, level: str, log_format: str) -> None:
    """Send this process's log to stderr; `process` is the name supervisorctl knows it by."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonFormatter(process) if log_format == "json" else _TextFormatter(process))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(LEVELS[level])
