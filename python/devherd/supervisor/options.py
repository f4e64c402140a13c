"""supervisord's options, without a file to read them from, and what its classes ask of the system."""

import os
import tempfile
from collections.abc import Callable
from typing import Any, NoReturn

from supervisor.loggers import LevelsByName
from supervisor.medusa import asyncore_25 as asyncore
from supervisor.options import ServerOptions
from supervisor.poller import PollPoller

from devherd.errors import UsageError
from devherd.heartbeat import Heartbeats
from devherd.settings import Settings
from devherd.supervisor import control, seam
from devherd.supervisor.group import GroupConfig
from devherd.supervisor.main_log import main_log_path
from devherd.supervisor.process import Program
from devherd.supervisor.programs import Programs
from devherd.supervisor.stderr import Stderr
from devherd.supervisor.wakeups import SignalWakeup, SpoolWatch

SCANNER = "scanner"
EXPORTER = "exporter"
RESOURCE = "resource"


class Poller(PollPoller):
    """Polls no longer than until something is due: supervisord's loop would wait a whole second."""

    rest: Callable[[], float] = staticmethod(lambda: 1.0)

    def poll(self, timeout: float) -> tuple[list[int], list[int]]:
        """Descriptors that can be read, and written."""
        ready: tuple[list[int], list[int]] = super().poll(min(timeout, self.rest()))
        return ready


class Options(ServerOptions):
    """The options of a herd. Everything it opens is for the supervisor; children close it at the seam."""

    def __init__(self, settings: Settings, programs: Programs, stderr: Stderr, logger: Any) -> None:
        tempfile.tempdir = str(settings.run_dir)  # asked for by supervisord; a read-only container has no /tmp
        super().__init__()
        self.settings = settings
        self.programs = programs
        self.stderr_stream = stderr
        self.logger = logger
        self.heartbeats = Heartbeats()
        self.pid = os.getpid()
        self.counter_descriptors = seam.descriptors_below(settings.counters_directory)
        self.poller = Poller(self)
        self.spool_watch = SpoolWatch(settings.resources_directory)
        self._say_what_supervisord_reads_from_its_file()

    def _say_what_supervisord_reads_from_its_file(self) -> None:
        self.nodaemon = True
        self.test = False
        self.identifier = "devherd"
        self.loglevel = LevelsByName.INFO  # below that, it would log its children's output a second time
        self.logfile = main_log_path(self.settings)
        self.strip_ansi = False
        self.serverurl = f"unix://{self.settings.control_socket}"
        self.server_configs = [control.server_config(self.settings)]
        self.rpcinterface_factories: list[tuple[str, Any, dict[str, Any]]] = [("supervisor", control.Control, {})]
        self.process_group_configs = self._groups()

    def _groups(self) -> list[GroupConfig]:
        """In the order in which they start; they stop in the reverse order."""
        return [
            self._group(1, SCANNER, [Program(self, SCANNER, SCANNER, self.programs.scanner)]),
            self._group(2, EXPORTER, [Program(self, EXPORTER, EXPORTER, self.programs.exporter)]),
            self._group(3, RESOURCE, []),
        ]

    def _group(self, priority: int, name: str, programs: list[Program]) -> GroupConfig:
        return GroupConfig(self, name, priority, programs)

    def resource_program(self, key: str) -> Program:
        """The program of a resource type."""
        return Program(self, RESOURCE, key, self.programs.resource)

    def get_socket_map(self) -> dict[int, Any]:
        """What the loop polls: supervisord's HTTP server and channels, and what wakes us."""
        wakeups = (SignalWakeup(), self.spool_watch)
        asyncore.socket_map.update({wakeup.fileno(): wakeup for wakeup in wakeups if wakeup.fileno() is not None})
        sockets: dict[int, Any] = asyncore.socket_map
        return sockets

    def openhttpservers(self, supervisord: Any) -> None:
        """Without the warning that there is no password: the socket's mode and directory keep others out."""
        handlers, self.logger.handlers = self.logger.handlers, []
        try:
            super().openhttpservers(supervisord)
        finally:
            self.logger.handlers = handlers

    def write_pidfile(self) -> None:
        """None: `children.pb` has the process id, the lock says whether it is true."""

    def usage(self, msg: str) -> NoReturn:
        """What supervisord calls when it cannot serve the control socket."""
        raise UsageError("cannot open the control socket", " ".join(msg.split()), "name another --run-dir")
