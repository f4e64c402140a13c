"""Process `source:nvml`: answers the scanner's requests through NVML and watches the health of the GPUs."""

import contextlib
import json
import logging
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from devherd import signals, spool
from devherd._native import DirectoryWatch, Hangs, answered, die_with_parent
from devherd.backoff import Backoff
from devherd.log import Once
from devherd.process import BEAT_PERIOD_SECONDS, RENEW, Child, stat_of
from devherd.proto import health_pb2, spool_pb2
from devherd.reasons.registry import OPERATOR
from devherd.sources.nvml import session as nvml_answer
from devherd.sources.nvml.apart import Apart
from devherd.sources.nvml.counts import Reading
from devherd.sources.nvml.findings import NVML
from devherd.sources.nvml.session import SLICE_SECONDS, Answer, Asking, Request, Session, Watcher
from devherd.spool import Identity, identity_of

log = logging.getLogger(__name__)

ATTEMPTS = Backoff(0.1, 30.0, jitter=0.2)
"""Delays between failed attempts."""
REPLACE_ME = 1
"""Exit code of a process that must be replaced."""
NOT_STARTED = "NVML cannot be asked — {error} — check memory and the pids limit"
PAUSED = (
    "NVML is paused — NVIDIA's manager of drivers or MIG devices has set the node's label {label} to {value}"
    " — it goes on when the label says that this is over"
)
PAUSE_SECONDS = 180.0
"""A pause expires after this time unless it is written again: its writer may have been switched off."""
DIE_SECONDS = 1.0
"""Time for a killed process to end; a process that needs longer is in uninterruptible sleep."""

T = TypeVar("T")


def main(child: Child) -> int:
    """The child's main function: runs until SIGTERM, or until NVML hangs."""
    signals.remember()
    return NvmlSource(child).run()


class ProcessEnded(Exception):  # noqa: N818 - it is no error
    """This process must end, and does not wait for the current call."""


class NvmlSource:
    """Asks when the request changes, and after failures at growing intervals; watches the GPUs in between."""

    def __init__(self, child: Child) -> None:
        self._child = child
        self._apart = Apart()  # first: it forks
        self._requests = child.settings.requests_directory
        self._answer_file = child.settings.nvml_answer_file
        self._findings_file = spool.path_of(child.settings.findings_directory, NVML)
        self._answer = nvml_answer.read_answer(self._answer_file)
        self._asked: Request | None = None
        self._ask_again_at = 0.0
        of_operator = spool.path_of(child.settings.findings_directory, OPERATOR)
        earlier = spool.read_or_empty(self._findings_file, health_pb2.Findings)
        self._watcher = Watcher(earlier, of_operator, child.settings.waits)
        self._written: Identity | None = None
        """Identity of the findings file as this process wrote it."""
        self._nodes = device_nodes()
        self._watch = _open_watch()
        self._unwritable = Once(log.error)

    def run(self) -> int:
        """Ask and watch when it is due, until asked to end or another process is needed; returns the exit code."""
        self._explain_how_the_last_process_ended()
        while not (signals.is_to_end() or self._child.has_outgrown_its_sandbox()):
            self._child.beat()
            self._look_for_requests()
            request = self._request()
            pause = paused(self._child.settings.nvidia_pause_file)
            if pause and self._asked is not None:
                log.info("%s; this process ends, so that nothing of the library is left", pause)
                return RENEW
            if pause:
                self._stand_by(pause)
                continue
            if request is not None and not self._go_on(request):
                return 0 if signals.is_to_end() else REPLACE_ME
            if request is None or self._watcher.is_resting():
                self._rest()
        return 0 if signals.is_to_end() else RENEW

    def _stand_by(self, pause: str) -> None:
        """Report why NVML is not asked, and rest; facts and findings stay as they are."""
        self._become(replace(self._answer, problem=pause, asking=None))
        self._rest()

    def _explain_how_the_last_process_ended(self) -> None:
        if self._answer.asking is not None and self._child.last_exit:
            self._become(self._answer.crashed(self._child.last_exit))

    def _request(self) -> Request | None:
        """The current request; None without a readable one."""
        try:
            request: Request = json.loads((self._requests / f"{NVML}.json").read_bytes())
        except (OSError, ValueError):
            return None
        return request

    def _is_due(self, request: Request) -> bool:
        return request != self._asked or bool(self._answer.failures and time.monotonic() >= self._ask_again_at)

    def _go_on(self, request: Request) -> bool:
        """Ask or watch; False if the process must end: it was asked to, NVML hangs, or it may not open new nodes."""
        is_due = self._is_due(request)
        if is_due and device_nodes() != self._nodes:
            log.info("device nodes were created or removed; this process may open only those that existed at its start")
            return False
        try:
            if is_due:
                self._ask(request)
            elif not self._watcher.is_resting():
                has_news = self._watcher.turn(self._asking(request))
                if has_news or identity_of(self._findings_file) != self._written:
                    self._write(self._write_findings)
        except Hangs as hangs:
            self._give_up(request, hangs)
            return False
        except BlockingIOError as error:  # no thread could be started: NVML was not asked
            log.warning("%s", error)
            self._become(replace(self._answer, problem=str(error), asking=None))
            return False
        except ProcessEnded:
            self._become(replace(self._answer, asking=None))
            return False
        return True

    def _ask(self, request: Request) -> None:
        """Make one attempt to get the facts, with new handles of the GPUs."""
        self._asked = request
        self._become(self._answer.begun(request))
        begun, before = self._answer, self._watcher.session
        session = Session(request, self._child.settings.host_root, self._apart)
        apart = self._watcher.apart
        begin = time.monotonic()

        def beat() -> None:
            self._beat()
            if time.monotonic() >= begin + request["patience_seconds"]:
                self._become(self._answer.slow())

        answer, readings = answered(
            lambda: attempt(begun, before, session, apart), nvml_answer.deadline_seconds(request), beat
        )
        self._watcher.begin(request, None if answer.failures else session, readings, begin)
        self._become(answer)
        self._ask_again_at = time.monotonic() + ATTEMPTS.after(max(0, self._answer.failures - 1))

    def _beat(self) -> None:
        self._child.beat()
        if signals.is_to_end():
            raise ProcessEnded

    def _asking(self, request: Request) -> Asking:
        # half of the deadline for those that are apart, half for the nodes of those that are not listed
        seconds = SLICE_SECONDS + 2 * nvml_answer.deadline_seconds(request)

        def asking(ask: Callable[[], T]) -> T:
            return answered(ask, seconds, self._beat)

        return asking

    def _give_up(self, request: Request, hangs: Hangs) -> None:
        asking = replace(self._answer, asking=request)
        self._become(asking.failing(nvml_answer.STUCK) if _is_in_the_kernel(*hangs.args) else asking.hanging())
        log.error("%s", self._answer.problem)

    def _become(self, answer: Answer) -> None:
        """Write the answer; a file that cannot be written is written with the next answer."""
        if answer == self._answer and self._answer_file.exists():
            return
        self._answer = answer
        self._write(self._write_answer)

    def _write_answer(self) -> None:
        self._answer_file.parent.mkdir(mode=0o700, exist_ok=True)
        if self._answer.asking is None:  # before the answer: a reader that sees the answer finds them
            self._write_findings()
        spool.update(self._answer_file, self._answer.json())

    def _write_findings(self) -> None:
        self._findings_file.parent.mkdir(mode=0o700, exist_ok=True)
        spool.write(self._findings_file, self._watcher.message(self._answer.problem or ""))
        self._written = identity_of(self._findings_file)

    def _write(self, write: Callable[[], None]) -> None:
        try:
            write()
        except OSError as error:
            text = "cannot write NVML's answer: %s; the scan goes on with the last one"
            self._unwritable.complain(text, error, about=error.errno)  # of one of two files
        else:
            self._unwritable.over()

    def _look_for_requests(self) -> None:
        try:
            if self._watch:
                self._watch.add(str(self._requests))
        except OSError as error:
            log.debug("cannot watch %s: %s", self._requests, error)

    def _rest(self) -> None:
        """Sleep until the request may have changed, an attempt is due, or the next heartbeat."""
        seconds = BEAT_PERIOD_SECONDS
        if self._answer.failures:
            seconds = min(seconds, max(0.0, self._ask_again_at - time.monotonic()))
        if self._watch is None:
            signals.rest(seconds)
        elif signals.ready([self._watch], seconds):
            self._watch.drain()


def _is_in_the_kernel(thread: int) -> bool:
    """Whether a thread of this process is in uninterruptible sleep, which no signal ends."""
    with contextlib.suppress(OSError):
        return stat_of(f"self/task/{thread}").state == "D"
    return False


def attempt(
    begun: Answer, before: Session | None, session: Session, apart: Collection[str]
) -> tuple[Answer, list[Reading]]:
    """Get the facts in this process while the GPUs are open for their health: each is initialised once.

    The facts are about all GPUs. If some must not stay open (`apart`), the others are opened again afterwards.
    """
    if before is not None:
        before.close()
    if not apart:
        with contextlib.suppress(OSError):  # the facts contain the reason
            session.open(apart)
    answer = nvml_answer.ask(begun)
    try:
        readings = [] if answer.failures else session.look(apart)
    except OSError as error:
        readings = []
        log.warning("the health of the GPUs cannot be watched yet: %s", error)
    if answer.failures:
        session.close()
    return answer, readings


def paused(file: Path) -> str:
    """Why NVML must not be open now, from the file that process `kubernetes` writes; empty if it may be open."""
    pause = spool.read_or_empty(file, spool_pb2.NvidiaPause)
    if not pause.label or not 0 <= time.monotonic() - pause.monotonic_seconds <= PAUSE_SECONDS:
        return ""
    return PAUSED.format(label=pause.label, value=pause.value)


def device_nodes() -> frozenset[Path]:
    """The existing device nodes of NVML; a process may open only those that existed at its start."""
    dev = Path("/dev")
    return frozenset([*dev.glob("nvidia*"), *dev.glob("dxg")])


def _open_watch() -> DirectoryWatch | None:
    try:
        return DirectoryWatch()
    except OSError as error:
        log.warning("no inotify: %s; requests are looked for each second; raise fs.inotify.max_user_instances", error)
        return None


class AnswerOnce:
    """An answer file in memory, empty until NVML has answered."""

    def __enter__(self) -> Self:
        self._memory = os.memfd_create("nvml answer")
        self.file = Path(f"/proc/self/fd/{self._memory}")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._memory)

    def ask(self, requests: Mapping[str, str]) -> bool:
        """Ask NVML for a scan's request within its patience; False without a request."""
        if "nvml" not in requests:
            return False
        request: Request = json.loads(requests["nvml"])
        begun = Answer().begun(request)
        try:
            process = _start(request, self._memory)
        except OSError as error:
            self._replace(begun.failing(NOT_STARTED.format(error=error)))
            return True
        try:
            code = process.wait(request["patience_seconds"])
        except subprocess.TimeoutExpired:
            _kill(process)
            self._replace(begun.slow())
        else:
            if code:
                how = signal.Signals(-code).name if code < 0 else f"exit status {code}"
                self._replace(begun.crashed(how))
        return True

    def _replace(self, answer: Answer) -> None:
        os.ftruncate(self._memory, 0)
        os.pwrite(self._memory, answer.json(), 0)


def _start(request: Request, output: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-P", "-m", __spec__.name]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=output)
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError), process.stdin as pipe:  # it has crashed already
        pipe.write(json.dumps(request).encode())
    return process


def _kill(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    with contextlib.suppress(subprocess.TimeoutExpired):  # it dies when it wakes; init reaps it
        process.wait(DIE_SECONDS)


def ask_once() -> None:
    """Main function of the process of `AnswerOnce`: request on stdin, answer on stdout."""
    die_with_parent(signal.SIGKILL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    begun = Answer().begun(json.load(sys.stdin))
    os.write(1, nvml_answer.ask(begun).json())


if __name__ == "__main__":
    ask_once()
