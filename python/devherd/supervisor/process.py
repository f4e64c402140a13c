"""A child on supervisord's process class: forked without exec, RUNNING after its first heartbeat, always restarted."""

import gc
import importlib
import logging
import os
import signal
import time
from collections import Counter
from typing import Any, NoReturn

from supervisor.datatypes import RestartUnconditionally
from supervisor.options import ProcessConfig, ProcessGroupConfig, decode_wait_status, make_namespec
from supervisor.process import ProcessGroup, Subprocess
from supervisor.states import STOPPED_STATES, ProcessStates, SupervisorStates, getProcessStateDescription

from devherd import fork, signals
from devherd.backoff import Backoff
from devherd.process import MORE_PROCESS_IDS, RENEW, Child, ChildMain
from devherd.proto import spool_pb2
from devherd.supervisor.output import LOG_BACKUPS, LOG_BYTES, Output
from devherd.supervisor.programs import Program
from devherd.supervisor.sandbox import Access, Sandbox, make_directories

log = logging.getLogger(__name__)

LOOK_FOR_FIRST_BEAT_SECONDS = 0.01
FIRST_DELAY_SECONDS = 0.1
"""Delay of the restart after a second failure in a row; after the first the restart is immediate."""
LONGEST_DELAY_SECONDS = 30.0
JITTER = 0.2
NEVER = float("inf")
RENEWED = "renewal"
"""Cause of the restart after exit code RENEW, which is no failure."""

_NO_PROCESS = "Too many processes"
"""supervisord's text for EAGAIN of fork(2)."""
_ALIVE = (ProcessStates.STARTING, ProcessStates.RUNNING)
_FOREVER = 2**31 - 1  # XML-RPC's largest integer


class ChildConfig(ProcessConfig):
    """A child of a program, in supervisord's terms. `options` is the supervisor's Options."""

    def __init__(self, options: Any, program: Program, name: str) -> None:
        self.child_name: str = make_namespec(program.group, name)
        self.program = program
        log_file = str(options.settings.logs_directory / f"{self.child_name}.log")
        stream_options = {"capture_maxbytes": 0, "events_enabled": False, "syslog": False}
        log_options = {
            **stream_options,
            "logfile": log_file,
            "logfile_maxbytes": LOG_BYTES,
            "logfile_backups": LOG_BACKUPS,
        }
        super().__init__(
            options,
            name=name,
            command=f"devherd {self.child_name}",
            uid=None,
            directory=None,
            umask=None,
            priority=999,
            autostart=True,
            autorestart=RestartUnconditionally,
            startsecs=0,
            startretries=_FOREVER,
            stopsignal=signal.SIGTERM,
            stopwaitsecs=options.settings.waits.stop,
            stopasgroup=False,
            killasgroup=False,
            exitcodes=[0],
            redirect_stderr=True,
            **{f"{stream}_{option}": value for stream in ("stdout", "stderr") for option, value in log_options.items()},
        )

    def make_process(self, group: Any = None) -> "Process":
        """The process that runs it."""
        process = Process(self)
        process.group = group
        return process

    def make_dispatchers(self, proc: Any) -> tuple[dict[int, Output], dict[str, int | None]]:
        """One pipe for stdout and stderr together, none for stdin. Raises OSError."""
        read, write = os.pipe()
        os.set_blocking(read, False)
        try:
            output = Output(proc, read, self.options.stderr_stream.send)
        except OSError:
            os.close(read)
            os.close(write)
            raise
        return {read: output}, {"stdin": None, "stdout": read, "stderr": None, "child_stdout": write}


class Process(Subprocess):
    """One child, over all its restarts."""

    def __init__(self, config: ChildConfig) -> None:
        super().__init__(config)
        self.dispatchers: dict[int, Output] = {}
        self.pipes: dict[str, Any] = {}
        self.slot: int = config.options.heartbeats.claim()
        self.restarts: Counter[str] = Counter()
        self.last_exit = ""
        self.leaving = False
        self._access = Access()
        self._failures = 0
        self._waits = config.options.settings.waits
        self._backoff = Backoff(FIRST_DELAY_SECONDS, LONGEST_DELAY_SECONDS, JITTER)
        self._cause = ""
        self._silent = False
        self._spawned_at = self._start_at = self._kill_at = 0.0
        self._dead_by = NEVER

    def get_execv_args(self) -> tuple[str, list[str]]:
        """The command name: nothing is exec'd, so no file is looked for."""
        return self.config.command, [self.config.command]

    def spawn(self) -> int | None:
        """Start the child, which must not be running; returns its process id, None if the fork failed."""
        self.config.options.heartbeats.clear(self.slot)
        self._access = self.config.program.may(self.config.options.settings, self.config.name)
        self.make_directories()
        self._spawned_at = time.monotonic()
        self._silent = False
        self._dead_by = NEVER
        with signals.held():
            pid: int | None = super().spawn()
        if pid is None:
            self._close_output()
        else:
            self.note(f"{self.config.child_name} started, process {pid}")
            self.restarts.update([self._cause] if self._cause else [])
            self._cause = ""
        return pid

    def _spawn_as_child(self, filename: str, argv: list[str]) -> NoReturn:  # noqa: ARG002 - supervisord's signature
        options = self.config.options
        sandbox = Sandbox(self._access)
        settings, heartbeats = options.settings, options.heartbeats
        name, may_watch = self.config.child_name, options.may_watch(self.slot)
        child = Child(name, settings, heartbeats, self.slot, self.last_exit, sandbox, may_watch)
        output, module = self.pipes["child_stdout"], self.config.program.module

        def run() -> int:
            begin(child, sandbox, output)
            main: ChildMain = importlib.import_module(module).main
            return main(child)

        fork.become(name, run, options.pid)

    def make_directories(self) -> None:
        """Create the child's own directories, at its start and after they were removed."""
        make_directories(self._access)

    def change_state(self, new_state: int, expected: bool = True) -> None:
        """Change the state as supervisord does, with devherd's delay before the next start."""
        super().change_state(new_state, expected)
        if new_state == ProcessStates.BACKOFF:
            if self._cause == RENEWED or time.monotonic() - self._spawned_at >= self._waits.steady:
                self._failures = 0
                self._backoff.reset()
            self._failures += 1
            delay = self._backoff.seconds() if self._failures > 1 else 0.0
            self._start_at = time.monotonic() + delay
            when = f"in {delay:.1f} s" if delay else "at once"
            level = logging.INFO if self._cause == RENEWED else logging.WARNING
            self.note(f"{self.config.child_name}: {self.last_exit}; next start {when}", level)

    def record_spawnerr(self, msg: str) -> None:
        """Record why the child could not be started."""
        self.last_exit = f"{msg}; {MORE_PROCESS_IDS}" if msg.startswith(_NO_PROCESS) else msg
        super().record_spawnerr(msg)

    def _close_output(self) -> None:
        """Close the pipes of a child that was not started: they would be polled for ever."""
        for output in self.dispatchers.values():
            output.end()
        self.dispatchers, self.pipes = {}, {}

    def finish(self, pid: int, sts: int) -> None:
        """Handle the end of the child; called after it was reaped."""
        self.drain()  # its last words
        outputs = list(self.dispatchers.values())
        is_wanted = self.killing or self.config.options.mood != SupervisorStates.RUNNING
        self._cause = self._cause_of(sts)
        self.last_exit = self._exit_text(sts)
        super().finish(pid, sts)
        for output in outputs:
            output.end()
        if self.config.program.starts_programs:
            self.config.options.orphans.of(pid)
        if is_wanted:
            self._failures = 0
            self._backoff.reset()
            self.note(f"{self.config.child_name} stopped, {self.last_exit}")
        else:
            self.change_state(ProcessStates.BACKOFF)
            self.spawnerr = f"{self.last_exit}, {self._failures} in a row"

    def reload(self) -> None:
        """Have the child read the configuration: by SIGHUP, or at its start if it does not run."""
        if self.pid:
            self.signal(signal.SIGHUP)
        else:
            self.hold_back(0)  # a process that waits for its start is started now
            self.transition()

    def note(self, what: str, level: int = logging.INFO) -> None:
        """Write what happened to the child to the log and the history."""
        about = {"child": self.config.child_name}
        log.log(level, "%s", what, extra={"fields": about})
        self.config.options.history.note("process", what, details=about)

    def _exit_text(self, status: int) -> str:
        if self._cause == RENEWED:
            return "restarted: a directory that it uses was made anew"
        text = "no heartbeat, killed" if self._silent else str(decode_wait_status(status)[1])
        lacks_threads = status and any(output.lacks_threads for output in self.dispatchers.values())
        return f"{text}: no thread could be started; {MORE_PROCESS_IDS}" if lacks_threads else text

    def _cause_of(self, status: int) -> str:
        if self.killing:
            return "operator"
        if self._silent:
            return "heartbeat"
        if os.WIFEXITED(status) and os.WEXITSTATUS(status) == RENEW:
            return RENEWED
        return "signal" if os.WIFSIGNALED(status) else "exit"

    def transition(self) -> None:
        """Do what is due: become RUNNING after the first heartbeat, start, or kill a child that does not stop."""
        if self.state == ProcessStates.STARTING and self._has_beaten():
            self.change_state(ProcessStates.RUNNING)
        elif self.config.options.mood == SupervisorStates.RUNNING and time.monotonic() >= self._due_to_start():
            self.spawn()
        elif self.state == ProcessStates.STOPPING and time.monotonic() >= self._kill_at:
            log.warning("%s did not stop within %g s: killed", self.config.child_name, self._waits.stop)
            self.kill(signal.SIGKILL)

    def rest(self) -> float:
        """Seconds until `transition` has something to do."""
        now = time.monotonic()
        if self.state == ProcessStates.STARTING:
            return max(LOOK_FOR_FIRST_BEAT_SECONDS, (now - self._spawned_at) / 4)
        if self.state == ProcessStates.STOPPING:
            return max(0.0, self._kill_at - now)
        return max(0.0, self._due_to_start() - now)

    def kill(self, sig: int) -> str | None:
        """Send a stop signal; SIGKILL follows after Waits.stop. Returns the reason if it cannot be sent."""
        reason: str | None = super().kill(sig)
        self._kill_at = time.monotonic() + self._waits.stop
        if sig == signal.SIGKILL:
            self._dead_by = min(self._dead_by, time.monotonic() + self._waits.die)
        return reason

    def is_beyond_help(self) -> bool:
        """True if it survived SIGKILL for Waits.die."""
        return self.state == ProcessStates.STOPPING and time.monotonic() >= self._dead_by

    def hold_back(self, seconds: float) -> None:
        """Set the time of the next start, for a child that is new or waits for its restart."""
        self._start_at = time.monotonic() + seconds

    def give_up(self) -> None:
        """End the wait for the next start with STOPPED instead of supervisord's FATAL."""
        self.change_state(ProcessStates.STOPPED)

    def limit(self, limit_seconds: float, watched_since: float) -> float:
        """The monotonic second after which its silence is too long, unless it beats until then."""
        if self.state not in _ALIVE or self._silent:
            return NEVER
        rests: int = self.config.options.heartbeats.rest_seconds(self.slot)
        return max(self._last_beat() + rests, self._spawned_at, watched_since) + limit_seconds

    def replace_if_silent(self, limit_seconds: float, watched_since: float) -> None:
        """Kill a child whose heartbeat is older than the limit; it is then restarted like any child that died."""
        if time.monotonic() > self.limit(limit_seconds, watched_since):
            log.error("%s: no heartbeat for %.1f s: killed", self.config.child_name, limit_seconds)
            self._silent = True
            self.signal(signal.SIGKILL)

    def leave(self) -> None:
        """Stop for good, because the program is removed."""
        if self.state in (*_ALIVE, ProcessStates.BACKOFF):
            self.kill(self.config.stopsignal)
        self.leaving = True

    def has_left(self) -> bool:
        """True if the process of a removed program has ended."""
        return self.leaving and self.state in STOPPED_STATES

    def release(self) -> None:
        """Free the heartbeat slot and remove the logs; the object must not be used afterwards."""
        self.config.options.heartbeats.release(self.slot)
        for suffix in ("", *(f".{number + 1}" for number in range(LOG_BACKUPS))):
            self._remove_log(self.config.stdout_logfile + suffix)

    def _remove_log(self, path: str) -> None:
        try:
            os.unlink(path)  # noqa: PTH108 - supervisord has its paths as text
        except FileNotFoundError:
            pass
        except OSError as error:
            log.warning("cannot remove the log of a removed program: %s", error)

    def message(self) -> spool_pb2.Child:
        """The child's entry in `children.pb`."""
        return spool_pb2.Child(
            name=self.config.child_name,
            heartbeat_slot=self.slot,
            pid=self.pid,
            state=getProcessStateDescription(self.state),
            started_timestamp_seconds=self.laststart,
            restarts=dict(self.restarts),
            last_exit=self.last_exit,
        )

    def _due_to_start(self) -> float:
        if self.leaving:
            return NEVER
        is_new = self.state == ProcessStates.STOPPED and not self.laststart
        return self._start_at if is_new or self.state == ProcessStates.BACKOFF else NEVER

    def _last_beat(self) -> float:
        return float(self.config.options.heartbeats.last_beat(self.slot))

    def _has_beaten(self) -> bool:
        return self._last_beat() > 0


def begin(child: Child, sandbox: Sandbox, output: int) -> None:
    """Make its process a child's, before it imports its module."""
    fork.leave_the_supervisor(output)
    fork.introduce(child.name, child.settings)
    sandbox.enter()
    gc.freeze()


class Group(ProcessGroup):
    """The processes of one group."""

    processes: dict[str, Process]

    def get_unstopped_processes(self) -> list[Process]:
        """The processes that supervisord has to wait for."""
        unstopped: list[Process] = super().get_unstopped_processes()
        return [process for process in unstopped if not process.is_beyond_help()]


class GroupConfig(ProcessGroupConfig):
    """Makes a Group."""

    def make_group(self) -> Group:
        """The group with its processes, none of them started."""
        return Group(self)
