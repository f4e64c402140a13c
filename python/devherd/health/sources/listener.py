"""Processes of sources that listen: to a program or file of the operator's, or to a vendor's monitor.

What is slow, hangs, floods or ends is the other's trouble and never a device's.
"""

import contextlib
import logging
import os
import shutil
import signal
import sys
import time
from pathlib import Path

from devherd import spool
from devherd.child import BEAT_PERIOD_SECONDS, RENEW, Child
from devherd.health.sources import AMD_KFD, XPUMD, temporary_directory
from devherd.health.sources.external.file import ReadFile
from devherd.health.sources.external.intervals import RunAtIntervals
from devherd.health.sources.external.running import LeftRunning
from devherd.health.sources.order import Order, order_in
from devherd.health.sources.way import Way
from devherd.proto import health_pb2
from devherd.spool.identity import Identity, identity_of

log = logging.getLogger(__name__)

_WRITE_AGAIN_SECONDS = 30.0
"""After which the file tells anew when the source last looked."""


def main(child: Child) -> int:
    """The child's main function: runs until SIGTERM, or until its request changes."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    source = Source(child)
    temporary = temporary_directory(source.directory)
    os.environ["TMPDIR"] = str(temporary)  # of the programs: they may write nowhere else
    _empty(temporary)
    return source.run()


def _empty(directory: Path) -> None:
    """What programs that were killed have left in a directory in memory."""
    with contextlib.suppress(OSError):
        for left in directory.iterdir():
            if left.is_dir() and not left.is_symlink():
                shutil.rmtree(left, ignore_errors=True)
            else:
                left.unlink(missing_ok=True)


class Source:
    """Beats, listens, writes."""

    def __init__(self, child: Child) -> None:
        self._child = child
        self._name = child.name.partition(":")[2]
        self._request_file = child.settings.requests_directory / f"{self._name}.json"
        self._findings_file = spool.path_of(child.settings.findings_directory, self._name)
        self.directory = self._findings_file.parent
        self._written: health_pb2.Findings | None = None
        self._written_at = 0.0
        self._left: Identity | None = None
        self._is_unwritable = False

    def run(self) -> int:
        """Listen until the request, or what this process may touch, has changed; the exit code for another process."""
        request = _content(self._request_file)
        while request is None:
            self._child.beat()
            time.sleep(BEAT_PERIOD_SECONDS)
            request = _content(self._request_file)
        order = order_in(request)
        way = way_of(self._name, order)
        self._resume(way, order)
        began = way.spoke_at
        try:
            while _content(self._request_file) in {request, None} and not self._child.has_outgrown_its_sandbox():
                self._child.beat()
                way.listen(BEAT_PERIOD_SECONDS)
                message = message_of(self._name, way, order, time.monotonic())
                if way.spoke_at != began or way.report.failed:
                    self._write(message)
        finally:
            way.close()
        return RENEW

    def _resume(self, way: Way, order: Order) -> None:
        """Go on with what stood: a program may take back what it said to the process before this one."""
        before = spool.read_or_empty(self._findings_file, health_pb2.Findings)
        if before.boot_id == order.boot_id:
            way.report.resume(before.findings)
            way.report.evidence = {one.at.SerializeToString(): one for one in before.evidence}

    def _write(self, message: health_pb2.Findings) -> None:
        now = time.monotonic()
        is_intact = identity_of(self._findings_file) == self._left
        if message == self._written and is_intact and now < self._written_at + _WRITE_AGAIN_SECONDS:
            return
        dated = health_pb2.Findings()
        dated.CopyFrom(message)
        dated.timestamp_seconds = time.time()
        try:
            spool.write(self._findings_file, dated)
        except OSError as error:
            if not self._is_unwritable:
                log.error("cannot write %s: %s; trying again", self._findings_file, error)
            self._is_unwritable = True
        else:
            self._written, self._written_at, self._left = message, now, identity_of(self._findings_file)
            self._is_unwritable = False


def way_of(source: str, order: Order) -> Way:
    """How to listen."""
    if source == AMD_KFD:
        from devherd.health.sources.amd_kfd.way import AmdKfd  # noqa: PLC0415 - likewise

        return AmdKfd(order)
    if order.socket:
        from devherd.health.sources.amd_exporter import AmdExporter  # noqa: PLC0415 - the others need no gRPC
        from devherd.health.sources.xpumd import Xpumd  # noqa: PLC0415 - likewise

        return Xpumd(order) if source == XPUMD else AmdExporter(order, source)
    if order.file:
        return ReadFile(order)
    return LeftRunning(order) if order.interval is None else RunAtIntervals(order)


def message_of(source: str, way: Way, order: Order, now: float) -> health_pb2.Findings:
    """The findings file at monotonic second `now`, without its date."""
    silence, max_age = now - way.spoke_at, way.report.max_age or order.max_age
    is_silent = silence > max_age
    failed = way.report.failed or (f"it said nothing for {max_age:g} s" if is_silent else "")
    lets_go = is_silent and order.on_silence == "drop"
    findings = [] if lets_go else [way.report.findings[key] for key in sorted(way.report.findings)]
    return health_pb2.Findings(
        source=source,
        boot_id=order.boot_id,
        failed=failed,
        lets_go=lets_go,
        findings=findings,
        evidence=[way.report.evidence[whom] for whom in sorted(way.report.evidence)],
    )


def _content(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None
