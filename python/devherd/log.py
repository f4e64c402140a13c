"""Logging to stderr, as text or as JSON, one object a line."""

import contextlib
import json
import logging
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
_LIBRARIES = ("asyncio", "grpc")
"""Libraries whose debug lines are left out."""


_PRIORITIES = {"DEBUG": 7, "INFO": 6, "WARNING": 4, "ERROR": 3, "CRITICAL": 2}
"""Priorities of syslog(3), by the name of a level."""
_OF_TEXT = re.compile(rb"\S+Z (?P<level>[A-Z]+) +(?P<text>.*)", re.DOTALL)
_OF_JSON = re.compile(rb'\{"time": "[^"]*", "level": "(?P<level>[a-z]+)", .*', re.DOTALL)


def is_journal(descriptor: int) -> bool:
    """True if systemd's journal reads the descriptor (systemd.exec(5), `$JOURNAL_STREAM`)."""
    try:
        status = os.fstat(descriptor)
    except OSError:
        return False
    return os.environ.get("JOURNAL_STREAM") == f"{status.st_dev}:{status.st_ino}"


def for_journal(lines: bytes) -> bytes:
    """Log lines for the journal: with their priority in front (sd-daemon(3)) and without the time.

    A line of other output, for example of a traceback, gets the priority of the line before.
    """
    made, priority = [], b""
    for line in lines.splitlines(keepends=True):
        of_text, of_json = _OF_TEXT.match(line), _OF_JSON.match(line)
        if found := of_text or of_json:
            number = _PRIORITIES.get(found["level"].decode().upper())
            priority = b"" if number is None else b"<%d>" % number
        made.append(priority + (of_text["text"] if of_text else line))
    return b"".join(made)


class Once:
    """Logs a repeated complaint once, until it changes or is over."""

    def __init__(self, tell: Callable[..., None]) -> None:
        """`tell` logs it: `warning` or `error` of a logger."""
        self._tell = tell
        self._last: object = None

    @property
    def lasts(self) -> bool:
        """True if there is a complaint that is not over."""
        return self._last is not None

    def complain(self, text: str, *arguments: object, about: object = None) -> None:
        """Log the text unless the last complaint was the same. With `about`, compare that instead of the text."""
        complaint = text % arguments if about is None else about
        if complaint != self._last:
            self._tell(text, *arguments)
        self._last = complaint

    def over(self) -> None:
        """End the complaint: the next one is logged even if it is the same."""
        self._last = None


class _Journal:
    """A stream to the journal, for `logging`."""

    def write(self, text: str) -> None:
        sys.stderr.write(for_journal(text.encode(errors="replace")).decode(errors="replace"))

    def flush(self) -> None:
        sys.stderr.flush()


class _TextFormatter(logging.Formatter):
    def __init__(self, process: str) -> None:
        super().__init__(f"%(asctime)s.%(msecs)03dZ %(levelname)-7s {process}: %(message)s", "%Y-%m-%dT%H:%M:%S")
        self.converter = time.gmtime


class _JsonFormatter(logging.Formatter):
    def __init__(self, process: str) -> None:
        super().__init__()
        self.process = process
        self.about: dict[str, str] = {}

    def format(self, record: logging.LogRecord) -> str:
        entry = {
            "time": f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(record.created))}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "process": self.process,
            "message": record.getMessage(),
        }
        # The subject of the message, by `extra={"fields": …}`, without empty fields.
        entry |= self.about | {name: value for name, value in getattr(record, "fields", {}).items() if value}
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        return json.dumps(entry, ensure_ascii=False)


def _is_worth_a_line(record: logging.LogRecord) -> bool:
    """False for calls that were cancelled before gRPC handled them, for example at a shutdown: they need no action."""
    error = record.exc_info[0] if record.exc_info else None
    return not (record.name.startswith("grpc") and error is not None and error.__name__ == "CancelledError")


def configure(process: str, level: str, log_format: str) -> None:
    """Send this process's log to stderr; `process` is its name in supervisorctl."""
    handler = logging.StreamHandler(_Journal() if is_journal(2) else sys.stderr)
    handler.setFormatter(_JsonFormatter(process) if log_format == "json" else _TextFormatter(process))
    handler.addFilter(_is_worth_a_line)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    if root.level != LEVELS[level]:  # setting it touches every logger, and a forked process shares those until then
        root.setLevel(LEVELS[level])
    if level == "debug":
        for library in _LIBRARIES:
            logging.getLogger(library).setLevel(logging.WARNING)


def as_json(line: bytes, process: str) -> bytes:
    """A JSON log object for a line that a library wrote directly, without the log."""
    text = line.decode(errors="replace").rstrip("\n")
    record = logging.LogRecord("devherd", logging.WARNING, "", 0, "%s", (text,), None)
    return f"{_JsonFormatter(process).format(record)}\n".encode()


@contextlib.contextmanager
def library_lines_as_json() -> Iterator[None]:
    """Where stderr is the instance's: make objects of what libraries write meanwhile, if the log is JSON."""
    formatters = (handler.formatter for handler in logging.getLogger().handlers)
    process = next((each.process for each in formatters if isinstance(each, _JsonFormatter)), None)
    if process is None:
        yield
        return
    reading, writing = os.pipe()
    stderr = os.dup(2)
    os.dup2(writing, 2)
    os.close(writing)
    passing = threading.Thread(target=_pass_on, args=(reading, stderr, process), name="stderr", daemon=True)
    try:
        passing.start()
        yield
    finally:
        os.dup2(stderr, 2)  # the end of the pipe, too: nobody else writes to it
        if passing.ident is not None:
            passing.join()
        os.close(stderr)


def _pass_on(reading: int, stderr: int, process: str) -> None:
    with os.fdopen(reading, "rb") as lines:
        for line in lines:
            os.write(stderr, line if line.startswith(b"{") else as_json(line, process))


def fail(error: Exception) -> None:
    """Write the last line of a process that an error ends, `devherd: …`, in the format of the log."""
    line = f"devherd: {error}"
    handlers = logging.getLogger().handlers
    if os.environ.get("DEVHERD_LOG_FORMAT") == "json" or any(
        isinstance(each.formatter, _JsonFormatter) for each in handlers
    ):
        record = logging.LogRecord("devherd", logging.ERROR, "", 0, "%s", (line,), None)
        line = _JsonFormatter("supervisor").format(record)
    print(f"<3>{line}" if is_journal(2) else line, file=sys.stderr)  # noqa: T201 - the command's own error line


def about(**fields: str) -> None:
    """Set the fields that every further JSON line of this process contains."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler.formatter, _JsonFormatter):
            handler.formatter.about = fields
