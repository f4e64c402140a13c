"""What the supervisor notices of the kubelet: it is away, was restarted, its directories were removed on the host."""

import logging
import time
from pathlib import Path

from devherd.errors import DevherdError
from devherd.history import History
from devherd.kubelet.endpoint import Identity, identity
from devherd.kubelet.registration import knock, may_listen
from devherd.mounts import mount_at, mounts_of
from devherd.settings import Settings
from devherd.text import duration

log = logging.getLogger(__name__)

REMOVED = "removed on the host"
WHY = "what is made there now can be seen only after a restart of the container or service"
CURE = "nothing, if that comes by itself, as in Kubernetes and under systemd; otherwise restart it"


class KubeletWatch:
    """Logs when the kubelet goes away, comes back or was restarted. `look` is called again and again."""

    def __init__(self, settings: Settings, history: History) -> None:
        self._settings = settings
        self._history = history
        self._since: float | None = None
        self._says_removed = False
        self._socket: Identity | None = identity(settings.kubelet_socket)

    def look(self, *, is_awaited: bool) -> None:
        """Log changes; `is_awaited` is True if a resource's process waits for the kubelet.

        If no process waits, the kubelet may still be away: the process that waited may have been stopped or restarted.
        """
        now = time.monotonic()
        before, self._socket = self._socket, identity(self._settings.kubelet_socket) or self._socket
        if is_awaited and self._since is None:
            self._since = now
            self._log(logging.WARNING, f"the kubelet is away: {self._why()}; resources wait for it")
        elif not is_awaited and self._since is not None and may_listen(self._settings):
            away, self._since = duration(now - self._since), None
            self._log(logging.INFO, f"the kubelet is back after {away}")
        elif self._since is None and before not in (None, self._socket):
            self._log(logging.INFO, "the kubelet was restarted; resources register again")

    def lost(self, *, is_served: bool) -> DevherdError | None:
        """Why this instance must end: the host has removed a directory that is bound here; None if none is.

        It is still seen here, without links, and what the host makes in its place is not: only a new mount namespace
        has that. `is_served`: a resource is still served over connections of before, which such an end would cut.
        """
        settings = self._settings
        removed = [path for path in settings.kubelet_directories if _has_no_links(path)]
        removed = [path for path in removed if (mount := mount_at(path.resolve(), mounts_of())) and mount.is_removed]
        if not removed:
            return None
        names = ", ".join(map(str, removed))
        if is_served and removed != [settings.pod_resources_socket.parent]:
            if not self._says_removed:
                self._log(logging.WARNING, f"{REMOVED}: {names}; connections last until the kubelet ends")
            self._says_removed = True
            return None
        self._history.note("kubelet", f"devherd ends: {REMOVED}: {names}")
        return DevherdError(f"{REMOVED}: {names}", WHY, CURE)

    def _why(self) -> str:
        directory = self._settings.socket_directory
        if not directory.is_dir():
            return f"{directory} does not exist"
        is_found, own = self._settings.registration == "plugins_registry", self._settings.kubelet_socket
        refusal = knock(own) if not is_found or own.parent.is_dir() else None
        return refusal or (f"it does not look into {directory}" if is_found else "it did not accept registrations")

    def _log(self, level: int, what: str) -> None:
        log.log(level, "%s", what)
        self._history.note("kubelet", what)


def _has_no_links(path: Path) -> bool:
    try:
        return path.stat().st_nlink == 0
    except OSError:
        return False
