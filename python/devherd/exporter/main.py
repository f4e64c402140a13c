"""The exporter process: HTTP for people, Prometheus and probes, on one loop.

It also asks the kubelet, for all resource children, which devices it has.
"""

import asyncio
import contextlib
import logging
import signal
from typing import TYPE_CHECKING

from devherd import served
from devherd.child import BEAT_PERIOD_SECONDS, RENEW, Child, take_reloads
from devherd.config import resolved_file
from devherd.exporter.allocatable import AllocatableWriter
from devherd.exporter.application import Application
from devherd.exporter.encryption import Encryption
from devherd.exporter.gate import Gate
from devherd.exporter.listener import Listener
from devherd.kubelet.pod_resources import PodResources

if TYPE_CHECKING:
    from devherd.config.web import Web

log = logging.getLogger(__name__)


def main(child: Child) -> int:
    """The child's main function: runs until SIGTERM."""
    return asyncio.run(Exporter(child).run())


class Exporter:
    """SIGHUP reads the configuration again, SIGTERM ends it."""

    def __init__(self, child: Child) -> None:
        self._child = child
        pod_resources = PodResources(child.settings.pod_resources_socket)
        self._application = Application(child.settings, child.heartbeats, pod_resources)
        self._gate = Gate(self._application.answer)
        self._encryption = Encryption()
        self._web: Web | None = None
        self._listener = Listener(self._gate.answer, self._encryption)
        self._allocatable = AllocatableWriter(child.settings)
        self._stopped = asyncio.Event()
        self._is_outgrown = False
        self._complaint = ""

    async def run(self) -> int:
        """Serve until a stop is requested, or until only a new process can go on; the exit code.

        A defect in a task ends the process, and the supervisor starts another.
        """
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stopped.set)
        loop.add_signal_handler(signal.SIGHUP, self._reload)
        take_reloads()
        self._reload()
        with contextlib.closing(self._listener):
            async with asyncio.TaskGroup() as tasks:
                work = [tasks.create_task(self._beat()), tasks.create_task(self._allocatable.run())]
                await self._stopped.wait()
                for task in work:
                    task.cancel()
        return RENEW if self._is_outgrown else 0

    async def _beat(self) -> None:
        while True:
            if self._child.has_outgrown_its_sandbox():
                self._is_outgrown = True
                self._stopped.set()
            self._child.beat()
            if self._web is None:  # nothing is served before it is known to whom
                self._reload()
            self._encryption.tend()
            await self._listener.tend()
            self._tell()
            await asyncio.sleep(BEAT_PERIOD_SECONDS)

    def _tell(self) -> None:
        """Say in the run directory where it serves; again where somebody has removed that."""
        if self._web is None:
            return
        try:
            served.write(self._child.settings.served_file, self._listener.addresses())
        except OSError as error:  # a full disk: the next beat tries again
            log.debug("cannot write %s: %s", self._child.settings.served_file, error)

    def _reload(self) -> None:
        """Serve as the configuration in force says, which the supervisor writes again if it is removed."""
        try:
            config = resolved_file.read(self._child.settings.resolved_config_file)
        except resolved_file.ResolvedFileError as error:
            if str(error) != self._complaint:
                log.warning("%s; %s", error, "nothing is served" if self._web is None else "still serving as before")
            self._complaint = str(error)
            return
        self._complaint = ""
        settings = config.settings()
        if not (
            all(map(self._child.may_read, config.web.directories()))
            and all(map(self._child.may_serve_in, settings.listen_directories))
        ):
            log.info(
                "certificates or a socket are elsewhere by now: starting again, in a sandbox with these directories"
            )
            self._is_outgrown = True
            self._stopped.set()
            return
        self._application.configure(config.exporter)
        has_changed = config.web != self._web
        if has_changed:
            self._gate.guard(config.web)
            self._encryption.use(config.web.tls)
        self._web = config.web
        self._listener.move_to(settings.listen_addresses, anew=has_changed)  # who was let in by other rules has to go
