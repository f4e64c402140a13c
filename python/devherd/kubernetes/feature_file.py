"""Labels by a feature file, which Node Feature Discovery's worker reads on the node.

<https://kubernetes-sigs.github.io/node-feature-discovery/stable/usage/customization-guide.html#local-feature-source>
"""

import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path

from devherd import spool
from devherd.kubernetes.labels_way import CannotLabelError

LARGEST_BYTES = 65_536
"""A larger file is ignored."""
LIFETIME_SECONDS = 24 * 3600.0
"""After so long without devherd its labels go: long enough for a repair, during which pods keep their node."""
REFRESH_SECONDS = 3600.0
WORKER_LISTENS_AGAIN_SECONDS = 1.5
"""The worker reads at the first event, which may be that of the file still being written, and misses all others until
a second is over (`runNotifier` in source/local/local.go): what it has missed it would find with its next look only, a
minute later."""
_EXPIRY = "# +expiry-time="
_MODE = 0o644
"""The worker does not run as root."""


class FeatureFile:
    """One file, replaced whole: a name with a dot in front is ignored while it is written.

    `pause` waits for so many seconds.
    """

    def __init__(self, path: Path, pause: Callable[[float], None] = time.sleep) -> None:
        self._path = path
        self._pause = pause

    def write(self, labels: Mapping[str, str]) -> str:
        """Have these labels in it; an empty text. Raises CannotLabelError."""
        now = time.time()
        if self._stands(labels, now):
            return ""
        content = rendered(labels, now + LIFETIME_SECONDS)
        if len(content) > LARGEST_BYTES:
            why = f"{len(content)} bytes of labels, and {LARGEST_BYTES} are the most"
            raise CannotLabelError(str(self._path), f"{why}: leave some out with `node_labels.omit`")
        try:
            spool.replace(self._path, content, mode=_MODE)
            self._pause(WORKER_LISTENS_AGAIN_SECONDS)
            self._path.chmod(_MODE)  # changes nothing, and is an event all the same
        except OSError as error:
            raise self._refused(error) from error
        return ""

    def remove(self) -> None:
        """Have no such file. Raises CannotLabelError."""
        try:
            self._path.unlink(missing_ok=True)
        except OSError as error:
            raise self._refused(error) from error

    def _stands(self, labels: Mapping[str, str], now: float) -> bool:
        try:
            content = self._path.read_text()
        except (OSError, ValueError):
            return False
        expiry = expiry_in(content)
        return (
            now + LIFETIME_SECONDS - REFRESH_SECONDS <= expiry <= now + LIFETIME_SECONDS
            and content.encode() == rendered(labels, expiry)
        )

    def _refused(self, error: OSError) -> CannotLabelError:
        if isinstance(error, FileNotFoundError):
            whose = "is not there, the directory of Node Feature Discovery's worker"
            return CannotLabelError(str(self._path.parent), f"{whose}: mount it, or choose another `node_labels.write`")
        return CannotLabelError(str(self._path), f"cannot be written: {error.strerror or error}")


def rendered(labels: Mapping[str, str], expiry: float) -> bytes:
    """The file's content."""
    time_text = datetime.fromtimestamp(int(expiry), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    lines = [f"{name}={value}" for name, value in sorted(labels.items())]
    return "\n".join(["# Written by devherd: node_labels", f"{_EXPIRY}{time_text}", *lines, ""]).encode()


def expiry_in(content: str) -> float:
    """The Unix second from which on the labels of a file are ignored; 0 where it says none."""
    for line in content.splitlines():
        if line.startswith(_EXPIRY):
            try:
                return datetime.fromisoformat(line.removeprefix(_EXPIRY)).timestamp()
            except ValueError:
                break
    return 0.0
