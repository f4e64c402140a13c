"""Standing by: everything is prepared while another instance still serves, and its end is waited for.

A roll-out starts the new instance beside the old one, and ends the old one when the new one is ready. Were this one to
start only then, the kubelet would be without for as long as the start takes.
"""

import logging
import os
import signal
import time
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

log = logging.getLogger(__name__)


class Standby:
    """From `begin` to `end` a process of its own answers for this instance, whose supervisor waits for locks."""

    def __init__(self, config: Config, programs: Programs, first_scan: FirstScan) -> None:
        self._config = config
        self._programs = programs
        self._first_scan = first_scan
        self._pid = 0
        self._since = 0.0

    def begin(self, refusal: AlreadyRunningError) -> None:
        """Prepare all that needs no lock, and then say that this instance is ready. Again: nothing.

        Raises DevherdError when this instance could not do its work, and OSError when it cannot write to the run
        directory: then the other one had better stay.
        """
        if self._pid:
            return
        settings = self._config.settings()
        logs.configure(main_log.NAME, settings.log_level, settings.log_format)
        self._first_scan.rehearse()
        with lean_imports():
            self._programs.preload()
        self._first_scan.rehearsed(REHEARSAL_SECONDS)
        ending.go_on()
        self._since = time.monotonic()
        announcement = standby_file.opened(settings.standby_file)
        log.info("standing by: %s, %s; this one takes over when that one ends", refusal.what, refusal.why)
        try:
            self._pid = self._answering(refusal.why, announcement)
        finally:
            os.close(announcement)

    def end(self) -> None:
        """The locks are held: nobody answers any more until the exporter does. Without `begin`: nothing."""
        if not self._pid:
            return
        os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)
        log.info("taking over after %s", duration(time.monotonic() - self._since))

    def _answering(self, why: str, announcement: int) -> int:
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
                _run(self._programs, self._config, why, announcement, parent)
        return pid


def _run(programs: Programs, config: Config, why: str, announcement: int, parent: int) -> NoReturn:
    code = fork.CRASHED
    try:
        settings = config.settings()
        waiting = Waiting(version=version(), revision=revision(), since=time.time())
        fork.leave_the_supervisor(output=2, keep=announcement)
        fork.die_with(parent)
        entitle(NAME, settings)
        logs.configure(NAME, settings.log_level, settings.log_format)
        programs.stand_by(config, why, lambda: standby_file.announce(fork.KEPT, waiting))
        code = 0
    except BaseException:  # whatever it is, it must not get into the supervisor's frames below
        log.exception("%s crashed", NAME)
    finally:
        fork.end(code)
