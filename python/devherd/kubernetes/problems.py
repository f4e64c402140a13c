"""The current problem of a process that talks to the API server.

`<run-dir>/kubernetes/problems/<process>/current.pb` has it; log and history record each change.
"""

import contextlib
import logging

from devherd import spool
from devherd.history import History
from devherd.process import Child
from devherd.proto import spool_pb2

log = logging.getLogger(__name__)

KUBERNETES = "kubernetes"
"""Used in place of a vendor's name."""


class Problems:
    """The problem of one process: at most one at a time."""

    def __init__(self, child: Child) -> None:
        self._directory = child.settings.kubernetes_problems_directory
        self._key = child.name.partition(":")[2]
        self._history = History(child.settings.history_directory, child.name)
        self._problem: spool_pb2.Problem | None = None
        self._is_written = True

    def report(self, about: str, what: str) -> None:
        """Report a problem; `about` is a path, a label or the like."""
        problem = spool_pb2.Problem(vendor=KUBERNETES, path=about, error=what)
        if problem != self._problem:
            self._log(logging.WARNING, problem, what)
        if problem != self._problem or not self._is_written:
            self._problem, self._is_written = problem, False
            with contextlib.suppress(OSError):  # a full disk: the log has it, and the next report writes it
                self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
                spool.write(spool.path_of(self._directory, self._key), spool_pb2.Problems(problems=[problem]))
                self._is_written = True
        self._history.keep()

    def solve(self) -> None:
        """Report that the problem is solved."""
        with contextlib.suppress(OSError):
            spool.remove(self._directory, self._key)
        if self._problem is not None:
            self._log(logging.INFO, self._problem, f"solved: {self._problem.error}")
        self._problem = None
        self._history.keep()

    def _log(self, level: int, problem: spool_pb2.Problem, what: str) -> None:
        line = f"{problem.vendor}: {problem.path}: {what}"
        fields = {"vendor": problem.vendor, "file": problem.path}
        log.log(level, "%s", line, extra={"fields": fields})
        self._history.note("problem", line, details=fields)
