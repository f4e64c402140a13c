"""Standby: this instance prepares everything while another one still serves, and waits for the other's end.

A roll-out starts the new instance while the old one runs, and ends the old one when the new one is ready. Without a
standby, the kubelet would have no device plugin during the whole start.
"""

import logging
import os
import signal
import time
from collections.abc import Callable

from devherd import fork, signals
from devherd import log as logs
from devherd.config.resolved import ResolvedConfig
from devherd.errors import AlreadyRunningError, DevherdError
from devherd.instance.files import announce_standby, open_standby_file
from devherd.proto import spool_pb2
from devherd.supervisor import output
from devherd.supervisor.first_scan import FirstScan
from devherd.supervisor.programs import Programs
from devherd.text import duration, revision, version

NAME = "standby"
_LOOK_SECONDS = 1.0

log = logging.getLogger(__name__)


class Standby:
    """From `begin` to `end`, a separate process serves HTTP for this instance while its supervisor waits for locks."""

    def __init__(self, config: ResolvedConfig, programs: Programs, first_scan: FirstScan) -> None:
        self._config = config
        self._programs = programs
        self._first_scan = first_scan
        self._pid = 0
        self._is_ready = False
        self._since = 0.0

    @property
    def has_waited(self) -> bool:
        """True after `begin`: files may have changed since their configuration was read."""
        return bool(self._pid)

    def begin(self, refusal: AlreadyRunningError, has_ended: Callable[[], bool]) -> None:
        """Prepare everything that needs no lock, then report this instance as ready. Later calls skip the preparation.

        It is ready only after the rehearsal, because a roll-out then ends the other instance. If the other one
        `has_ended` earlier, this one takes over anyway. Raises DevherdError if this instance cannot do its work,
        OSError if it cannot write to the run directory; the other one then keeps running.
        """
        if not self._pid:
            self._prepare()
            self._serve(refusal, is_ready=self._first_scan.rehearsed(self._config.settings().waits.rehearsal))
        while not self._is_ready and not has_ended():
            if self._first_scan.rehearsed(_LOOK_SECONDS):
                self._stop_serving()
                self._serve(refusal, is_ready=True)

    def _prepare(self) -> None:
        settings = self._config.settings()
        logs.configure(output.MAIN_LOG, settings.log_level, settings.log_format)
        self._first_scan.rehearse()
        self._since = time.monotonic()

    def _serve(self, refusal: AlreadyRunningError, *, is_ready: bool) -> None:
        signals.end_if_asked()
        announcement = open_standby_file(self._config.settings().standby_file)
        if is_ready:
            log.info("standing by: %s, %s; this one takes over when that one ends", refusal.what, refusal.why)
        else:
            log.warning(
                "the rehearsal takes longer than %.0f s: %s, and this one is not Ready until it finishes",
                *(self._config.settings().waits.rehearsal, refusal.why),
            )
        try:
            self._pid = self._fork_server(refusal.why, announcement, is_ready=is_ready)
        finally:
            os.close(announcement)
        self._is_ready = is_ready

    def _stop_serving(self) -> None:
        os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)

    def end(self) -> None:
        """End the HTTP server: the locks are held, and the exporter takes over. Does nothing without `begin`."""
        if not self._pid:
            return
        self._stop_serving()
        log.info("taking over after %s", duration(time.monotonic() - self._since))

    def _fork_server(self, why: str, announcement: int, *, is_ready: bool) -> int:
        config = self._config
        waiting = spool_pb2.Standby(
            version=version(), revision=revision(), since=time.time(), front_end=config.front_end
        )

        def announce() -> bool:
            return not is_ready or announce_standby(fork.KEPT, waiting)  # not as standby before it is ready

        def serve() -> int:
            fork.leave_the_supervisor(output=2, keep=announcement)
            fork.introduce(NAME, config.settings())
            self._programs.stand_by(config, why, announce, is_ready)
            return 0

        try:
            return fork.forked(NAME, serve)
        except OSError as error:
            raise DevherdError(
                "this instance cannot stand by",
                f"no further process can be started: {error.strerror}",
                "allow more of them: the pod's pids, or `ulimit -u`",
            ) from error
