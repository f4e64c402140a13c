"""One round of the scanner: scans or polls, compares with the spool, writes what changed, counts."""

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from devherd import counted, spool
from devherd.amounts import amount
from devherd.config.resolved import Config
from devherd.counters import Counters
from devherd.health.remembered import NOTHING, Remembered
from devherd.health.sources.kernel_log import KernelLogSource
from devherd.health.verdicts_file import VerdictsFile
from devherd.history.record import SCANNER_FILE_BYTES, History
from devherd.inventory import DeviceKey, key_of
from devherd.kubernetes.complaints import complaints_in
from devherd.kubernetes.request import SUFFIX, requests_for
from devherd.proto import health_pb2, spool_pb2
from devherd.scanner.acknowledgements import Acknowledgements
from devherd.scanner.announcer import Announcer
from devherd.scanner.device_info import DeviceInfo
from devherd.scanner.devices_file import DevicesFile
from devherd.scanner.doubts import Doubts
from devherd.scanner.host_events import ANYTHING, Happened
from devherd.scanner.kernel_log import KernelLogReader
from devherd.scanner.left_out import left_out
from devherd.scanner.moment import now
from devherd.scanner.pipeline import Pipeline
from devherd.scanner.publisher import Publisher
from devherd.scanner.requests import Requests
from devherd.scanner.scan_core import problem_messages
from devherd.settings import Settings
from devherd.spool.listing import listed

if TYPE_CHECKING:
    from devherd._native import Scan

log = logging.getLogger(__name__)

LONG_SCAN_SECONDS = 1.0
"""One that takes longer is logged at debug also where nothing has changed."""

KEEP_COUNTERS_SECONDS = 1.0
"""Between two times that what was counted is written."""


class Round:
    """What is done in a round of the scanner; `Loop` says when."""

    def __init__(self, config: Config, settings: Settings, beat: Callable[[], object] | None = None) -> None:
        """`beat` is called now and then while cards that hang are waited for, and between steps that may take long."""
        self._beat = beat or (lambda: None)
        self._settings = settings
        self._scan_file = settings.scan_file
        self._state_file = settings.scanner_state_file
        acknowledgements = Acknowledgements(settings.state_directory, settings.children_file)
        self._counts_file = settings.counts_file
        self._counts: list[health_pb2.Count] | None = None
        """Not written yet."""
        self._publisher = Publisher(settings.resources_directory, acknowledgements)
        self._device_info = DeviceInfo()
        self._devices_file = DevicesFile(settings.devices_file)
        self._verdicts_file = VerdictsFile(settings.verdicts_file)
        self._doubts = Doubts(settings.doubts_file)
        self._health = _health_of(self._publisher.published)
        history = History(settings.history_directory, "scanner", SCANNER_FILE_BYTES)
        self._published: object = None
        self._unwritable: str | None = None
        self._problems: list[spool_pb2.Problem] = []
        self._problems_for: object = None
        self._advertising_problems: list[spool_pb2.Problem] = []
        self._summary = spool.read_or_empty(settings.scan_file, spool_pb2.ScanSummary)
        self._announcer = Announcer(history, self._publisher.published, self._summary.problems)
        kept = spool.read_or_empty(settings.scanner_state_file, spool_pb2.ScannerState)
        self.counters = Counters(counted.BY_THE_SCANNER, kept.counters)
        self._keep_counters_at = 0.0
        self._raised: dict[tuple[str, str], int] = {}
        self._requests = Requests(settings)
        self._asked: dict[str, str] = {}
        """What processes that talk to the API server are asked to do."""
        earlier = self._verdicts_file.read()
        self.pipeline = Pipeline(
            config,
            inventory=self._devices_file.read(),
            earlier=earlier,
            nvml_answer=settings.nvml_answer_file,
            findings=settings.findings_directory,
            beat=beat,
        )
        known = earlier.remembered if earlier.boot_id == now(config).boot_id else NOTHING
        self.kernel_log = KernelLogReader(
            config, simulated=self.pipeline.simulated_node is not None, position=known.kernel_log
        )
        self._kernel_log_source = KernelLogSource(known)
        self._heard_for = -1  # no version of the inventory
        self._has_heard = False
        """Whether the kernel log said something since the verdicts were written."""
        self._kernel_log_problems: list[spool_pb2.Problem] = []
        self._notices: list[spool_pb2.Problem] = []
        self.counters.add(counted.KERNEL_LOG_LOST, amount=0)
        self._xids: list[tuple[DeviceKey, str, int]] = []
        """Not counted yet: by which names their devices are offered is known when the spool is written."""

    def reconfigure(self, config: Config) -> None:
        """Use another configuration from the next scan on."""
        self.pipeline.reconfigure(config)
        self._announcer.reloaded(str(config.source or "options and environment"))
        self.kernel_log.reconfigure(config)

    def scan(self) -> bool:
        """Look at the whole host; True when something was changing, so that another look soon tells more."""
        self._doubts.note_scan()
        scan = self.pipeline.scan(time.monotonic())
        self.counters.observe(counted.SCAN_DURATION, scan.duration_seconds)
        self._asked = requests_for(self.pipeline.config, self._settings)
        self._requests.publish(self.pipeline.requests, self._asked)
        failed = {part.vendor for part in scan.unseen if part.card is None}
        for vendor in scan.vendors:
            self.counters.add(counted.SCANS, vendor)
            self.counters.add(counted.SCAN_FAILURES, vendor, amount=vendor in failed)
        if scan.changed or self._problems_for != self.pipeline.known:
            self._problems = problem_messages(scan, self.pipeline.config, self.pipeline.inventory.entries.values())
            self._problems_for = self.pipeline.known
        if scan.changed or scan.duration_seconds > LONG_SCAN_SECONDS:
            log.debug("%s", _told(scan))
        self._summary.timestamp_seconds = time.time()
        self._summary.duration_seconds = scan.duration_seconds
        self.kernel_log.open()
        self._kernel_log_problems = self._why_less_is_heard(self.kernel_log.problems())
        self._notices = [
            *self._why_less_is_heard(self.kernel_log.notices()),
            *left_out(self.pipeline.config, self.pipeline.inventory.entries.values()),
        ]
        return scan.look_again

    def poll(self, *, periodic: bool, happened: Happened = ANYTHING) -> None:
        """Look at what can be looked at cheaply."""
        began = time.perf_counter()
        self.pipeline.poll(periodic=periodic, happened=happened)
        self.counters.observe(counted.POLL_DURATION, time.perf_counter() - began)
        self._count_findings()

    def _count_findings(self) -> None:
        for word, total in self.pipeline.policy.raised.items():
            news = total - self._raised.get(word, 0)
            if news:
                self.counters.add(counted.FINDINGS, *word, amount=news)
        self._raised = dict(self.pipeline.policy.raised)

    def hear_devlink(self) -> None:
        """Take in what drivers say of their cards' firmware."""
        self.pipeline.hear_devlink()
        self._count_findings()

    def hear(self) -> bool:
        """Take in what the kernel log says, a part at a time; True when there is more. A scan comes before."""
        heard = self.kernel_log.read()
        if heard.lost:
            self.counters.add(counted.KERNEL_LOG_LOST, amount=heard.lost)
        self._has_heard |= bool(heard.events)
        inventory = self.pipeline.inventory
        if heard.events or (self._kernel_log_source.waiting and self._heard_for != inventory.version):
            told = self._kernel_log_source.tell(
                heard.events, self.kernel_log.rules, inventory.entries.values(), inventory.version
            )
            self.pipeline.hear(told.seen)
            self._xids += told.xids
        self._heard_for = inventory.version
        return heard.more

    def publish(self) -> bool:
        """Bring the spool up to date; False when it must be called again: a device waits for its move.

        A spool that cannot be written (disk full) is logged and tried again with the next publication.
        """
        try:
            return self._publish()
        finally:
            self._announcer.keep()

    def _publish(self) -> bool:
        fingerprint = self.pipeline.fingerprint()
        try:
            # First: a scanner that is killed between the two must not forget a device that is offered.
            self._devices_file.write(self.pipeline.inventory)
            self._beat()
            self._verdicts_file.write(
                self.pipeline.policy, now(self.pipeline.config), self._remembered(), at_once=self._has_heard
            )
            self._has_heard = False
            self._beat()
            if fingerprint != self._published or not (self._publisher.stands() and self._device_info.stands()):
                made = self.pipeline.resources()
                self._beat()
                unwritten = self._device_info.publish(self.pipeline.config.device_info_directory, made.resources)
                complete = self._publisher.publish(made.resources)
                self._beat()
                self._count_health_changes(made.resources)
                self._published = fingerprint if complete else None
                self._announcer.published(made.resources, self.pipeline.policy.held_against, is_complete=complete)
                self._advertising_problems = made.problems + unwritten
            self._count_xids()
            self._write_counts()
            self._write_summary()
            self._doubts.publish(self.pipeline.doubts())
            if time.monotonic() >= self._keep_counters_at:
                self.keep_counters()
        except OSError as error:
            self._say_unwritable(error)
            return False
        self._unwritable = None
        return self._published is not None

    def _remembered(self) -> Remembered:
        source = self._kernel_log_source
        return Remembered(self.kernel_log.position, source.waiting, source.uuids, self.pipeline.memories())

    def keep_counters(self) -> None:
        """Write what was counted, if that is something new. Raises OSError when it cannot be written."""
        if self.counters.changed:
            spool.write(self._state_file, spool_pb2.ScannerState(counters=self.counters))
            self.counters.changed = False
            self._keep_counters_at = time.monotonic() + KEEP_COUNTERS_SECONDS

    def _say_unwritable(self, error: OSError) -> None:
        self._published = None
        if str(error) != self._unwritable:
            log.error("cannot write the spool: %s; the kubelet keeps the last lists; trying again", error)
        self._unwritable = str(error)

    def _write_summary(self) -> None:
        problems = [
            *self._problems,
            *self.pipeline.problems,
            *self._advertising_problems,
            *self._kernel_log_problems,
            *complaints_in(self._settings.told_directory, [name.removesuffix(SUFFIX) for name in self._asked]),
        ]
        if problems != list(self._summary.problems):
            self._announcer.found_problems(problems)
            del self._summary.problems[:]
            self._summary.problems.extend(problems)
        if self._notices != list(self._summary.notices):
            self._announcer.found_notices(self._notices)
            del self._summary.notices[:]
            self._summary.notices.extend(self._notices)
        spool.write(self._scan_file, self._summary)

    def _write_counts(self) -> None:
        counts = self.pipeline.new_counts() if self._counts is None else self._counts
        if counts is not None:
            self._counts = counts  # until they are written
            boot_id = now(self.pipeline.config).boot_id
            spool.write(self._counts_file, health_pb2.Counts(boot_id=boot_id, counts=counts))
            self._counts = None

    def _why_less_is_heard(self, problems: list[spool_pb2.Problem]) -> list[spool_pb2.Problem]:
        """Than there might be, where there is a device of which the log could speak."""
        entries = self.pipeline.inventory.entries.values() if problems else ()
        return problems if any(self.kernel_log.speaks_of(entry.device) for entry in entries) else []

    def _count_xids(self) -> None:
        """By each name under which a device is offered."""
        if not self._xids:
            return
        names: dict[DeviceKey, list[tuple[str, str]]] = {}
        for name, (_, key) in self._health.items():
            names.setdefault(key, []).append(name)
        for key, xid, times in self._xids:
            for resource_name, device_id in names.get(key, ()):
                self.counters.add(counted.XIDS, resource_name, device_id, xid, amount=times)
        self._xids = []
        self._keep_counters_at = 0.0  # with the verdicts: a next scanner does not read these records again

    def _count_health_changes(self, resources: list[spool_pb2.Resource]) -> None:
        health = _health_of(resources)
        for (resource_name, device_id), (is_healthy, _) in health.items():
            was_healthy = self._health.get((resource_name, device_id), (True,))[0]
            if is_healthy != was_healthy:
                self.counters.add(counted.HEALTH_CHANGES, resource_name, device_id)
        self.counters.forget_others(counted.HEALTH_CHANGES, health)
        self.counters.forget_others(counted.XIDS, health)
        self._health = health


def _health_of(resources: Iterable[spool_pb2.Resource]) -> dict[tuple[str, str], tuple[bool, DeviceKey]]:
    """Whether each device is healthy and under which key it is known, by resource name and device id."""
    return {
        (resource.name, device_id): (not device.reasons, key_of(device))
        for resource in resources
        for device_id, device in listed(resource)
    }


def _told(scan: "Scan") -> str:
    """For the log: how long, what was found, what was not."""
    of_vendors = Counter(device.vendor for device in scan.devices)
    found = ", ".join(f"{count} {vendor}" for vendor, count in sorted(of_vendors.items())) or "no devices"
    parts = [amount(len(scan.problems), "problem"), *([f"{len(scan.unseen)} not examined"] if scan.unseen else [])]
    change = "something changed" if scan.changed else "nothing changed"
    return f"scanned in {scan.duration_seconds * 1000:.1f} ms: {found}; {', '.join(parts)}; {change}"
