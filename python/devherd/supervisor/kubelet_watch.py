"""Says once that the kubelet is away, is back, or was restarted: each resource that meets it would say the same."""

import logging
import time

from devherd import amounts
from devherd.history.record import History
from devherd.kubelet.endpoint import Identity, identity
from devherd.kubelet.registration_socket import knock, may_listen
from devherd.settings import Settings

log = logging.getLogger(__name__)


class KubeletWatch:
    """Told once a second whether resources wait for the kubelet, as their processes mark in the shared pages."""

    def __init__(self, settings: Settings, history: History) -> None:
        self._settings = settings
        self._history = history
        self._since: float | None = None
        self._socket: Identity | None = identity(settings.kubelet_socket)

    def look(self, *, is_awaited: bool) -> None:
        """Say what has changed. That nobody waits shows little: who waited may have been stopped or started again."""
        now = time.monotonic()
        before, self._socket = self._socket, identity(self._settings.kubelet_socket) or self._socket
        if is_awaited and self._since is None:
            self._since = now
            self._say(logging.WARNING, f"the kubelet is away: {self._why()}; resources wait for it")
        elif not is_awaited and self._since is not None and may_listen(self._settings):
            away, self._since = amounts.duration(now - self._since), None
            self._say(logging.INFO, f"the kubelet is back after {away}")
        elif self._since is None and before not in (None, self._socket):
            self._say(logging.INFO, "the kubelet was restarted; resources register again")

    def _why(self) -> str:
        directory = self._settings.socket_directory
        if not directory.is_dir():
            return f"{directory} does not exist"
        is_found, own = self._settings.registration == "plugins_registry", self._settings.kubelet_socket
        refusal = knock(own) if not is_found or own.parent.is_dir() else None
        return refusal or (f"it does not look into {directory}" if is_found else "it did not accept registrations")

    def _say(self, level: int, what: str) -> None:
        log.log(level, "%s", what)
        self._history.note("kubelet", what)
