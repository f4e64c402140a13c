"""Process of a source that listens: to an operator's program or file, or to a vendor's monitor."""

import contextlib
import logging
import os
import shutil
import time
from pathlib import Path
from typing import Protocol

from devherd import signals, spool
from devherd.log import Once
from devherd.process import RENEW, Child
from devherd.proto import health_pb2
from devherd.reasons.registry import AMD_KFD, MONITORS, temporary_directory
from devherd.sources.external import LeftRunning, ReadFile, RunAtIntervals
from devherd.sources.report import Report
from devherd.sources.request import Order, order_in
from devherd.spool import Identity, identity_of
from devherd.waits import Waits


class Way(Protocol):
    """The connection to a program, file or monitor."""

    report: Report
    spoke_at: float
    """CLOCK_MONOTONIC second of its last report, or of its start."""

    def listen(self, timeout: float) -> None:
        """Update `report`, after waiting at most `timeout` seconds for input."""

    def close(self) -> None:
        """End the connection, or the program."""


log = logging.getLogger(__name__)

_WRITE_AGAIN_SECONDS = 30.0
"""Limit on the age of the time of the last look in the file; then the file is written again."""


def main(child: Child) -> int:
    """The child's main function: runs until SIGTERM, or until its request changes."""
    signals.remember()
    source = ReportListener(child)
    temporary = temporary_directory(source.directory)
    os.environ["TMPDIR"] = str(temporary)  # for the programs: they may write nowhere else
    _empty(temporary)
    return source.run()


def _empty(directory: Path) -> None:
    """Remove the files that killed programs have left: the directory is in memory."""
    with contextlib.suppress(OSError):
        for left in directory.iterdir():
            if left.is_dir() and not left.is_symlink():
                shutil.rmtree(left, ignore_errors=True)
            else:
                left.unlink(missing_ok=True)


class ReportListener:
    """Reads reports, writes the findings file, sends heartbeats."""

    def __init__(self, child: Child) -> None:
        self._child = child
        self._name = child.name.partition(":")[2]
        self._request_file = child.settings.requests_directory / f"{self._name}.json"
        self._findings_file = spool.path_of(child.settings.findings_directory, self._name)
        self.directory = self._findings_file.parent
        self._written: health_pb2.Findings | None = None
        self._written_at = 0.0
        self._left: Identity | None = None
        self._unwritable = Once(log.error)

    def run(self) -> int:
        """Run until asked to end, or until the request or the permitted paths change; returns the exit code."""
        waits = self._child.settings.waits
        while (request := _content(self._request_file)) is None:
            if signals.is_to_end():
                return 0
            self._child.beat()
            signals.rest(waits.round)
        order = order_in(request)
        way = way_of(self._name, order, waits)
        self._resume(way, order)
        began = way.spoke_at
        try:
            while _content(self._request_file) in {request, None} and not (
                signals.is_to_end() or self._child.has_outgrown_its_sandbox()
            ):
                self._child.beat()
                way.listen(waits.round)
                message = message_of(self._name, way, order, time.monotonic())
                if way.spoke_at != began or way.report.failed:
                    self._write(message)
        finally:
            way.close()
        return 0 if signals.is_to_end() else RENEW

    def _resume(self, way: Way, order: Order) -> None:
        """Continue with the findings of the previous process: the program may clear them."""
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
            self._unwritable.complain("cannot write %s: %s; trying again", self._findings_file, error)
        else:
            self._written, self._written_at, self._left = message, now, identity_of(self._findings_file)
            self._unwritable.over()


def way_of(source: str, order: Order, waits: Waits) -> Way:
    """The connection that an order asks for."""
    if source == AMD_KFD:
        from devherd.sources.amd_kfd import AmdKfd  # noqa: PLC0415 - only where it is used

        return AmdKfd(order)
    if order.socket:
        from devherd.sources.monitors import WAYS  # noqa: PLC0415 - gRPC costs memory

        return WAYS[source](order)
    if order.file:
        return ReadFile(order)
    return LeftRunning(order, waits) if order.interval is None else RunAtIntervals(order)


def message_of(source: str, way: Way, order: Order, now: float) -> health_pb2.Findings:
    """The findings file at monotonic second `now`, without its date."""
    silence, max_age = now - way.spoke_at, way.report.max_age or order.max_age
    is_silent = silence > max_age
    failed = way.report.failed or (f"no report for {max_age:g} s" if is_silent else "")
    drops = order.on_silence == "drop"
    lets_go = is_silent and drops
    findings = [] if lets_go else [way.report.findings[key] for key in sorted(way.report.findings)]
    return health_pb2.Findings(
        source=source,
        boot_id=order.boot_id,
        failed=failed,
        lets_go=lets_go,
        lets_go_after_seconds=max_age if drops and failed and not lets_go else 0.0,
        look_monotonic_seconds=way.spoke_at if source in MONITORS else 0.0,
        report_errors=way.report.errors,
        findings=findings,
        evidence=[way.report.evidence[target] for target in sorted(way.report.evidence)],
    )


def _content(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None
