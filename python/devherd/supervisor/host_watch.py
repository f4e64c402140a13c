"""What the supervisor notices of the host: the kubelet is away or was restarted; NVIDIA's driver has become newer."""

import json
import logging
import time
from pathlib import Path

from devherd import spool
from devherd.errors import DevherdError
from devherd.history import History
from devherd.kubelet.endpoint import Identity as SocketIdentity
from devherd.kubelet.endpoint import identity
from devherd.kubelet.registration import is_away, knock, may_listen
from devherd.mounts import mount_at, mounts_of
from devherd.proto import spool_pb2
from devherd.settings import Settings
from devherd.spool import Identity, identity_of
from devherd.text import duration

log = logging.getLogger(__name__)


class NewerDriver:
    """Reads the answer of `source:nvml`. `look` is called each few seconds."""

    def __init__(self, settings: Settings, history: History) -> None:
        self._settings = settings
        self._history = history
        self._seen: Identity | None = None
        self._versions: list[str] | None = None
        self._since = 0.0

    def look(self) -> bool:
        """Whether the container must end now; it is noted for the next one."""
        seen = identity_of(self._settings.nvml_answer_file)
        if seen != self._seen:
            self._seen, before = seen, self._versions
            self._versions = self._read()
            if self._versions != before:
                self._since = time.monotonic()
        if self._versions is None or time.monotonic() - self._since < self._settings.waits.newer_driver:
            return False
        driver, library = self._versions
        try:
            last = spool.read_or_empty(self._settings.driver_restart_file, spool_pb2.DriverRestart)
        except OSError:  # no descriptor is left: asked again
            return False
        if (last.driver, last.library) == (driver, library):
            return False
        return self._has_noted(driver, library)

    def _read(self) -> list[str] | None:
        try:
            versions: list[str] | None = json.loads(self._settings.nvml_answer_file.read_bytes()).get("newer_driver")
        except (OSError, ValueError):
            return None
        return versions

    def _has_noted(self, driver: str, library: str) -> bool:
        """Note the versions: where a restart did not help, another one would not either."""
        noted = spool_pb2.DriverRestart(driver=driver, library=library, timestamp_seconds=time.time())
        try:
            spool.write(self._settings.driver_restart_file, noted)
        except OSError as error:
            log.debug("cannot write %s: %s", self._settings.driver_restart_file, error)
            return False
        text = (
            f"the NVIDIA driver {driver} is newer than the library {library} of this container: devherd ends, so that"
            " the container is started with the driver's own library"
        )
        log.warning("%s", text)
        self._history.note("process", text)
        return True


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
        self._socket: SocketIdentity | None = identity(settings.kubelet_socket)

    def look(self, *, is_awaited: bool) -> None:
        """Log changes; `is_awaited` is True if a resource's process waits for the kubelet.

        If no process waits, the kubelet may still be away: the process that waited may have been stopped or restarted.
        """
        now = time.monotonic()
        before, self._socket = self._socket, identity(self._settings.kubelet_socket) or self._socket
        if is_awaited and self._since is None:
            self._since = now
            state = "is away" if is_away(self._settings) or may_listen(self._settings) else "cannot be called"
            self._log(logging.WARNING, f"the kubelet {state}: {self._why()}; resources wait for it")
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
