"""The exporter process: HTTP for people, Prometheus and probes, on one loop.

It also asks the kubelet, for all resource children, which devices it has.
"""

import asyncio
import contextlib
import logging
import signal

from devherd.child import BEAT_PERIOD_SECONDS, RENEW, Child, take_reloads
from devherd.config import resolved_file
from devherd.exporter.allocatable import AllocatableWriter
from devherd.exporter.application import Application
from devherd.exporter.listener import Listener
from devherd.kubelet.pod_resources import PodResources

log = logging.getLogger(__name__)


def main(child: Child) -> int:
    """The child's main function: runs until SIGTERM."""
    logging.getLogger("grpc").setLevel(logging.WARNING)  # at debug it logs each turn of the loop
    logging.getLogger("asyncio").setLevel(logging.WARNING)
    return asyncio.run(Exporter(child).run())


class Exporter:
    """SIGHUP reads the configuration again, SIGTERM ends it."""

    def __init__(self, child: Child) -> None:
        self._child = child
        pod_resources = PodResources(child.settings.pod_resources_socket)
        self._application = Application(child.settings, child.heartbeats, pod_resources)
        self._listener = Listener(self._application.answer, child.settings.listen)
        self._allocatable = AllocatableWriter(child.settings)
        self._stopped = asyncio.Event()
        self._is_outgrown = False

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
            await self._listener.tend()
            await asyncio.sleep(BEAT_PERIOD_SECONDS)

    def _reload(self) -> None:
        """Follow the configuration in force, which the supervisor writes again if it is removed."""
        try:
            config = resolved_file.read(self._child.settings.resolved_config_file)
        except resolved_file.ResolvedFileError as error:
            log.warning("%s; still listening at the old address", error)
            return
        self._application.configure(config.exporter)
        self._listener.move_to(config.settings().listen)
