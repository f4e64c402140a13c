"""The host as the spool tells it: looks, compares with what stands there, writes what changed, counts."""

import logging
import time
from collections.abc import Iterable
from pathlib import Path

from prometheus_client import Counter, Histogram

from devherd import spool
from devherd.config import Config
from devherd.proto import spool_pb2
from devherd.scanner.pipeline import Pipeline, problem_messages, vendor_options
from devherd.scanner.publisher import Publisher
from devherd.settings import Settings
from devherd.spool import HEALTHY, UNHEALTHY

log = logging.getLogger(__name__)

SCANS = Counter("devherd_scans", "Scans of the host.", ["vendor"])
SCAN_FAILURES = Counter(
    "devherd_scan_failures", "Scans in which a vendor's devices could not be looked at.", ["vendor"]
)
SCAN_DURATION = Histogram(
    "devherd_scan_duration_seconds", "Time of a scan.", buckets=(0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10)
)
POLL_DURATION = Histogram(
    "devherd_health_poll_duration_seconds",
    "Time of a health poll.",
    buckets=(0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3),
)
HEALTH_CHANGES = Counter(
    "devherd_device_health_changes", "Changes of a device's health.", ["resource_name", "device_id"]
)


class Account:
    """One looker and writer; `Loop` says when."""

    def __init__(self, config: Config, settings: Settings) -> None:
        self._scan_file = settings.scan_file
        self._publisher = Publisher(settings.resources_directory)
        self._health = _health_of(self._publisher.published)
        self._published: object = None
        self._unwritable: str | None = None
        self._problems: list[spool_pb2.Problem] = []
        self._advertising_problems: list[spool_pb2.Problem] = []
        self._summary = _read_summary(settings.scan_file)
        self.pipeline = Pipeline(config, self._publisher.published, self._summary.vendor_options)

    def scan(self) -> None:
        """Look at the whole host."""
        scan = self.pipeline.scan(time.monotonic())
        SCAN_DURATION.observe(scan.duration_seconds)
        failed = {part.vendor for part in scan.unseen if part.card is None}
        for vendor in scan.vendors:
            SCANS.labels(vendor).inc()
            SCAN_FAILURES.labels(vendor).inc(vendor in failed)
        self._problems = problem_messages(scan, self.pipeline.config)
        self._summary.timestamp_seconds = time.time()
        self._summary.duration_seconds = scan.duration_seconds

    def poll(self, *, periodic: bool) -> None:
        """Look at what can be looked at cheaply."""
        with POLL_DURATION.time():
            self.pipeline.poll(periodic=periodic)

    def publish(self) -> bool:
        """Bring the spool up to date; False when it must be called again after MOVE_SECONDS.

        A spool that cannot be written (disk full) is logged and tried again with the next publication.
        """
        fingerprint = self.pipeline.fingerprint()
        try:
            if fingerprint != self._published or not self._publisher.stands():
                made = self.pipeline.resources()
                complete = self._publisher.publish(made.resources)
                self._note_health_changes(made.resources)
                self._published = fingerprint if complete else None
                self._advertising_problems = made.problems
                self._note_vendor_options()
            self._write_summary()
        except OSError as error:
            self._say_unwritable(error)
            return False
        self._unwritable = None
        return self._published is not None

    def _say_unwritable(self, error: OSError) -> None:
        self._published = None
        if str(error) != self._unwritable:
            log.error("cannot write the spool: %s; the kubelet keeps what it was last told; trying again", error)
        self._unwritable = str(error)

    def _write_summary(self) -> None:
        problems = self._problems + self.pipeline.problems + self._advertising_problems
        if problems != list(self._summary.problems):
            _log_new(problems, list(self._summary.problems))
            del self._summary.problems[:]
            self._summary.problems.extend(problems)
        spool.write(self._scan_file, self._summary)

    def _note_vendor_options(self) -> None:
        self._summary.vendor_options.clear()
        self._summary.vendor_options.update(vendor_options(self.pipeline.config))

    def _note_health_changes(self, resources: list[spool_pb2.Resource]) -> None:
        health = _health_of(resources)
        for device, reasons in health.items():
            before = self._health.get(device, ())
            if reasons != before:
                said = f"{UNHEALTHY}: {', '.join(reasons)}" if reasons else HEALTHY
                log.log(logging.WARNING if reasons else logging.INFO, "%s %s is %s", *device, said)
            if bool(reasons) != bool(before):
                HEALTH_CHANGES.labels(*device).inc()
        self._health = health


def _read_summary(path: Path) -> spool_pb2.ScanSummary:
    try:
        return spool.read(path, spool_pb2.ScanSummary)
    except (FileNotFoundError, spool.SpoolError):
        return spool_pb2.ScanSummary()


def _health_of(resources: Iterable[spool_pb2.Resource]) -> dict[tuple[str, str], tuple[str, ...]]:
    """Why each device is Unhealthy, by resource name and device id; an empty set when it is Healthy."""
    return {(resource.name, device.id): tuple(device.reasons) for resource in resources for device in resource.devices}


def _log_new(problems: list[spool_pb2.Problem], known: list[spool_pb2.Problem]) -> None:
    for problem in problems:
        if problem not in known:
            log.warning("%s: %s: %s", problem.vendor, problem.path, problem.error)
