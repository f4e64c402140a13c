"""Options for supervisord without its file, and the events that wake its poll: signals and changes of the spool."""

import logging
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import supervisor.options
from supervisor.loggers import LevelsByName
from supervisor.medusa import asyncore_25 as asyncore
from supervisor.options import ServerOptions
from supervisor.poller import PollPoller

from devherd import _native, signals
from devherd.errors import UsageError
from devherd.history import History
from devherd.lean_imports import lean_imports
from devherd.log import Once
from devherd.process import Heartbeats
from devherd.settings import Settings
from devherd.supervisor import control
from devherd.supervisor.orphans import Orphans
from devherd.supervisor.output import Stderr, main_log_path
from devherd.supervisor.process import ChildConfig, GroupConfig
from devherd.supervisor.programs import Programs

log = logging.getLogger(__name__)


_INSTANCES = Path("/proc/sys/fs/inotify/max_user_instances")


class SpoolWatch:
    """Notices created and removed spool files and sockets; without inotify, polling finds them once a second."""

    def __init__(self, directories: Iterable[Path]) -> None:
        self._directories = {str(directory): Once(log.warning) for directory in directories}
        self._watch: _native.DirectoryWatch | None = None
        self.changed = True
        try:
            self._watch = _native.DirectoryWatch()
        except OSError as error:
            text = "no inotify: %s; the run directory is polled each second; raise fs.inotify.max_user_instances"
            log.warning(text, error)

    def fileno(self) -> int | None:
        """The descriptor to poll; None without inotify."""
        return self._watch.fileno() if self._watch else None

    def renew(self) -> None:
        """Watch the directories that are now at the paths: they may have been removed and created again."""
        if self._watch is None:
            return
        for directory, complaint in self._directories.items():
            try:
                self._watch.add(directory)
            except FileNotFoundError:
                pass  # it does not exist yet
            except OSError as error:
                complaint.complain("cannot watch %s: %s; it is read at intervals", directory, error)
            else:
                complaint.over()

    def readable(self) -> bool:
        """Return True: always polled for reading."""
        return True

    def writable(self) -> bool:
        """Return False: never polled for writing."""
        return False

    def handle_read_event(self) -> None:
        """Note that something changed, and empty inotify's queue."""
        self.changed = True
        if self._watch:
            self._watch.drain()

    def handle_error(self) -> None:
        """Have the directories read again, in case inotify could not report a change."""
        self.changed = True


class Poller(PollPoller):
    """Polls until something is due: supervisord's own loop would wake up every second even if nothing is due."""

    rest: Callable[[], float] = staticmethod(lambda: 1.0)

    def poll(self, timeout: float) -> tuple[list[int], list[int]]:  # noqa: ARG002 - supervisord's signature
        """The readable and the writable descriptors. `timeout` is supervisord's, and not used."""
        ready: tuple[list[int], list[int]] = super().poll(self.rest())
        return ready


@contextmanager
def _temporary_directory(directory: Path) -> Iterator[None]:
    """Set supervisord's directory for temporary files: a read-only container has no usable /tmp."""
    before = supervisor.options.tempfile
    supervisor.options.tempfile = SimpleNamespace(gettempdir=lambda: str(directory))
    try:
        yield
    finally:
        supervisor.options.tempfile = before


class Options(ServerOptions):
    """The options of a herd. Children close all descriptors that it opens."""

    def __init__(self, settings: Settings, programs: Programs, stderr: Stderr, logger: Any) -> None:
        with _temporary_directory(settings.run_dir):
            super().__init__()
        self.settings = settings
        self.programs = programs
        self.stderr_stream = stderr
        self.logger = logger
        self.heartbeats = Heartbeats()
        self.history = History(settings.history_directory, "supervisor")
        self.orphans = Orphans()
        self.pid = os.getpid()
        self.poller = Poller(self)
        files = [program.per_file(settings) for program in programs.children if program.per_file]
        self.spool_watch = SpoolWatch(dict.fromkeys([*files, *settings.kubelet_directories]))
        self._most_watching = _inotify_instances() // 2
        self._set_options_of_its_file()

    def may_watch(self, slot: int) -> bool:
        """True if the child with this slot may use inotify: half of the user's instances are left to others."""
        return slot < self._most_watching

    def _set_options_of_its_file(self) -> None:
        self.nodaemon = True
        self.test = False
        self.identifier = "devherd"
        self.loglevel = LevelsByName.INFO  # below that, it would log its children's output a second time
        self.logfile = main_log_path(self.settings)
        self.strip_ansi = False
        self.serverurl = f"unix://{self.settings.control_socket}"
        self.server_configs = [control.server_config(self.settings)]
        self.rpcinterface_factories: list[tuple[str, Any, dict[str, Any]]] = [
            ("supervisor", control.SupervisorctlCalls, {})
        ]
        self.process_group_configs = self._groups()

    def _groups(self) -> list[GroupConfig]:
        """The groups in their start order."""
        members: dict[str, list[ChildConfig]] = {}
        for program in self.programs.children:
            group = members.setdefault(program.group, [])
            if not (program.per_file or program.wanted):
                group.append(ChildConfig(self, program, program.name or program.group))
        return [
            GroupConfig(self, name, priority, configs) for priority, (name, configs) in enumerate(members.items(), 1)
        ]

    def poll_wakeups(self) -> None:
        """Make signals and spool changes wake the loop's poll. Call it once, before the loop."""
        wakeups = (signals.wakeup(), self.spool_watch)
        asyncore.socket_map.update({wakeup.fileno(): wakeup for wakeup in wakeups if wakeup.fileno() is not None})

    def get_socket_map(self) -> dict[int, Any]:
        """The sockets to poll: supervisord's HTTP server and channels, and the wakeups."""
        sockets: dict[int, Any] = asyncore.socket_map
        return sockets

    def openhttpservers(self, supervisord: Any) -> None:
        """Open the control socket without the warning about a missing password: its mode keeps others out."""
        handlers, self.logger.handlers = self.logger.handlers, []
        try:
            with lean_imports():
                super().openhttpservers(supervisord)
        finally:
            self.logger.handlers = handlers

    def write_pidfile(self) -> None:
        """Write no file: `children.pb` has the process id, and the lock shows whether the supervisor runs."""

    def usage(self, msg: str) -> NoReturn:
        """Raise UsageError. supervisord calls this when it cannot serve the control socket."""
        raise UsageError("cannot open the control socket", " ".join(msg.split()), "name another --run-dir")


def _inotify_instances() -> int:
    """The user's limit, which all processes of root share on a node."""
    try:
        return int(_INSTANCES.read_text())
    except (OSError, ValueError):
        return 1 << 16  # unknown: each process finds out by itself
