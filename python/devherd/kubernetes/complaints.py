"""What a process that talks to the API server cannot do, for the scanner to show among the problems.

One file a process in `<run-dir>/told`, there for as long as the complaint holds.
"""

import contextlib
import json
from collections.abc import Collection, Iterator
from pathlib import Path

from devherd import spool
from devherd.proto import spool_pb2

KUBERNETES = "kubernetes"
"""In the place of a vendor's name."""
_SUFFIX = ".complaint"


class Complaints:
    """Those of one process, by what they are about."""

    def __init__(self, directory: Path, process: str) -> None:
        self._file = directory / f"{process}{_SUFFIX}"
        self._said: str | None = None
        self._is_written = True

    def say(self, about: str, what: str) -> bool:
        """Let this be known, `about` being a path, a label or the like; True where it is news."""
        is_news = what != self._said
        self._said = what
        if is_news or not self._is_written:
            with contextlib.suppress(OSError):  # a full disk: the log has it, and it is tried again
                self._is_written = False
                spool.update(self._file, json.dumps({"path": about, "error": what}).encode())
                self._is_written = True
        return is_news

    def take_back(self) -> bool:
        """All is well; True where something had been said by this process."""
        with contextlib.suppress(OSError):
            self._file.unlink(missing_ok=True)
        had, self._said = self._said, None
        return had is not None


def complaints_in(directory: Path, processes: Collection[str]) -> Iterator[spool_pb2.Problem]:
    """What these processes complain of."""
    for process in sorted(processes):
        try:
            said = json.loads((directory / f"{process}{_SUFFIX}").read_bytes())
            yield spool_pb2.Problem(vendor=KUBERNETES, path=str(said["path"]), error=str(said["error"]))
        except (OSError, ValueError, TypeError, KeyError):
            continue
