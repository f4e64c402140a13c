"""What an instance does before another one ends for it: a scan that is written nowhere, and what it found served.

A version that could not do its work must find out while the other one still does it: it is never ready then, and the
roll-out goes no further.
"""

import contextlib
import logging
import os
import pickle
from typing import BinaryIO, NoReturn

from devherd import log as logs
from devherd.config.resolved import Config
from devherd.errors import DevherdError
from devherd.proto import spool_pb2
from devherd.settings import Settings
from devherd.supervisor import fork
from devherd.supervisor.access import Access
from devherd.supervisor.sandbox import Sandbox
from devherd.supervisor.title import entitle

NAME = "rehearsal"

log = logging.getLogger(__name__)


def rehearse(config: Config, access: Access) -> None:
    """Scan, and serve the resources in a process of its own with this access. Raises DevherdError when that fails.

    To be called in a process with one thread: the scan makes others.
    """
    serving = _Serving(config.settings(), access)
    try:
        from devherd.scanner import main, scan_once  # noqa: F401, PLC0415 - while the other process imports as well

        serving.offer(scan_once.scan_once(config).resources)
    finally:
        serving.end()
    serving.refuse_failure()


class _Serving:
    """The process that serves; it ends with what it is offered."""

    def __init__(self, settings: Settings, access: Access) -> None:
        offered, self._offers = os.pipe()
        self._failures, failure = os.pipe()
        parent = os.getpid()
        with fork.signals_held():
            self._pid = os.fork()
            if self._pid == 0:
                os.close(self._offers)
                os.close(self._failures)
                _run(settings, access, os.fdopen(offered, "rb"), os.fdopen(failure, "wb"), parent)
        os.close(offered)
        os.close(failure)
        self._code = 0
        self._failure: DevherdError | None = None

    def offer(self, resources: list[spool_pb2.Resource]) -> None:
        """What is to be served. One that has died says why by its exit code."""
        with contextlib.suppress(BrokenPipeError), os.fdopen(self._offers, "wb", closefd=False) as file:
            pickle.dump(
                [resource.SerializeToString() for resource in resources], file
            )  # otherwise its exit code says why

    def end(self) -> None:
        """Wait for its end. One that was offered nothing ends at once."""
        os.close(self._offers)
        with os.fdopen(self._failures, "rb") as file:
            said = file.read()
        self._code = os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])
        if said:
            what, why, cure = pickle.loads(said)  # noqa: S301 - from our own fork
            self._failure = DevherdError(what, why, cure)

    def refuse_failure(self) -> None:
        """Raises DevherdError when it could not serve."""
        if self._failure is not None:
            raise self._failure
        if self._code:
            raise DevherdError(
                "the rehearsal of serving the kubelet failed", f"exit code {self._code}", "see what is logged above"
            )


def _run(settings: Settings, access: Access, offered: BinaryIO, failure: BinaryIO, parent: int) -> NoReturn:
    code = fork.CRASHED
    try:
        fork.die_with(parent)
        entitle(NAME, settings)
        logs.configure(NAME, settings.log_level, settings.log_format)
        from devherd.device_plugin import rehearsal  # noqa: PLC0415 - the scan has no need of gRPC

        Sandbox(access).enter()
        resources = _resources(offered)
        if resources is not None:
            rehearsal.rehearse(resources, settings)
        code = 0
    except DevherdError as error:
        pickle.dump((error.what, error.why, error.cure), failure)
        failure.flush()
    except BaseException:  # whatever it is, it must not get into the frames of the process it was forked from
        log.exception("%s crashed", NAME)
    finally:
        fork.end(code)


def _resources(offered: BinaryIO) -> list[spool_pb2.Resource] | None:
    """What the scan has found; None where it went wrong."""
    try:
        found = pickle.load(offered)  # noqa: S301 - from our own parent
    except EOFError:
        return None
    return [*map(spool_pb2.Resource.FromString, found)]
