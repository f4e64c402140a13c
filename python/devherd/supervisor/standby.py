"""Standing by: everything is prepared while another instance still serves, and its end is waited for.

A roll-out starts the new instance beside the old one, and ends the old one when the new one is ready. Were this one to
start only then, the kubelet would be without for as long as the start takes.
"""

import logging
import os
import signal
import time
from collections.abc import Callable
from typing import NoReturn

from devherd import log as logs
from devherd import standby_file
from devherd.amounts import duration
from devherd.config.resolved import Config
from devherd.errors import AlreadyRunningError, DevherdError
from devherd.standby_file import Waiting
from devherd.supervisor import ending, fork, main_log
from devherd.supervisor.first_scan import FirstScan
from devherd.supervisor.lean_imports import lean_imports
from devherd.supervisor.programs import Programs
from devherd.supervisor.title import entitle
from devherd.version import revision, version

NAME = "standby"
REHEARSAL_SECONDS = 30.0
"""After so long without its end an instance answers that it is alive: its pod's startup probe waits a minute."""
_LOOK_SECONDS = 1.0

log = logging.getLogger(__name__)


class Standby:
    """From `begin` to `end` a process of its own answers for this instance, whose supervisor waits for locks."""

    def __init__(self, config: Config, programs: Programs, first_scan: FirstScan) -> None:
        self._config = config
        self._programs = programs
        self._first_scan = first_scan
        self._pid = 0
        self._is_ready = False
        self._since = 0.0

    def begin(self, refusal: AlreadyRunningError, has_ended: Callable[[], bool]) -> None:
        """Prepare all that needs no lock, and then say that this instance is ready; once for all.

        Not before the end of the rehearsal, however long that takes: a roll-out ends the other one then. Where that
        `has_ended` before, this one takes over all the same. Raises DevherdError when this instance could not do its
        work, and OSError when it cannot write to the run directory: then the other one had better stay.
        """
        if not self._pid:
            self._prepare()
            self._answer(refusal, is_ready=self._first_scan.rehearsed(REHEARSAL_SECONDS))
        while not self._is_ready and not has_ended():
            if self._first_scan.rehearsed(_LOOK_SECONDS):
                self._stop_answering()
                self._answer(refusal, is_ready=True)

    def _prepare(self) -> None:
        settings = self._config.settings()
        logs.configure(main_log.NAME, settings.log_level, settings.log_format)
        self._first_scan.rehearse()
        with lean_imports():
            self._programs.preload()
        self._since = time.monotonic()

    def _answer(self, refusal: AlreadyRunningError, *, is_ready: bool) -> None:
        ending.go_on()
        announcement = standby_file.opened(self._config.settings().standby_file)
        if is_ready:
            log.info("standing by: %s, %s; this one takes over when that one ends", refusal.what, refusal.why)
        else:
            log.warning(
                "the rehearsal takes longer than %.0f s: %s, and this one is not Ready before it is done",
                *(REHEARSAL_SECONDS, refusal.why),
            )
        try:
            self._pid = self._answering(refusal.why, announcement, is_ready=is_ready)
        finally:
            os.close(announcement)
        self._is_ready = is_ready

    def _stop_answering(self) -> None:
        os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)

    def end(self) -> None:
        """The locks are held: nobody answers any more until the exporter does. Without `begin`: nothing."""
        if not self._pid:
            return
        self._stop_answering()
        log.info("taking over after %s", duration(time.monotonic() - self._since))

    def _answering(self, why: str, announcement: int, *, is_ready: bool) -> int:
        parent = os.getpid()
        with fork.signals_held():
            try:
                pid = os.fork()
            except OSError as error:
                raise DevherdError(
                    "this instance cannot stand by",
                    f"no further process can be started: {error.strerror}",
                    "allow more of them: the pod's pids, or `ulimit -u`",
                ) from error
            if pid == 0:
                _run(self._programs, self._config, why, announcement, parent, is_ready=is_ready)
        return pid


def _run(programs: Programs, config: Config, why: str, announcement: int, parent: int, *, is_ready: bool) -> NoReturn:
    code = fork.CRASHED
    try:
        settings = config.settings()
        waiting = Waiting(version=version(), revision=revision(), since=time.time())
        fork.leave_the_supervisor(output=2, keep=announcement)
        fork.die_with(parent)
        entitle(NAME, settings)
        logs.configure(NAME, settings.log_level, settings.log_format)
        # One that is not ready does not say that it stands by.
        programs.stand_by(config, why, lambda: not is_ready or standby_file.announce(fork.KEPT, waiting), is_ready)
        code = 0
    except BaseException:  # whatever it is, it must not get into the supervisor's frames below
        log.exception("%s crashed", NAME)
    finally:
        fork.end(code)
