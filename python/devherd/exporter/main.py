"""The exporter process: HTTP for people, Prometheus and probes. One loop for sockets and signals, threads that answer.

It only reads: the run directory's files, the counters' files and the kubelet's PodResources API.
"""

import logging
import os
import signal
from typing import Any

from waitress import wasyncore

from devherd.child import BEAT_PERIOD_SECONDS, Child, take_reloads
from devherd.errors import DevherdError
from devherd.exporter.application import Application
from devherd.exporter.listener import Listener
from devherd.exporter.pod_resources import PodResources
from devherd.exporter.wakeup import Wakeup
from devherd.settings import Settings, version_of

log = logging.getLogger(__name__)


def main(child: Child) -> int:
    """The child's main function: runs until SIGTERM."""
    logging.getLogger("waitress.queue").setLevel(logging.ERROR)  # a burst of requests is no event
    return Exporter(child).run()


class Exporter:
    """The loop. SIGHUP reads the configuration again, SIGTERM ends it."""

    def __init__(self, child: Child) -> None:
        self._child = child
        self._ended = False
        self._sockets: dict[int, Any] = {}
        self._wakeup = Wakeup({signal.SIGTERM: self._end, signal.SIGHUP: self._reload}, self._sockets)
        take_reloads()
        application = Application(child.settings, child.heartbeats, PodResources(child.settings.pod_resources_socket))
        address = self._configured_address() if _has_changed_since_the_start(child.settings) else None
        self._listener = Listener(application, self._sockets, child.settings.listen if address is None else address)

    def run(self) -> int:
        """Serve until the end is asked for."""
        while not self._ended:
            self._child.beat()
            self._listener.tend()
            wasyncore.loop(timeout=BEAT_PERIOD_SECONDS, use_poll=True, map=self._sockets, count=1)
        return 0

    def _end(self) -> None:
        self._ended = True

    def _reload(self) -> None:
        address = self._configured_address()
        if address is not None:
            self._listener.move_to(address)

    def _configured_address(self) -> str | None:
        """What the configuration says now; None when it is bad."""
        from devherd import config as configuration  # noqa: PLC0415 - pydantic, for a process that may never reload

        try:
            return configuration.reload(self._child.settings, os.environ).listen
        except DevherdError as error:
            log.error("%s", error)
            return None


def _has_changed_since_the_start(settings: Settings) -> bool:
    """Whether the supervisor's settings may be older than the configuration: this exporter is not the first one."""
    return settings.config_path is not None and version_of(settings.config_path) not in (None, settings.config_seen)
