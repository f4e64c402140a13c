"""The loader: a short-lived process that reads and validates the configuration at a reload or for a new label."""

import contextlib
import logging
import os
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from devherd import fork
from devherd.config.chosen_file import label_answer
from devherd.config.resolved import ResolvedConfig, ResolvedFileError, read_resolved, write_resolved
from devherd.config.sections import FrontEnd
from devherd.configurations import Configurations
from devherd.errors import DevherdError, UsageError
from devherd.log import Once
from devherd.settings import Settings, changed_fixed_options
from devherd.spool import Identity, identity_of
from devherd.supervisor.lock import refusing_unusable
from devherd.text import first_lines

log = logging.getLogger(__name__)

NAME = "loader"
LIMIT_SECONDS = 30.0
"""A hanging file system must not prevent a later reload."""
LONGEST_COMPLAINT = 4096
"""Limit of a refusal in bytes: a pipe takes that many in one write."""
_AGAIN_SECONDS = 30.0
_NOT_RELOADED = "configuration not reloaded, the old one stays"

Load = Callable[[Settings | None], ResolvedConfig]
"""Returns the configuration: at the start for None, later for a running instance with these settings."""


class Loader:
    """Runs at most one process at a time; requests that arrive while it runs are handled after its end."""

    def __init__(self, load: Load, options: Any, config: ResolvedConfig, *, is_old: bool) -> None:
        """`options` are the supervisor's, `config` is the configuration in force.

        `is_old`: it was read before this instance stood by, and may have been edited since.
        """
        self.config = config
        self.loaded: Callable[[], None] = lambda: None
        """Called for each new configuration."""
        self.reloads = 0
        """Requests to reload."""
        self.failures = 0
        """Requests that left the old configuration in force."""
        self.loaded_at = time.time()
        """Wall-clock second at which the configuration in force was taken."""
        self.refusal = ""
        """The reason why the last attempt left the old configuration in force; empty if it did not."""
        self._load = load
        self._options = options
        self._settings: Settings = options.settings
        self._looked_at = config.settings().config_seen
        chosen_from = config.settings().configurations
        self._watch = ConfigurationsWatch(chosen_from, config.settings()) if chosen_from else None
        self._readers: Mapping[str, int] = {}
        self._pid = 0
        self._complaints = -1
        self._kill_at = 0.0
        self._counts = self._asked_again = False
        self._is_old = is_old
        self._decides = self._decided = 0
        """The last request that the current process handles, and the last that is decided."""
        self._again_at: float | None = None
        self._unwritable = Once(log.error)

    def outcome_of(self, request: int) -> str | None:
        """The reason why a request left the old configuration in force, empty if it did not; None while undecided."""
        return self.refusal if self._decided >= request else None

    def request(self) -> int:
        """Load the configuration; returns the number of the request."""
        self.reloads += 1
        self._again_at = None
        if self._pid:
            self._asked_again = True
        else:
            self._start(counts=True)
        return self.reloads

    @property
    def is_waiting(self) -> bool:
        """True if `tend` must be called each second: a label chooses the file, or a file is being read."""
        return self._watch is not None or bool(self._pid)

    def tend(self, readers: Mapping[str, int]) -> None:
        """Called repeatedly. Kills a loader that hangs, restores a removed file, reloads for a restarted reader.

        `readers` are the programs that read the configuration, each with its number of restarts: a restarted process
        gets the current file. If a node label chooses the file, a new choice or new content is loaded at once.
        """
        if self._pid and time.monotonic() >= self._kill_at:
            log.error("the configuration was not read within %.0f s: %s killed", LIMIT_SECONDS, NAME)
            os.kill(self._pid, signal.SIGKILL)
            self._kill_at = float("inf")
        if not self._settings.resolved_config_file.exists():
            self._put_back()
        if self._watch is not None and not self._pid and self._watch.has_changed():
            log.info("another configuration is chosen, or the chosen one has changed: reloading")
            self.request()
        elif self._again_at is not None and not self._pid and time.monotonic() >= self._again_at:
            log.info("the chosen configuration is not in force yet: reloading once more")
            self.request()
        elif self._is_old and not self._pid:
            self._start(counts=False)
        is_restarted = any(restarts > self._readers.get(name, 0) for name, restarts in readers.items())
        if is_restarted and not self._pid and self._version() not in (None, self._looked_at):
            self._start(counts=False)
        self._readers = readers

    def end(self) -> None:
        """Kill the process, so that it does not write: another instance may use the run directory soon."""
        if self._pid:
            with contextlib.suppress(ProcessLookupError, ChildProcessError):
                os.kill(self._pid, signal.SIGKILL)
                os.waitpid(self._pid, 0)
            self._pid = 0

    def _put_back(self) -> None:
        """Write the configuration in force again, after its file was removed."""
        try:
            write_resolved(self._settings.resolved_config_file, self.config)
        except OSError as error:
            text = "cannot write %s: %s; trying again"
            self._unwritable.complain(text, self._settings.resolved_config_file, error)
        else:
            self._unwritable.over()

    def finish(self, _pid: int, status: int) -> None:
        """Handle the end of the process; called after it was reaped."""
        self._pid = 0
        code = os.waitstatus_to_exitcode(status)
        complaint = _rest_of(self._complaints)
        if code < 0:
            complaint = f"{NAME} ended by {signal.Signals(-code).name}"
            log.error("%s: %s", _NOT_RELOADED, complaint)
            self._try_again()
        self.refusal = "" if code == 0 else complaint or f"{NAME} ended with exit code {code}"
        before = self.config
        is_good = code == 0 and self._take()
        self._decided = self._decides
        if self._counts and not is_good:
            self._count_failure()
        if is_good and (self._counts or self.config != before):
            self.loaded()
        if self._asked_again:
            self._asked_again = False
            self._start(counts=True)

    def _take(self) -> bool:
        try:
            self.config = read_resolved(self._settings.resolved_config_file)
        except ResolvedFileError as error:
            self.refusal = str(error)
            log.error("%s: %s", _NOT_RELOADED, error)
            return False
        self.loaded_at = time.time()
        return True

    def _version(self) -> Identity | None:
        path = None if self._watch else self._settings.config_path
        return identity_of(path, follow_symlinks=True) if path else None

    def _start(self, *, counts: bool) -> None:
        self._counts, self._decides, self._is_old = counts, self.reloads, False
        self._looked_at = self._version()
        try:
            complaints, complain_to = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            self._cannot_start("cannot open a pipe", error)
            return
        try:
            pid = fork.forked(NAME, lambda: _reload(self._load, self._settings, self.config.front_end, complain_to))
        except OSError as error:
            os.close(complaints)
            self._cannot_start("cannot fork", error)
            return
        finally:
            os.close(complain_to)
        self._pid, self._complaints = pid, complaints
        self._kill_at = time.monotonic() + LIMIT_SECONDS
        self._options.pidhistory[pid] = self  # where supervisord looks up the process it has reaped

    def _cannot_start(self, what: str, error: OSError) -> None:
        self.refusal, self._decided = f"{what}: {error.strerror}", self._decides
        log.error("%s: %s", _NOT_RELOADED, self.refusal)
        self._try_again()
        if self._counts:
            self._count_failure()

    def _try_again(self) -> None:
        """Schedule a retry if a label chooses the file: no operator retries. For failures not caused by the file."""
        self._again_at = time.monotonic() + _AGAIN_SECONDS if self._watch is not None else None

    def _count_failure(self) -> None:
        self.failures += 1
        self._options.history.note("reload", f"{_NOT_RELOADED}: {self.refusal}")


def _rest_of(pipe: int) -> str:
    """The text that an ended process has left in a pipe. Closes the pipe."""
    with os.fdopen(pipe, "rb") as left:
        return (left.read() or b"").decode(errors="replace")


def _reload(load: Load, settings: Settings, front_end: FrontEnd, complain_to: int) -> int:
    """The work of the process; returns its exit code. `front_end`: the one in force."""
    fork.leave_the_supervisor(output=2, keep=complain_to)
    fork.introduce(NAME, settings)
    try:
        config = load(settings)
        if config.front_end != front_end:
            from devherd.kubelet.other_front_end import refuse_change  # noqa: PLC0415 - hardly any reload needs it

            refuse_change(config.front_end, front_end, settings)
        with refusing_unusable(settings.run_dir):
            write_resolved(settings.resolved_config_file, config)
    except (DevherdError, OSError) as error:
        log.error("%s: %s", _NOT_RELOADED, error)
        os.write(fork.KEPT, str(error).encode()[:LONGEST_COMPLAINT])
        return error.exit_code if isinstance(error, DevherdError) else 1
    for option in changed_fixed_options(settings, config.settings()):
        log.warning("%s has changed in the configuration: restart devherd to apply this; the rest is in force", option)
    for line in first_lines(config.warnings, "warnings"):
        log.warning("%s", line)
    return 0


class ConfigurationsWatch:
    """Notices a new choice or new content of the configuration file; reads a file only if its identity changed."""

    def __init__(self, configurations: Configurations, settings: Settings) -> None:
        """`settings` are those of the configuration in force."""
        self._configurations = configurations
        self._file = settings.config_label_file
        self._value = settings.config_label_value
        self._answer = label_answer(self._file)
        self._state: object = None
        self._content: object = self._chosen()
        if settings.config_path is None or self._identity(settings.config_path) != settings.config_seen:
            self._state = self._content = None  # it has changed since it was read

    def has_changed(self) -> bool:
        """True if there is something to load; once for each change."""
        before = self._content
        with contextlib.suppress(OSError):  # no descriptor is left: asked again
            self._content = self._chosen()
        return self._content != before

    def _chosen(self) -> object:
        answer = label_answer(self._file)
        if answer is not None and answer != self._answer and answer.label == self._configurations.label:
            self._value = answer.value
        try:
            path = self._configurations.file_of(self._value)
        except UsageError as error:
            self._state = None
            return str(error)
        state = path, self._identity(path)
        if state == self._state:
            return self._content
        self._state = state
        return path, _content(path)

    @staticmethod
    def _identity(path: Path) -> object:
        return identity_of(path, follow_symlinks=True)


def _content(path: Path) -> int | None:
    try:
        return hash(path.read_bytes())
    except OSError:
        return None
