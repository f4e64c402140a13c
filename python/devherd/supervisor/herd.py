"""The supervisor's loop: children come and go with the spool's files, die and are replaced, and are written down.

supervisord's own loop polls, reaps and answers supervisorctl; what is ours happens in its ticks, which come with every
event and at least once a second.
"""

import contextlib
import logging
import signal
import time
from typing import Any

from supervisor.medusa import asyncore_25 as asyncore
from supervisor.states import SupervisorStates
from supervisor.supervisord import Supervisor

from devherd import spool
from devherd.errors import AlreadyRunningError, UsageError
from devherd.proto import spool_pb2
from devherd.supervisor import control
from devherd.supervisor.lock import KubeletDirectoryLock
from devherd.supervisor.options import EXPORTER, RESOURCE, SCANNER, Options
from devherd.supervisor.process import Process
from devherd.supervisor.readiness import tell_ready

log = logging.getLogger(__name__)

TICK_SECONDS = 1.0
HEAD_START_SECONDS = 0.3
"""Of resource children over scanner and exporter at the start: what the first scan found is registered first."""
_STALLED_SECONDS = 3.0
"""Between two ticks this long, the supervisor itself did not run."""
_ASLEEP = "it waits in the kernel, for a device perhaps, where no signal reaches it, and dies when that is over"


class Herd(Supervisor):
    """The children of one instance. Takes no locks itself, but keeps looking after the kubelet directory's."""

    options: Options

    def __init__(self, options: Options, kubelet_lock: KubeletDirectoryLock, silence_limit_seconds: float) -> None:
        super().__init__(options)
        self._settings = options.settings
        self._kubelet_lock = kubelet_lock
        self._silence_limit_seconds = silence_limit_seconds
        self._last_tick = self._watched_since = time.monotonic()
        self._started_timestamp = time.time()
        self._published: spool_pb2.Children | None = None
        self._unwritable = False
        self._unreachable = False
        self._refusal: AlreadyRunningError | None = None

    def live(self) -> None:
        """Run until told to end. Raises AlreadyRunningError when another instance has the kubelet directory."""
        self.options.poller.rest = self._rest
        with contextlib.suppress(asyncore.ExitNow):
            self.run()
        for process in filter(Process.is_beyond_help, self._processes()):
            log.error("%s, process %d, is left behind: %s", process.config.child_name, process.pid, _ASLEEP)
        self._settings.children_file.unlink(missing_ok=True)
        if self._refusal:
            raise self._refusal

    def runforever(self) -> None:
        """The loop of supervisord, with the children of the first scan there from its beginning."""
        signal.pthread_sigmask(signal.SIG_SETMASK, ())  # the handlers are in place
        self.options.spool_watch.renew()
        self._reconcile()
        tell_ready()
        if self.process_groups[RESOURCE].processes:
            for process in self._processes_of(SCANNER, EXPORTER):
                process.hold_back(HEAD_START_SECONDS)
        super().runforever()

    def reload(self) -> None:
        """Have the configuration read again by those who read it."""
        log.info("reloading the configuration")
        for process in self._processes_of(SCANNER, EXPORTER):
            process.hold_back(0)  # one that still waits for its start is started and told, too
            process.transition()
            if process.pid:
                process.signal(signal.SIGHUP)

    def remove_process_group(self, name: str) -> bool:  # noqa: ARG002 - supervisord's signature
        """Never: groups belong to the herd; `supervisorctl remove` is told that it still runs."""
        return False

    def reap(self, once: bool = False, recursionguard: int = 0) -> None:
        """Take note of children that ended, and start them again at once where that is due."""
        super().reap(once, recursionguard)
        if recursionguard == 0:
            for process in self._processes():
                process.transition()

    def handle_signal(self) -> None:
        """Answer every signal that came since the last round."""
        while number := self.options.get_signal():
            if number == signal.SIGHUP:
                self.reload()
            elif number == signal.SIGUSR2:
                self._reopen_logs()
            elif number != signal.SIGCHLD:
                log.info("%s: stopping", signal.Signals(number).name)
                self.options.mood = SupervisorStates.SHUTDOWN

    def tick(self, now: float | None = None) -> None:  # noqa: ARG002 - supervisord's signature
        """What is done in every round, and once a second."""
        second_has_passed = time.monotonic() - self._last_tick >= TICK_SECONDS
        if second_has_passed:
            self._look_after_children()
            self._look_after_directories()
        if self.options.mood == SupervisorStates.RUNNING and (second_has_passed or self._spool_has_changed()):
            self._reconcile()
        self._publish()

    def _look_after_children(self) -> None:
        now = time.monotonic()
        if now - self._last_tick > _STALLED_SECONDS:
            self._watched_since = now  # everybody was frozen, perhaps: who has just woken up is not to be blamed
        self._last_tick = now
        for process in self._processes():
            process.replace_if_silent(self._silence_limit_seconds, self._watched_since)

    def _look_after_directories(self) -> None:
        self.options.spool_watch.renew()
        if not self._settings.control_socket.exists():
            self._open_control_socket_again()
        if not self._settings.children_file.exists():
            self._published = None  # it will be written again
        try:
            self._kubelet_lock.hold()
        except AlreadyRunningError as refusal:
            self._refusal = refusal
            self.options.mood = SupervisorStates.SHUTDOWN

    def _open_control_socket_again(self) -> None:
        """Somebody has removed it, perhaps with all of the run directory: tried again until that is there."""
        self.options.close_httpservers()
        try:
            control.write_conf(self._settings)
            self.options.openhttpservers(self)
        except (OSError, UsageError) as error:
            if not self._unreachable:
                log.error("%s is gone and cannot be made again yet: %s", self._settings.control_socket, error)
            self._unreachable = True
        else:
            self._unreachable = False
            log.warning("%s was gone and is made again", self._settings.control_socket)

    def _spool_has_changed(self) -> bool:
        return self.options.spool_watch.changed or any(process.leaving for process in self._processes())

    def _reconcile(self) -> None:
        """One child for each resource file."""
        self.options.spool_watch.changed = False
        try:
            wanted = spool.keys_in(self._settings.resources_directory)
        except OSError as error:
            log.error("cannot read the spool, its children stay as they are: %s", error)
            return
        group = self.process_groups[RESOURCE]
        for key, process in list(group.processes.items()):
            if key not in wanted and not process.leaving:
                process.leave()
            if process.has_left():
                self._remove(group, key)
        for key in sorted(wanted - group.processes.keys()):
            self._add(group, key)

    def _add(self, group: Any, key: str) -> None:
        program = self.options.resource_program(key)
        group.config.process_configs.append(program)
        group.processes[key] = program.make_process(group)
        group.processes[key].transition()

    def _remove(self, group: Any, key: str) -> None:
        process = group.processes.pop(key)
        group.config.process_configs.remove(process.config)
        process.release()
        log.info("%s removed", process.config.child_name)

    def _publish(self) -> None:
        """Write `children.pb` when it says something new; a run directory that cannot be written is tried again."""
        children = spool_pb2.Children(
            children=sorted((process.message() for process in self._processes()), key=lambda child: child.name),
            supervisor_pid=self.options.pid,
            started_timestamp_seconds=self._started_timestamp,
        )
        if children == self._published:
            return
        try:
            spool.write(self._settings.children_file, children)
        except OSError as error:
            if not self._unwritable:
                log.error("cannot write %s: %s", self._settings.children_file, error)
            self._unwritable = True
        else:
            self._unwritable = False
            self._published = children

    def _reopen_logs(self) -> None:
        self.options.reopenlogs()
        for group in self.process_groups.values():
            group.reopenlogs()

    def _rest(self) -> float:
        """Seconds until something is due."""
        is_asked = any(getattr(channel, "producer_fifo", None) for channel in asyncore.socket_map.values())
        return min(
            [
                TICK_SECONDS,
                *([control.WAIT_SECONDS] if is_asked else []),
                *(process.rest() for process in self._processes()),
            ]
        )

    def _processes(self) -> list[Process]:
        return self._processes_of(*self.process_groups)

    def _processes_of(self, *groups: str) -> list[Process]:
        return [process for group in groups for process in self.process_groups[group].processes.values()]
