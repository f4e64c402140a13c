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

from devherd import _native, head, spool
from devherd.config.resolved import Config
from devherd.errors import AlreadyRunningError, UsageError
from devherd.proto import spool_pb2
from devherd.supervisor import control, sandbox
from devherd.supervisor.kubelet_watch import KubeletWatch
from devherd.supervisor.loader import Load, Loader
from devherd.supervisor.lock import Locks
from devherd.supervisor.options import Options
from devherd.supervisor.process import ChildConfig, Process
from devherd.supervisor.programs import Program
from devherd.supervisor.readiness import tell_ready
from devherd.version import revision, version

log = logging.getLogger(__name__)

TICK_SECONDS = 1.0
HEAD_START_SECONDS = 0.3
"""Of children that serve a spool file over the others at the start: what the first scan found is registered first."""
LAST_SECONDS = 1.0
"""At the end, for the other children: then those that serve a spool file are stopped as well."""
_STALLED_SECONDS = 3.0
"""Between two ticks this long, the supervisor itself did not run."""
_ASLEEP = "in uninterruptible sleep (state D); it exits when the kernel call returns"


class Herd(Supervisor):
    """The children of one instance. Takes no locks itself, but looks after them, and releases them at its end."""

    options: Options

    def __init__(
        self,
        options: Options,
        locks: Locks,
        load: Load,
        config: Config,
        silence_limit_seconds: float,
    ) -> None:
        super().__init__(options)
        self._loader = Loader(load, options, config, self._pass_on_configuration)
        self._settings = options.settings
        self._locks = locks
        self._silence_limit_seconds = silence_limit_seconds
        self._last_tick = self._watched_since = time.monotonic()
        self._last_stops_at = float("inf")
        self._started_timestamp = time.time()
        self._published: object = None
        self._unwritable = False
        self._unreachable = False
        self._is_full = False
        self._refusal: AlreadyRunningError | None = None
        self._kubelet = KubeletWatch(self._settings, options.history)

    def live(self) -> None:
        """Run until asked to end. Raises AlreadyRunningError when another instance has the kubelet directory."""
        self.options.poller.rest = self._rest
        self._say_what_starts()
        sandbox.say_what_is_missing()
        with contextlib.suppress(asyncore.ExitNow):
            self.run()
        self._loader.end()
        self.options.history.note("process", "devherd stopped")
        self.options.history.keep()
        for process in filter(Process.is_beyond_help, self._processes()):
            log.error("%s, process %d, is left behind: %s", process.config.child_name, process.pid, _ASLEEP)
        self._settings.children_file.unlink(missing_ok=True)
        self._locks.release()
        if self._refusal:
            raise self._refusal

    def runforever(self) -> None:
        """The loop of supervisord, with the children of the first scan there from its beginning."""
        signal.pthread_sigmask(signal.SIG_SETMASK, ())  # the handlers are in place
        self.options.poll_wakeups()
        self.options.spool_watch.renew()
        self._reconcile()
        tell_ready()
        if any(process.config.program.per_file for process in self._processes()):
            for process in self._processes():
                if not process.config.program.per_file:
                    process.hold_back(HEAD_START_SECONDS)
        with contextlib.suppress(OSError):
            _native.let_go_of_library_pages()  # gRPC's above all, which the supervisor never runs
        super().runforever()

    def ordered_stop_groups_phase_1(self) -> None:
        """Stop the last group, which serves the kubelet, when the others have ended: it is without for less long.

        Called in each round of the end. Others that do not end are waited for no longer than a moment.
        """
        *others, last = sorted(self.process_groups.values())
        for group in others:
            group.stop_all()
        self._last_stops_at = min(self._last_stops_at, time.monotonic() + LAST_SECONDS)
        if time.monotonic() >= self._last_stops_at or not any(group.get_unstopped_processes() for group in others):
            last.stop_all()

    def ordered_stop_groups_phase_2(self) -> None:
        """Nothing: `ordered_stop_groups_phase_1` has no queue."""

    def reload(self) -> int:
        """Have the configuration read again; the number of the request, for `outcome_of`."""
        log.info("reloading the configuration")
        return self._loader.request()

    def outcome_of(self, reload: int) -> str | None:
        """Why a reload was refused, empty where the configuration is in force; None while it is being read."""
        return self._loader.outcome_of(reload)

    def _pass_on_configuration(self) -> None:
        for process in self._readers_of_the_configuration():
            process.hold_back(0)  # one that waits for its start is started, and then reloads, too
            process.transition()
            if process.pid:
                process.signal(signal.SIGHUP)

    def remove_process_group(self, name: str) -> bool:  # noqa: ARG002 - supervisord's signature
        """Never: groups belong to the herd; `supervisorctl remove` gets the answer that it still runs."""
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
            self._loader.tend([process.pid for process in self._readers_of_the_configuration() if process.pid])
        if self.options.mood == SupervisorStates.RUNNING and (second_has_passed or self._spool_has_changed()):
            self._reconcile()
        self._publish()
        self.options.history.keep()

    def _look_after_children(self) -> None:
        now = time.monotonic()
        if now - self._last_tick > _STALLED_SECONDS:
            self._watched_since = now  # everybody was frozen, perhaps: who has just woken up is not to be blamed
        self._last_tick = now
        for process in self._processes():
            process.replace_if_silent(self._silence_limit_seconds, self._watched_since)
            if process.pid:
                process.make_directories()
        awaits = self.options.heartbeats.awaits_the_kubelet
        self._kubelet.look(is_awaited=any(process.pid and awaits(process.slot) for process in self._processes()))

    def _look_after_directories(self) -> None:
        self.options.spool_watch.renew()
        if not self._settings.control_socket.exists():
            self._open_control_socket_again()
        if not (self._settings.children_file.exists() and self._settings.instance_file.exists()):
            self._published = None  # it will be written again
        try:
            self._locks.renew()
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
                log.error("%s was removed and cannot be created again yet: %s", self._settings.control_socket, error)
            self._unreachable = True
        else:
            self._unreachable = False
            log.warning("%s was removed and has been created again", self._settings.control_socket)

    def _spool_has_changed(self) -> bool:
        return self.options.spool_watch.changed or any(process.leaving for process in self._processes())

    def _reconcile(self) -> None:
        """One child for each spool file."""
        self.options.spool_watch.changed = False
        for program in self.options.programs.children:
            if not program.per_file:
                continue
            directory = program.per_file(self._settings)
            try:
                wanted = spool.keys_in(directory, program.suffix)
            except OSError as error:
                log.error("cannot read %s: %s; its children stay as they are", directory, error)
            else:
                self._have(program, wanted)

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
            log.error("%d children are the most: %s and others get none", len(self._processes()) + room, missing[room])
        self._is_full = len(missing) > room
        for key in missing[:room]:
            self._add(group, program, key)

    def _add(self, group: Any, program: Program, key: str) -> None:
        config = ChildConfig(self.options, program, key)
        group.config.process_configs.append(config)
        group.processes[key] = config.make_process(group)
        group.processes[key].transition()

    def _remove(self, group: Any, key: str) -> None:
        process = group.processes.pop(key)
        group.config.process_configs.remove(process.config)
        process.release()
        process.say(f"{process.config.child_name} removed")

    def _publish(self) -> None:
        """Write what is new of children and instance; a run directory that cannot be written is tried again."""
        children = spool_pb2.Children(
            children=sorted((process.message() for process in self._processes()), key=lambda child: child.name),
            supervisor_pid=self.options.pid,
            started_timestamp_seconds=self._started_timestamp,
            config_reloads=self._loader.reloads,
            config_reload_failures=self._loader.failures,
            configuration=self._configuration(),
        )
        said = head.of(self._settings, self._loader.config, self.options.pid, self._started_timestamp)
        if (children, said) == self._published:
            return
        try:
            spool.write(self._settings.children_file, children)
            head.write(self._settings.instance_file, said)
        except OSError as error:
            if not self._unwritable:
                log.error("cannot write in %s: %s", self._settings.run_dir, error)
            self._unwritable = True
        else:
            self._unwritable = False
            self._published = children, said

    def _say_what_starts(self) -> None:
        settings = self._settings
        said = (
            f"devherd {version()} ({revision()}) starts:"
            f" configuration {self._loader.config.source or 'from options and environment'},"
            f" host root {settings.host_root}, kubelet directory {settings.kubelet_dir},"
            f" run directory {settings.run_dir}, {f'HTTP on {settings.listen}' if settings.listen else 'no HTTP'}"
        )
        log.info("%s", said)
        self.options.history.note("process", said)
        for warning in self._loader.config.warnings:
            log.warning("%s", warning)

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

    def _readers_of_the_configuration(self) -> list[Process]:
        return [process for process in self._processes() if process.config.program.reloads]

    def _processes(self) -> list[Process]:
        return [process for group in self.process_groups.values() for process in group.processes.values()]
