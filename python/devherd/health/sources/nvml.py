"""Process `source:nvml`: asks NVIDIA's library for what the scanner's request needs, and writes its answer.

A thread of its own asks, since the library may hang; the main thread beats, writes the files and abandons an
attempt that hangs. Then the process ends: the supervisor starts another, or none while this one sleeps in the kernel.
"""

import json
import logging
import select
import signal
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

from devherd import spool
from devherd._native import DirectoryWatch
from devherd.backoff import Backoff
from devherd.child import BEAT_PERIOD_SECONDS, RENEW, Child
from devherd.health.sources import nvml_answer
from devherd.health.sources.nvml_answer import Answer, Request
from devherd.health.sources.nvml_findings import findings

log = logging.getLogger(__name__)

NAME = "nvml"
ATTEMPTS = Backoff(0.1, 30.0, jitter=0.2)
"""Between attempts that fail."""
REPLACE_ME = 1
"""Exit code of a process that must be replaced."""


def main(child: Child) -> int:
    """The child's main function: runs until SIGTERM, or until NVML hangs."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    return Source(child).run()


class Source:
    """Asks when the request changes and, after a failure, again at growing intervals."""

    def __init__(self, child: Child) -> None:
        self._child = child
        self._requests = child.settings.requests_directory
        self._answer_file = child.settings.nvml_answer_file
        self._findings_file = spool.path_of(child.settings.findings_directory, NAME)
        self._answer = nvml_answer.read(self._answer_file)
        self._asked: Request | None = None
        self._ask_again_at = 0.0
        self._nodes = device_nodes()
        self._watch = _open_watch()
        self._unwritable = False

    def run(self) -> int:
        """Ask whenever it is due; returns the exit code when another process is needed."""
        self._explain_how_the_last_process_ended()
        while not self._child.has_outgrown_its_sandbox():
            self._child.beat()
            self._look_for_requests()
            request = self._request()
            if request is not None and self._is_due(request) and not self._ask(request):
                return REPLACE_ME
            self._rest()
        return RENEW

    def _explain_how_the_last_process_ended(self) -> None:
        if self._answer.asking is not None and self._child.last_exit:
            self._become(self._answer.crashed(self._child.last_exit))

    def _request(self) -> Request | None:
        """The current request; None while there is none that can be read."""
        try:
            request: Request = json.loads((self._requests / f"{NAME}.json").read_bytes())
        except (OSError, ValueError):
            return None
        return request

    def _is_due(self, request: Request) -> bool:
        return request != self._asked or bool(self._answer.failures and time.monotonic() >= self._ask_again_at)

    def _ask(self, request: Request) -> bool:
        """One attempt; False when another process is needed: NVML hangs, or this process may not open new nodes."""
        if device_nodes() != self._nodes:
            log.info("device nodes were created or removed; this process may open only those that existed at its start")
            return False
        self._asked = request
        self._become(self._answer.begun(request))
        attempt = Attempt(self._answer)
        begin = time.monotonic()
        slow_at = begin + request["patience_seconds"]
        hangs_at = begin + nvml_answer.deadline_seconds(request)
        attempt.start()
        try:
            while attempt.is_alive():
                self._child.beat()
                now = time.monotonic()
                if now >= hangs_at:
                    self._give_up(attempt)
                    return False
                if now >= slow_at:
                    self._become(self._answer.slow())
                due = hangs_at if now >= slow_at else slow_at
                attempt.join(min(BEAT_PERIOD_SECONDS, due - now))
        except SystemExit:  # asked to end: not a crash
            self._become(replace(self._answer, asking=None))
            raise
        self._become(attempt.outcome)
        self._ask_again_at = time.monotonic() + ATTEMPTS.after(max(0, self._answer.failures - 1))
        return True

    def _give_up(self, attempt: "Attempt") -> None:
        stuck = self._answer.failing(nvml_answer.STUCK)
        self._become(stuck if attempt.is_in_the_kernel() else self._answer.hanging())
        log.error("%s", self._answer.problem)

    def _become(self, answer: Answer) -> None:
        """Write what is known now; files that cannot be written are written with the next answer."""
        if answer == self._answer and self._answer_file.exists():
            return
        self._answer = answer
        try:
            for file in (self._answer_file, self._findings_file):
                file.parent.mkdir(mode=0o700, exist_ok=True)
            if answer.asking is None:  # before the answer: a reader that sees the answer finds them
                spool.write(self._findings_file, findings(answer, time.time()))
            spool.update(self._answer_file, answer.json())
        except OSError as error:
            if not self._unwritable:
                log.error("cannot write NVML's answer: %s; the scan goes on with the last one", error)
            self._unwritable = True
        else:
            self._unwritable = False

    def _look_for_requests(self) -> None:
        try:
            if self._watch:
                self._watch.add(str(self._requests))
        except OSError as error:
            log.debug("cannot watch %s: %s", self._requests, error)

    def _rest(self) -> None:
        """Until the request may have changed or an attempt is due, the next beat at the latest."""
        seconds = BEAT_PERIOD_SECONDS
        if self._answer.failures:
            seconds = min(seconds, max(0.0, self._ask_again_at - time.monotonic()))
        if self._watch is None:
            time.sleep(seconds)
        elif select.select([self._watch], [], [], seconds)[0]:
            self._watch.drain()


class Attempt(threading.Thread):
    """One question to NVML."""

    def __init__(self, begun: Answer) -> None:
        super().__init__(name="nvml", daemon=True)
        self.outcome = begun

    def run(self) -> None:
        """Ask."""
        self.outcome = nvml_answer.ask(self.outcome)

    def is_in_the_kernel(self) -> bool:
        """Whether it is in uninterruptible sleep (state D), out of the reach of signals."""
        try:
            stat = Path(f"/proc/self/task/{self.native_id}/stat").read_text()
        except OSError:
            return False
        return stat.rpartition(")")[2].split()[0] == "D"


def device_nodes() -> frozenset[Path]:
    """The existing nodes that NVML opens; a process may open only those that existed at its start."""
    dev = Path("/dev")
    return frozenset([*dev.glob("nvidia*"), *dev.glob("dxg")])


def _open_watch() -> DirectoryWatch | None:
    try:
        return DirectoryWatch()
    except OSError as error:
        log.warning("no inotify: %s; requests are looked for each second; raise fs.inotify.max_user_instances", error)
        return None
