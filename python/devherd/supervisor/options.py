"""supervisord's options, without a file to read them from, and what its classes ask of the system."""

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from supervisor.loggers import LevelsByName
from supervisor.medusa import asyncore_25 as asyncore
from supervisor.options import ServerOptions
from supervisor.poller import PollPoller

from devherd.errors import UsageError
from devherd.heartbeat import Heartbeats
from devherd.history.record import History
from devherd.settings import Settings
from devherd.supervisor import control
from devherd.supervisor.group import GroupConfig
from devherd.supervisor.main_log import main_log_path
from devherd.supervisor.process import ChildConfig
from devherd.supervisor.programs import Programs
from devherd.supervisor.stderr import Stderr
from devherd.supervisor.wakeups import SignalWakeup, SpoolWatch


class Poller(PollPoller):
    """Polls no longer than until something is due: supervisord's loop would wait a whole second."""

    rest: Callable[[], float] = staticmethod(lambda: 1.0)

    def poll(self, timeout: float) -> tuple[list[int], list[int]]:
        """Descriptors that can be read, and written."""
        ready: tuple[list[int], list[int]] = super().poll(min(timeout, self.rest()))
        return ready


@contextmanager
def _temporary_directory(directory: Path) -> Iterator[None]:
    """What supervisord asks for while it makes its options; a read-only container has no /tmp."""
    before, tempfile.tempdir = tempfile.tempdir, str(directory)
    try:
        yield
    finally:
        tempfile.tempdir = before


class Options(ServerOptions):
    """The options of a herd. Everything it opens is for the supervisor; children close it at the fork."""

    def __init__(self, settings: Settings, programs: Programs, stderr: Stderr, logger: Any) -> None:
        with _temporary_directory(settings.run_dir):
            super().__init__()
        self.settings = settings
        self.programs = programs
        self.stderr_stream = stderr
        self.logger = logger
        self.heartbeats = Heartbeats()
        self.history = History(settings.history_directory, "supervisor")
        self.pid = os.getpid()
        self.poller = Poller(self)
        self.spool_watch = SpoolWatch(program.per_file(settings) for program in programs.children if program.per_file)
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
        """In the order in which they start."""
        members: dict[str, list[ChildConfig]] = {}
        for program in self.programs.children:
            group = members.setdefault(program.group, [])
            if not program.per_file:
                group.append(ChildConfig(self, program, program.name or program.group))
        return [
            GroupConfig(self, name, priority, configs) for priority, (name, configs) in enumerate(members.items(), 1)
        ]

    def poll_wakeups(self) -> None:
        """From now on, signals and the spool end the loop's poll. To be called once, before the loop begins."""
        wakeups = (SignalWakeup(), self.spool_watch)
        asyncore.socket_map.update({wakeup.fileno(): wakeup for wakeup in wakeups if wakeup.fileno() is not None})

    def get_socket_map(self) -> dict[int, Any]:
        """What the loop polls: supervisord's HTTP server and channels, and the wakeups."""
        sockets: dict[int, Any] = asyncore.socket_map
        return sockets

    def openhttpservers(self, supervisord: Any) -> None:
        """Without the warning that there is no password: the socket's mode and directory deny access to others."""
        handlers, self.logger.handlers = self.logger.handlers, []
        try:
            super().openhttpservers(supervisord)
        finally:
            self.logger.handlers = handlers

    def write_pidfile(self) -> None:
        """None: `children.pb` has the process id, and the lock shows whether it runs."""

    def usage(self, msg: str) -> NoReturn:
        """What supervisord calls when it cannot serve the control socket."""
        raise UsageError("cannot open the control socket", " ".join(msg.split()), "name another --run-dir")
