"""The supervisor's loop: starts and stops children by the spool's files, replaces dead ones, writes their state."""

import contextlib
import logging
import signal
import time
from typing import Any

from supervisor.medusa import asyncore_25 as asyncore
from supervisor.states import ProcessStates, SupervisorStates
from supervisor.supervisord import Supervisor

from devherd import signals, spool
from devherd.errors import AlreadyRunningError, DevherdError, UsageError
from devherd.instance.files import instance_of
from devherd.kubernetes.access import notice_of_labels
from devherd.log import Once
from devherd.process import LOOK_PERIOD_SECONDS
from devherd.proto import spool_pb2
from devherd.supervisor import control, sandbox
from devherd.supervisor.hand_over import LOOK_SECONDS, HandOver
from devherd.supervisor.host_watch import KubeletWatch, NewerDriver
from devherd.supervisor.loader import Loader
from devherd.supervisor.lock import Locks
from devherd.supervisor.options import Options
from devherd.supervisor.process import ChildConfig, Process
from devherd.supervisor.programs import Program
from devherd.supervisor.service_manager import ServiceManager
from devherd.text import first_lines, version_line

log = logging.getLogger(__name__)

HEAD_START_SECONDS = 0.3
"""The other children start this much later than those that serve and those of spool files: the kubelet comes first."""
LAST_SECONDS = 1.0
"""At the end, the groups that serve are stopped after this time even if other children still run."""
_STALLED_SECONDS = 2.0
"""If a tick comes later than planned by this time, the supervisor itself was not running."""
_ASLEEP = "in uninterruptible sleep (state D); it exits when the kernel call returns"


class Herd(Supervisor):
    """The children of one instance. The caller has taken the locks; the herd renews and releases them."""

    options: Options

    def __init__(
        self,
        options: Options,
        locks: Locks,
        loader: Loader,
        *,
        restarts_for_driver: bool,
    ) -> None:
        super().__init__(options)
        self._loader = loader
        loader.loaded = self._pass_on_configuration
        self._settings = options.settings
        self._locks = locks
        self._waits = options.settings.waits
        self._last_tick = self._next_tick = self._last_event = self._watched_since = time.monotonic()
        self._last_stops_at = float("inf")
        front_end, let_go = loader.config.front_end, self._leave_the_run_directory
        self._hand_over = HandOver(self._settings, front_end, options.heartbeats, let_go)
        self._started_timestamp = time.time()
        self._published: object = None
        self._unwritable = Once(log.error)
        self._unreachable = Once(log.error)
        self._is_full = self._is_blind = False
        self._refusal: DevherdError | None = None
        self._kubelet = KubeletWatch(self._settings, options.history)
        self._service_manager = ServiceManager(self._waits.ready)
        self._newer_driver = NewerDriver(self._settings, options.history) if restarts_for_driver else None

    def live(self) -> None:
        """Run until the end is requested. Raises DevherdError if it must end by itself.

        The reasons: another instance holds the kubelet directory, or this one still sees a removed kubelet directory.
        """
        self.options.poller.rest = self._rest
        self._log_start()
        sandbox.log_missing()
        with contextlib.suppress(asyncore.ExitNow):
            self.run()
        for process in filter(Process.is_beyond_help, self._processes()):
            log.error("%s, process %d, is left behind: %s", process.config.child_name, process.pid, _ASLEEP)
        self._let_go()
        if self._refusal:
            raise self._refusal

    def runforever(self) -> None:
        """Run supervisord's loop; the resource children of the first scan start before its first round."""
        if signals.is_to_end():  # after the last check of the start; from now on supervisord's handlers note signals
            raise asyncore.ExitNow
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        self.options.poll_wakeups()
        self.options.spool_watch.renew()
        self._reconcile()
        programs = [process.config.program for process in self._processes()]
        if any(program.serves or program.per_file for program in programs):
            for process in self._processes():
                program = process.config.program
                if not (program.serves or program.per_file or program.is_awaited(self._loader.config)):
                    process.hold_back(HEAD_START_SECONDS)
        for process in self._processes():
            process.transition()
        super().runforever()

    def ordered_stop_groups_phase_1(self) -> None:
        """Stop the groups that serve the kubelet after the others, so that it is served longer.

        Called in each round of the shutdown. Waits for the other groups for LAST_SECONDS at most. If another instance
        stands by, those that hand over serve until it has taken over.
        """
        others, serving, heirs = self._groups_by_end()
        for group in others:
            group.stop_all()
        now = time.monotonic()
        self._last_stops_at = min(self._last_stops_at, now + LAST_SECONDS)
        if now < self._last_stops_at and any(group.get_unstopped_processes() for group in others):
            return
        for group in serving:
            group.stop_all()
        if not self._hand_over.lasts([process for group in heirs for process in group.processes.values()]):
            for group in heirs:
                group.stop_all()

    def _leave_the_run_directory(self) -> None:
        """Leave the run directory to the next instance while children hand over."""
        self.options.close_httpservers()
        self.options.httpservers = ()  # the next instance's socket must not be unlinked at the end
        self._settings.control_socket.unlink(missing_ok=True)
        self._let_go()

    def _let_go(self) -> None:
        """Write the last files and release the locks: from now on the run directory belongs to the next instance."""
        if not self._locks.are_held:
            return
        self._loader.end()
        self.options.history.note("process", "devherd stopped")
        self.options.history.keep()
        self._settings.children_file.unlink(missing_ok=True)
        self._locks.release()

    def ordered_stop_groups_phase_2(self) -> None:
        """Do nothing: `ordered_stop_groups_phase_1` has no queue."""

    def reload(self) -> int:
        """Start to reload the configuration; returns the number of the request, for `outcome_of`."""
        log.info("reloading the configuration")
        return self._loader.request()

    def outcome_of(self, reload: int) -> str | None:
        """The reason why a reload was refused, empty if it was not; None while the configuration is being read."""
        return self._loader.outcome_of(reload)

    def _pass_on_configuration(self) -> None:
        for process in self._readers_of_the_configuration():
            process.reload()
        self.options.spool_watch.changed = True  # other programs may be wanted

    def remove_process_group(self, name: str) -> bool:  # noqa: ARG002 - supervisord's signature
        """Refuse: groups belong to the herd. `supervisorctl remove` reports that the group still runs."""
        return False

    def reap(self, once: bool = False, recursionguard: int = 0) -> None:
        """Reap children that ended, and restart at once those that are due."""
        super().reap(once, recursionguard)
        if recursionguard == 0:
            for process in self._processes():
                process.transition()

    def handle_signal(self) -> None:
        """Handle every signal since the last round."""
        while number := self.options.get_signal():
            self._last_event = time.monotonic()
            if number == signal.SIGHUP:
                self.reload()
            elif number == signal.SIGUSR2:
                self._reopen_logs()
            elif number != signal.SIGCHLD:
                log.info("%s: stopping", signal.Signals(number).name)
                self.options.mood = SupervisorStates.SHUTDOWN

    def tick(self, now: float | None = None) -> None:  # noqa: ARG002 - supervisord's signature
        """Do the work of every round and, if they are due, the periodic checks."""
        if self._spool_has_changed() or self._is_asked():
            self._last_event = time.monotonic()
        is_due = time.monotonic() >= self._due()
        if is_due:
            self.options.orphans.sweep()
            self._look_after_children()
        if not self._locks.are_held:
            return  # the files belong to the next instance
        if is_due:
            self._look_after_directories()
            if self._newer_driver and self.options.mood == SupervisorStates.RUNNING and self._newer_driver.look():
                self.options.mood = SupervisorStates.SHUTDOWN
            readers = self._readers_of_the_configuration()
            self._loader.tend({process.config.child_name: process.restarts.total() for process in readers})
            self._service_manager.beat()
        self.options.heartbeats.beat(self.options.heartbeats.supervisor)
        if self.options.mood == SupervisorStates.RUNNING and (is_due or self._spool_has_changed()):
            self._reconcile()
        self._publish()
        if not self._service_manager.is_ready:
            self._service_manager.report(self._not_running())
        self.options.history.keep()

    def _not_running(self) -> list[str]:
        """The names of the children that have sent no heartbeat since their start."""
        return [process.config.child_name for process in self._processes() if process.state != ProcessStates.RUNNING]

    def _look_after_children(self) -> None:
        now = time.monotonic()
        if now - self._next_tick > _STALLED_SECONDS:
            self._watched_since = now  # all processes may have been frozen: children get a new time limit
        self._last_tick = now
        for process in self._processes():
            process.replace_if_silent(self._waits.silence, self._watched_since)
            if process.pid:
                process.make_directories()
        awaits = self.options.heartbeats.awaits_the_kubelet
        self._kubelet.look(is_awaited=any(process.pid and awaits(process.slot) for process in self._processes()))
        serving = [process for process in self._processes() if process.config.program.serves]
        is_served = any(process.pid and not awaits(process.slot) for process in serving)
        if lost := self._kubelet.lost(is_served=is_served):
            self._end_for(lost)

    def _look_after_directories(self) -> None:
        self.options.spool_watch.renew()
        if not self._settings.control_socket.exists():
            self._open_control_socket_again()
        if not (self._settings.children_file.exists() and self._settings.instance_file.exists()):
            self._published = None  # it will be written again
        try:
            self._locks.renew()
        except AlreadyRunningError as refusal:
            self._end_for(refusal)

    def _end_for(self, reason: DevherdError) -> None:
        if self.options.mood == SupervisorStates.RUNNING:
            self._refusal = reason
            self.options.mood = SupervisorStates.SHUTDOWN

    def _open_control_socket_again(self) -> None:
        """Create the control socket again after its removal; retried until the run directory exists."""
        self.options.close_httpservers()
        try:
            control.write_conf(self._settings)
            self.options.openhttpservers(self)
        except (OSError, UsageError) as error:
            text = "%s was removed and cannot be created again yet: %s"
            self._unreachable.complain(text, self._settings.control_socket, error)
        else:
            self._unreachable.over()
            log.warning("%s was removed and has been created again", self._settings.control_socket)

    def _spool_has_changed(self) -> bool:
        return self.options.spool_watch.changed or any(process.leaving for process in self._processes())

    def _reconcile(self) -> None:
        """Start and stop children: one for each spool file, and those that the configuration wants."""
        self.options.spool_watch.changed = False
        for program in self.options.programs.children:
            try:
                if program.wanted and not program.wanted(self._loader.config, self._settings):
                    keys = set[str]()
                elif program.wanted and not program.per_file:
                    keys = {program.name or program.group}
                elif program.per_file:
                    keys = set(filter(program.keys, spool.keys_in(program.per_file(self._settings), program.suffix)))
                else:
                    continue
            except OSError as error:
                log.error("cannot see which children of %s are wanted: %s; they stay as they are", program.group, error)
            else:
                self._have(program, keys)

    def _have(self, program: Program, wanted: set[str]) -> None:
        group = self.process_groups[program.group]
        children = [(key, child) for key, child in group.processes.items() if child.config.program is program]
        for key, process in children:
            if key not in wanted and not process.leaving:
                process.leave()
            if process.has_left():
                self._remove(group, key)
        missing = sorted(wanted - group.processes.keys())
        room = self.options.heartbeats.free
        if len(missing) > room and not self._is_full:
            log.error("at most %d children: %s and others have none", len(self._processes()) + room, missing[room])
        self._is_full = len(missing) > room
        for key in missing[:room]:
            self._add(group, program, key)
        blind = [process for process in self._processes() if not self.options.may_watch(process.slot)]
        if blind and not self._is_blind:
            log.warning(
                "%d processes look for changes once a second: half of the user's inotify instances are left to the"
                " kubelet and others; raise fs.inotify.max_user_instances to %d",
                len(blind),
                2 * len(self._processes()),
            )
        self._is_blind = bool(blind)

    def _add(self, group: Any, program: Program, key: str) -> None:
        config = ChildConfig(self.options, program, key)
        group.config.process_configs.append(config)
        group.processes[key] = config.make_process(group)

    def _remove(self, group: Any, key: str) -> None:
        process = group.processes.pop(key)
        group.config.process_configs.remove(process.config)
        process.release()
        process.note(f"{process.config.child_name} removed")

    def _publish(self) -> None:
        """Write the state of children and instance if it changed; a failed write is tried again in the next round."""
        children = spool_pb2.Children(
            children=sorted((process.message() for process in self._processes()), key=lambda child: child.name),
            supervisor_pid=self.options.pid,
            started_timestamp_seconds=self._started_timestamp,
            config_reloads=self._loader.reloads,
            config_reload_failures=self._loader.failures,
            configuration=self._configuration(),
            heartbeats_descriptor=self.options.heartbeats.descriptor,
        )
        instance = instance_of(self._settings, self._loader.config, self.options.pid, self._started_timestamp)
        if (children, instance) == self._published:
            return
        try:
            spool.write(self._settings.children_file, children)
            spool.write(self._settings.instance_file, instance)
        except OSError as error:
            self._unwritable.complain("cannot write in %s: %s", self._settings.run_dir, error)
        else:
            self._unwritable.over()
            self._published = children, instance

    def _log_start(self) -> None:
        settings = self._settings
        text = (
            f"{version_line()} starts:"
            f" configuration {self._loader.config.source or 'from options and environment'},"
            f" host root {settings.host_root}, kubelet directory {settings.kubelet_dir},"
            f" run directory {settings.run_dir}, {f'HTTP on {settings.listen}' if settings.listen else 'no HTTP'}"
        )
        log.info("%s", text)
        self.options.history.note("process", text)
        for line in first_lines(self._loader.config.warnings, "warnings"):
            log.warning("%s", line)
        if notice := notice_of_labels(self._loader.config, settings):
            log.warning("%s", notice)

    def _configuration(self) -> spool_pb2.Configuration:
        config = self._loader.config
        return spool_pb2.Configuration(
            source=str(config.source or ""),
            loaded_timestamp_seconds=self._loader.loaded_at,
            refusal=self._loader.refusal,
            warnings=config.warnings,
        )

    def _reopen_logs(self) -> None:
        self.options.reopenlogs()
        for group in self.process_groups.values():
            group.reopenlogs()

    def _due(self) -> float:
        """The monotonic second at which the periodic checks are due."""
        seconds = (
            self._waits.tick if self._is_lively() else min(LOOK_PERIOD_SECONDS, self._service_manager.beat_seconds)
        )
        limits = (process.limit(self._waits.silence, self._watched_since) for process in self._processes())
        return min([self._last_tick + seconds, *(max(self._last_tick + self._waits.tick, at) for at in limits)])

    def _is_lively(self) -> bool:
        """True if something happens, or if events cannot wake the supervisor."""
        awaits = self.options.heartbeats.awaits_the_kubelet
        return (
            self.options.mood != SupervisorStates.RUNNING
            or time.monotonic() - self._last_event < self._waits.lively
            or self.options.spool_watch.fileno() is None
            or self.options.orphans.are_awaited
            or self._loader.is_waiting
            or not self._service_manager.is_ready
            or any(process.pid and awaits(process.slot) for process in self._processes())
        )

    @staticmethod
    def _is_asked() -> bool:
        """True if a call on the control socket is being answered."""
        return any(getattr(channel, "producer_fifo", None) for channel in asyncore.socket_map.values())

    def _rest(self) -> float:
        """Seconds until something is due."""
        self._next_tick = self._due()
        return min(
            [
                max(0.0, self._next_tick - time.monotonic()),
                *([control.WAIT_SECONDS] if self._is_asked() else []),
                *([LOOK_SECONDS] if self._hand_over.awaits_children else []),
                *(process.rest() for process in self._processes()),
            ]
        )

    def _groups_by_end(self) -> tuple[list[Any], list[Any], list[Any]]:
        """Those that do not serve the kubelet, those that do and hand nothing over, and those that hand over."""
        programs = {program.group: program for program in self.options.programs.children}
        others: list[Any] = []
        serving: list[Any] = []
        heirs: list[Any] = []
        for name, group in self.process_groups.items():
            of_kind = others if not programs[name].serves else serving
            (heirs if programs[name].hands_over(self._settings) else of_kind).append(group)
        return others, serving, heirs

    def _readers_of_the_configuration(self) -> list[Process]:
        return [process for process in self._processes() if process.config.program.reloads]

    def _processes(self) -> list[Process]:
        return [process for group in self.process_groups.values() for process in group.processes.values()]
