"""The first scan, in a separate process: it reads the configuration and scans while the supervisor still imports.

The supervisor gets the configuration over a pipe, takes its locks, and only then lets the first scan write the spool.
A third process reads the configuration, while the scan imports what it needs.
While the supervisor waits for its locks, the first scan rehearses: it scans, writes nothing, and serves the result. An
instance that cannot do its work fails here, before it is ready, while the other instance still serves.
"""

import contextlib
import json
import logging
import os
import signal
import time
from dataclasses import replace
from typing import TYPE_CHECKING, BinaryIO

from devherd import fork, signals
from devherd.config.resolved import ResolvedConfig, as_json, from_json
from devherd.errors import DevherdError
from devherd.proto import spool_pb2
from devherd.supervisor.loader import Load
from devherd.supervisor.sandbox import Access, Sandbox

if TYPE_CHECKING:
    from devherd.supervisor.programs import Programs

log = logging.getLogger(__name__)

NAME, TITLE = "scanner", "first scan"
"""Name in the log, because it does the scanner's work, and its title."""
REHEARSAL = "rehearsal"
"""Name in the log of the process that rehearses serving."""
ADMISSION = "admission"
"""Name in the log of the process that asks whether the front end may serve."""
_GO, _REHEARSE = b"g", b"r"
_REHEARSED = b"."


class FirstScan:
    """The supervisor's side; close it before other children start.

    If the process has died, only `rehearsed` and `exit_code` raise. Methods that wait for the pipe raise SystemExit if
    a signal has requested the end.
    """

    def __init__(self, load: Load, programs: "Programs") -> None:
        """Start the process."""
        answers, answer = os.pipe()
        order, self._orders = os.pipe()

        def scan() -> int:
            os.setpgid(0, 0)  # only the supervisor gets a Ctrl-C in the terminal; this process ends with it
            os.close(answers)
            os.close(self._orders)
            return _scan(load, programs, os.fdopen(answer, "wb"), order)

        self._pid = fork.forked(f"the {TITLE}", scan)
        os.close(answer)
        os.close(order)
        self._answers = os.fdopen(answers, "rb")

    def config(self) -> ResolvedConfig | None:
        """Wait for the configuration; None if it is invalid, which the process has logged."""
        signals.ready([self._answers])
        signals.end_if_asked()
        line = self._answers.readline()
        return from_json(line) if line.endswith(b"\n") else None

    def rehearse(self) -> None:
        """Start the rehearsal, which needs no locks; `rehearsed` waits for its end."""
        with contextlib.suppress(BrokenPipeError):  # it has died: `rehearsed` raises
            os.write(self._orders, _REHEARSE)

    def rehearsed(self, seconds: float) -> bool:
        """Wait at most `seconds` for the end of the rehearsal; returns True if it has ended. Call it until then.

        Raises DevherdError if the rehearsal failed, which is logged.
        """
        is_over = signals.ready([self._answers], seconds)
        signals.end_if_asked()
        if not is_over:
            return False
        if self._answers.read(len(_REHEARSED)) != _REHEARSED:
            raise DevherdError(
                "this instance cannot take over", "its rehearsal failed, as logged above", "the one that runs goes on"
            )
        return True

    def begin(self) -> None:
        """Let it scan and write the spool."""
        try:
            os.write(self._orders, _GO)
        except BrokenPipeError:
            log.error("the first scan ended before it began; the scanner makes another")

    def wait(self, seconds: float) -> None:
        """Wait for its end; a scan that takes longer than `seconds` is killed, and the scanner scans instead."""
        until = time.monotonic() + seconds
        while signals.ready([self._answers], max(0.0, until - time.monotonic())):
            if not self._answers.read1(len(_REHEARSED)):  # end of file, and not the end of a long rehearsal
                os.waitpid(self._pid, 0)
                return
        signals.end_if_asked()
        log.warning("the first scan takes longer than %.0f s; resources come as the scanner finds them", seconds)
        os.kill(self._pid, signal.SIGKILL)  # reaped by the herd: it may be in an uninterruptible sleep

    def exit_code(self) -> int:
        """Wait for its end and return its exit code. Raises DevherdError if it was killed."""
        code = os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])
        if code < 0:
            raise DevherdError("the first scan was killed", f"by {signal.Signals(-code).name}", "start devherd again")
        return code

    def close(self) -> None:
        """Close the pipes. A first scan that was not started ends and writes nothing."""
        self._answers.close()
        os.close(self._orders)


def _scan(load: Load, programs: "Programs", answers: BinaryIO, order: int) -> int:
    """The work of the process; returns its exit code."""
    reader = _Reader(load)
    programs.preload_scan()  # while the supervisor still imports
    code, read = reader.end()
    if code:
        return code
    try:
        with answers:
            _answer(answers, read + b"\n")
            config = from_json(read)
            settings = config.settings()
            fork.introduce(NAME, settings, TITLE)
            work = {_GO: programs.first_scan, _REHEARSE: programs.rehearse}
            while given := os.read(order, 1):
                work[given](config)
                if given == _GO:
                    break
                _answer(answers, _REHEARSED)
    except BrokenPipeError:
        pass  # the supervisor ended during its start: the result is not needed
    return 0


def _answer(answers: BinaryIO, content: bytes) -> None:
    answers.write(content)
    answers.flush()


class _Reader:
    """The process that reads the configuration: importing pydantic and its models is the slowest part of a start."""

    def __init__(self, load: Load) -> None:
        config, give = os.pipe()

        def read() -> int:
            os.close(config)
            with os.fdopen(give, "wb") as giving:
                giving.write(as_json(load(None)))
            return 0

        self._pid = fork.forked("reading the configuration", read)
        os.close(give)
        self._config = os.fdopen(config, "rb")

    def end(self) -> tuple[int, bytes]:
        """Its exit code, not 0 if it has logged errors, and the configuration as JSON. Ends as it was killed."""
        with self._config as given:
            config = given.read()
        code = os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])
        if code < 0:
            os.kill(os.getpid(), -code)
        return code, config


def rehearse_start(config: ResolvedConfig, access: Access) -> None:
    """Scan, and serve the resources in a separate process with `access`. Raises DevherdError if that fails.

    It fails, too, if pods hold devices by the node's other front end. With DRA, only the directory is tried.

    Call it in a process with one thread, because it forks; the scan starts more threads.
    """
    serving = _Serving(config, access)
    try:
        from devherd.offers.device_plugin import resource_of  # noqa: PLC0415 - see the next line
        from devherd.scanner import loop, once  # noqa: F401, PLC0415 - imports in parallel to the other process

        offers = once.scan_once(config).offers
        serving.offer([] if config.is_dra else [resource_of(offer) for offer in offers], [one.name for one in offers])
    finally:
        serving.end()
    serving.refuse_failure()


class _Serving:
    """The process that serves; it ends after the resources that `offer` gives it."""

    def __init__(self, config: ResolvedConfig, access: Access) -> None:
        offered, self._offers = os.pipe()
        self._failures, failure = os.pipe()

        def serve() -> int:
            os.close(self._offers)
            os.close(self._failures)
            return _serve(config, access, os.fdopen(offered, "rb"), os.fdopen(failure, "wb"))

        self._pid = fork.forked(REHEARSAL, serve)
        os.close(offered)
        os.close(failure)
        self._code = 0
        self._failure: DevherdError | None = None

    def offer(self, resources: list[spool_pb2.Resource], names: list[str]) -> None:
        """Send the resources to serve, and the names of all offers; `refuse_failure` raises if the process has died."""
        with contextlib.suppress(BrokenPipeError), os.fdopen(self._offers, "w", closefd=False) as file:
            json.dump({"resources": [each.SerializeToString().hex() for each in resources], "names": names}, file)

    def end(self) -> None:
        """Wait for the end of the process. Without resources it ends at once."""
        os.close(self._offers)
        with os.fdopen(self._failures, "rb") as file:
            failure = file.read()
        self._code = os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])
        if failure:
            self._failure = DevherdError(*json.loads(failure))

    def refuse_failure(self) -> None:
        """Raise DevherdError if the process could not serve."""
        if self._failure is not None:
            raise self._failure
        if self._code:
            raise DevherdError(
                "the rehearsal of serving the kubelet failed", f"exit code {self._code}", "see what is logged above"
            )


def _serve(config: ResolvedConfig, access: Access, offered: BinaryIO, failure: BinaryIO) -> int:
    """The work of the process; returns its exit code."""
    settings = config.settings()
    fork.introduce(REHEARSAL, settings)
    from devherd.device_plugin import rehearsal  # noqa: PLC0415 - the scan has no need of gRPC
    from devherd.kubelet import other_front_end  # noqa: PLC0415 - as above

    known = other_front_end.beside(config.front_end, settings).names  # of the other instance, whose files these are
    Sandbox(access).enter()
    content = offered.read()
    if not content:  # the scan failed
        return 0
    found = json.loads(content)
    resources = [spool_pb2.Resource.FromString(bytes.fromhex(each)) for each in found["resources"]]
    names = known.union(found["names"]) if config.is_dra else known
    try:
        other_front_end.OtherFrontEnd(config.front_end, names).refuse_held(settings)
        rehearsal.rehearse(resources, replace(settings, registration="plugins_registry") if config.is_dra else settings)
    except DevherdError as error:
        failure.write(json.dumps((error.what, error.why, error.cure)).encode())
        failure.flush()
        return fork.CRASHED
    return 0


def admit(config: ResolvedConfig) -> None:
    """After the first scan: raise DevherdError if pods hold devices by the node's other front end.

    The kubelet is asked in another process: gRPC does not survive a fork, and this one forks.
    """
    from devherd.kubelet import other_front_end  # noqa: PLC0415 - imports gRPC, which this process has by now

    settings = config.settings()
    beside = other_front_end.beside(config.front_end, settings)
    if not beside.names:
        return
    failures, failure = os.pipe()

    def ask() -> int:
        os.close(failures)
        fork.introduce(ADMISSION, settings)
        try:
            beside.refuse_held(settings)
        except DevherdError as error:
            os.write(failure, json.dumps((error.what, error.why, error.cure)).encode())
        return 0

    pid = fork.forked(ADMISSION, ask)
    os.close(failure)
    with os.fdopen(failures, "rb") as file:
        refusal = file.read()
    os.waitpid(pid, 0)
    if refusal:
        raise DevherdError(*json.loads(refusal))
