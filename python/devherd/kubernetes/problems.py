"""The current problem of a part of the process that talks to the API server.

`<run-dir>/kubernetes/problems/<part>/current.pb` has it; log and history record each change.
"""

import contextlib
import logging
from pathlib import Path

from devherd import spool
from devherd.history import History
from devherd.proto import spool_pb2
from devherd.settings import Settings

log = logging.getLogger(__name__)

KUBERNETES = "kubernetes"
"""Used in place of a vendor's name."""


class Problems:
    """The problem of one part: at most one at a time."""

    def __init__(self, settings: Settings, part: str, history: History) -> None:
        """`history` is the process's."""
        self._directory = settings.kubernetes_problems_directory
        self._key = part
        self._history = history
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
        """Report that the problem is solved, if there is one."""
        if self._problem is not None:
            forget_problem(self._directory, self._key)
            self._log(logging.INFO, self._problem, f"solved: {self._problem.error}")
        self._problem = None
        self._history.keep()

    def notice(self, about: str, what: str) -> None:
        """Log and record something that is not a lasting problem."""
        self._log(logging.WARNING, spool_pb2.Problem(vendor=KUBERNETES, path=about, error=what), what)
        self._history.keep()

    def _log(self, level: int, problem: spool_pb2.Problem, what: str) -> None:
        line = f"{problem.vendor}: {problem.path}: {what}"
        fields = {"vendor": problem.vendor, "file": problem.path}
        log.log(level, "%s", line, extra={"fields": fields})
        self._history.note("problem", line, details=fields)


def forget_problem(directory: Path, part: str) -> None:
    """Remove the file of a part, which does not run any more."""
    with contextlib.suppress(OSError):
        spool.remove(directory, part)
