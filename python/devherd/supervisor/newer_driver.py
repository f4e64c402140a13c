"""`devherd run --restart-for-driver`: ends when NVIDIA's driver has become newer than the library of the container.

NVIDIA's runtime binds the driver's files into a container when it starts, and never again.
"""

import json
import logging
import time

from devherd import spool
from devherd.history import History
from devherd.proto import spool_pb2
from devherd.settings import Settings
from devherd.spool import Identity, identity_of

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
