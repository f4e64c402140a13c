"""The scanner process: wakes for device events, polls health, rescans now and then, and writes the spool.

The only process that touches sysfs, procfs and /dev. One thread, one loop; reads that can hang are fenced in Rust.
"""

import contextlib
import logging
import os
import signal
import time
from collections.abc import Iterable
from pathlib import Path

from prometheus_client import Counter, Histogram

from devherd import config as configuration
from devherd import spool
from devherd.child import BEAT_PERIOD_SECONDS, Child, take_reloads
from devherd.config import Config
from devherd.errors import DevherdError
from devherd.health import HEALTHY, UNHEALTHY
from devherd.host_events import HostEvents
from devherd.pipeline import Pipeline, problem_messages, vendor_options
from devherd.proto import spool_pb2
from devherd.publisher import Publisher
from devherd.settings import Settings

log = logging.getLogger(__name__)

SETTLE_SECONDS = 0.02
"""Events come in bursts (a driver that binds makes dozens): a rescan waits this long for more of them."""
EVENT_SCAN_SECONDS = 0.25
"""Between two rescans for events; health is polled at each event all the same."""
MOVE_SECONDS = 0.5
"""Between a device's leaving one resource and its entering another."""

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
RELOADS = Counter("devherd_config_reloads", "Requests to reload the configuration.")
RELOAD_FAILURES = Counter("devherd_config_reload_failures", "Reloads refused because the configuration was bad.")


def first_scan(config: Config) -> None:
    """Scan once and write the spool, so that resource children find their snapshots when they are first started."""
    account = Account(config, config.settings())
    account.scan()
    account.publish()


def main(child: Child) -> int:
    """The child's main function: runs until SIGTERM."""
    loop = Loop(child)
    signal.signal(signal.SIGTERM, lambda *_: loop.end())
    signal.signal(signal.SIGHUP, lambda *_: loop.ask_to_reload())
    take_reloads()
    return loop.run()


class Account:
    """The host as the spool tells it: looks, compares with what stands there, writes what changed, counts."""

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
        self._problems = problem_messages(scan)
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


class Loop:
    """When to look: at events, each `health.poll`, each `scan.period`."""

    def __init__(self, child: Child) -> None:
        self._child = child
        self._ended = False
        self._reload_asked = False
        self._account = Account(_config_at_start(child.settings), child.settings)
        now = time.monotonic()
        self._next_scan = self._next_poll = self._next_publication = self._earliest_event_scan = now

    def end(self) -> None:
        """End with the current round (called by a signal)."""
        self._ended = True

    def ask_to_reload(self) -> None:
        """Reload the configuration in the next round (called by a signal)."""
        self._reload_asked = True

    def run(self) -> int:
        """Rounds of wait, look, publish until the end is asked for."""
        with HostEvents(listen=self._account.pipeline.config.scan.events) as events:
            while not self._ended:
                self._child.beat()
                self._round(events)
        return 0

    def _round(self, events: HostEvents) -> None:
        happened = events.wait(self._rest())
        self._reload_if_asked()
        now = time.monotonic()
        if happened:
            self._account.poll(periodic=False)
            self._next_scan = min(self._next_scan, max(now + SETTLE_SECONDS, self._earliest_event_scan))
        if now >= self._next_scan:
            self._account.scan()
            events.watch(self._account.pipeline.watched_directories())
            self._earliest_event_scan = now + EVENT_SCAN_SECONDS
            self._next_scan = now + self._account.pipeline.config.scan.period
        if now >= self._next_poll:
            self._account.poll(periodic=True)
            self._next_poll = now + self._account.pipeline.config.health.poll
        if now >= self._next_publication and not self._account.publish():
            self._next_publication = now + MOVE_SECONDS

    def _rest(self) -> float:
        """Seconds until something is due, the next beat at the latest."""
        now = time.monotonic()
        due = [self._next_scan, self._next_poll, now + BEAT_PERIOD_SECONDS]
        if self._next_publication > now:
            due.append(self._next_publication)
        return max(0.0, min(due) - now)

    def _reload_if_asked(self) -> None:
        if not self._reload_asked:
            return
        self._reload_asked = False
        RELOADS.inc()
        try:
            self._use(configuration.reload(self._child.settings, os.environ))
        except DevherdError as error:
            RELOAD_FAILURES.inc()
            log.error("configuration not reloaded, the old one stays: %s", error)

    def _use(self, config: Config) -> None:
        for option in configuration.changed_fixed_options(self._child.settings, config):
            log.warning("%s has changed in the configuration: this takes a restart, the rest is in force", option)
        self._account.pipeline.reconfigure(config)
        _remember(config, self._child.settings)
        self._next_scan = time.monotonic()
        log.info("configuration reloaded from %s", config.source or "options and environment")


def _config_at_start(settings: Settings) -> Config:
    """The configuration; the last good one when the file has become bad since."""
    try:
        config = configuration.reload(settings, os.environ)
    except DevherdError as error:
        if not settings.last_good_config_file.exists():
            raise
        log.error("%s; going on with the last good one", error)
        return Config.model_validate_json(settings.last_good_config_file.read_bytes())
    _remember(config, settings)
    return config


def _remember(config: Config, settings: Settings) -> None:
    temporary = settings.last_good_config_file.with_suffix(".new")
    try:
        temporary.write_text(config.model_dump_json(by_alias=True))
        temporary.rename(settings.last_good_config_file)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        log.warning("the configuration in force cannot be kept for a restart with a bad file: %s", error)


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
