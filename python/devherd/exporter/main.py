"""Process `exporter`: serves HTTP, on one event loop."""

import asyncio
import contextlib
import logging
import signal
import time
from typing import TYPE_CHECKING

from devherd import signals, spool
from devherd.config.resolved import ResolvedFileError, read_resolved
from devherd.exporter.application import Application
from devherd.exporter.encryption import Encryption
from devherd.exporter.gate import Gate
from devherd.exporter.listener import Listener
from devherd.fork import CRASHED
from devherd.kubelet.deadline import MuteError
from devherd.kubelet.pod_resources import PodResources, check
from devherd.log import Once
from devherd.process import BEAT_PERIOD_SECONDS, LOOK_PERIOD_SECONDS, RENEW, Child, take_reloads
from devherd.proto import spool_pb2

if TYPE_CHECKING:
    from devherd.config.web import Web

log = logging.getLogger(__name__)


def main(child: Child) -> int:
    """The child's main function: runs until SIGTERM."""
    return asyncio.run(Exporter(child).run())


class Exporter:
    """Runs the exporter. SIGHUP reloads the configuration, SIGTERM and SIGINT end it."""

    def __init__(self, child: Child) -> None:
        self._child = child
        pod_resources = PodResources(child.settings.pod_resources_socket)
        self._application = Application(child.settings, child.heartbeats, pod_resources)
        self._gate = Gate(self._application.answer)
        self._encryption = Encryption()
        self._web: Web | None = None
        self._listener = Listener(self._gate.answer, self._encryption)
        self._stopped = asyncio.Event()
        self._exit_code = 0
        self._written: list[spool_pb2.Address] | None = None
        self._complaint = Once(log.warning)

    async def run(self) -> int:
        """Serve until SIGTERM or SIGINT, or until a new process is needed; returns the exit code.

        An exception in a task ends the process, and the supervisor starts another.
        """
        loop = asyncio.get_running_loop()
        signals.on_end(loop, self._stopped.set)
        loop.add_signal_handler(signal.SIGHUP, self._reload)
        take_reloads()
        self._reload()
        with contextlib.closing(self._listener):
            async with asyncio.TaskGroup() as tasks:
                beats = tasks.create_task(self._beat())
                await self._stopped.wait()
                beats.cancel()
        return self._exit_code

    def _renew(self) -> None:
        self._exit_code = RENEW
        self._stopped.set()

    def _end_if_mute(self) -> None:
        """End this process if it cannot ask the kubelet any more: pages would say for ever that holders are unknown."""
        try:
            check()
        except MuteError as error:
            log.error("%s", error)
            self._exit_code = CRASHED
            self._stopped.set()

    async def _beat(self) -> None:
        looks_at = 0.0
        while True:
            self._child.beat()
            self._end_if_mute()
            if self._web is None or self._complaint.lasts:  # nothing is served before access control is loaded
                self._reload()
            self._encryption.tend()
            await self._listener.tend()
            addresses, now = self._listener.addresses(), time.monotonic()
            if now >= looks_at or addresses != self._written:
                if self._child.has_outgrown_its_sandbox():
                    self._renew()
                self._write(addresses)
                looks_at = now + LOOK_PERIOD_SECONDS
            await asyncio.sleep(BEAT_PERIOD_SECONDS)

    def _write(self, addresses: list[spool_pb2.Address]) -> None:
        """Write the served addresses to the run directory; restores the file if it was removed."""
        if self._web is None:
            return
        try:
            file = self._child.settings.served_file
            file.parent.mkdir(mode=0o700, exist_ok=True)
            spool.write(file, spool_pb2.Addresses(addresses=addresses))
            self._written = addresses
        except OSError as error:  # a full disk: the next beat tries again
            log.debug("cannot write %s: %s", self._child.settings.served_file, error)

    def _reload(self) -> None:
        """Apply the configuration in force. Ends the process if it needs directories outside the sandbox."""
        try:
            config = read_resolved(self._child.settings.resolved_config_file)
        except ResolvedFileError as error:
            kept = "nothing is served" if self._web is None else "still serving as before"
            self._complaint.complain("%s; %s", error, kept)
            return
        self._complaint.over()
        settings = config.settings()
        if not (
            all(map(self._child.may_read, config.web.directories()))
            and all(map(self._child.may_serve_in, settings.listen_directories))
        ):
            log.info("the certificates or a socket have moved: starting again, in a sandbox with the new directories")
            self._renew()
            return
        self._application.configure(config.exporter, is_dra=config.is_dra)
        has_changed = config.web != self._web
        if has_changed:
            self._gate.guard(config.web)
            self._encryption.use(config.web.tls)
        self._web = config.web
        # Connections that were accepted under other rules must end.
        self._listener.move_to(settings.listen_addresses, anew=has_changed)
