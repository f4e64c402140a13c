"""A file with the lines that a program may print."""

import os
import stat
import time
from pathlib import Path

from devherd.health.sources.external.report import Report
from devherd.health.sources.order import Order
from devherd.health.sources.trusted import distrusted
from devherd.spool.identity import Identity, identity_of

MOST_FILE = 1 << 20


class ReadFile:
    """Replaced as a whole by whoever writes it: what it does not say stands no longer."""

    def __init__(self, order: Order) -> None:
        self.report = Report(order.file)
        self.spoke_at = time.monotonic()
        self._path = Path(order.file)
        self._read: Identity | None = None
        """The version that was read; None as long as there is none that can be: rights may change, and the file not."""

    def listen(self, timeout: float) -> None:
        """Read it when it has changed."""
        identity = identity_of(self._path, follow_symlinks=True)
        if identity is None or identity != self._read:
            try:
                self._read = identity if self._look() else None
            except OSError as error:
                self._read = None
                self.report.failed = f"it cannot be read: {error.strerror or error}"
        time.sleep(timeout)

    def close(self) -> None:
        """Nothing was started."""

    def _look(self) -> bool:
        """Whether it may be read, whatever it says."""
        why = distrusted(self._path)
        if why:
            self.report.failed = why
            return False
        descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a FIFO would hang
        with os.fdopen(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            content = file.read(MOST_FILE + 1) if stat.S_ISREG(status.st_mode) else b""
        if not stat.S_ISREG(status.st_mode):
            self.report.failed = "it is not a regular file"
        elif len(content) > MOST_FILE:
            self.report.failed = f"it is larger than {MOST_FILE} bytes"
        else:
            self.report.replace(content)
        if not self.report.failed:
            self.spoke_at = time.monotonic() - (time.time() - status.st_mtime)
        return True
