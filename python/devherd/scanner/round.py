"""One round of the scanner: scan or poll, compare with the spool, write what changed, count."""

import errno
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from devherd import counters, spool
from devherd.config.resolved import Config
from devherd.counters import Counters
from devherd.health.held import NOTHING, Remembered
from devherd.health.kernel_log import KernelLogSource, PrintedXid
from devherd.health.lost import LostDevices, LostFile, PresentFile
from devherd.health.verdicts import VerdictsFile, source_states
from devherd.history import SCANNER_FILE_BYTES, History
from devherd.inventory import DeviceKey, DevicesFile, key_of
from devherd.offers.config_warnings import left_out
from devherd.offers.device_plugin import Made
from devherd.proto import health_pb2, spool_pb2
from devherd.reasons.registry import OF_OPERATORS
from devherd.scanner.change_log import ChangeLog
from devherd.scanner.core import machine, notice_messages, now, problem_messages
from devherd.scanner.host_events import ANYTHING, HostChanges, KernelLogReader
from devherd.scanner.pipeline import Pipeline
from devherd.scanner.publisher import Acknowledgements, Publisher, Reserve
from devherd.scanner.side_files import DeviceInfo
from devherd.settings import Settings
from devherd.text import amount

if TYPE_CHECKING:
    from devherd._native import Scan

log = logging.getLogger(__name__)

LONG_SCAN_SECONDS = 1.0
"""A scan that takes longer is logged at debug even if nothing has changed."""

KEEP_COUNTERS_SECONDS = 1.0
"""Least time between two writes of the counters."""
KEEP_DURATIONS_SECONDS = 10.0
"""The same while nothing but durations has been observed."""

MANY_DEVICES = 1000
"""So many take ten times as long to look at as to publish one of them."""

ROUND_SECONDS = 1.0
"""Least time between two regular polls after which some may be left out: rounds of sources are a second at least."""
SCAN_SECONDS = 5.0
"""Time between two scans if `scan.period` is not set."""
REPORTED_SCAN_SECONDS = 30.0
"""The same where the kernel reports what happens to devices, while all is well."""

_REQUEST_SUFFIX = ".json"
"""Suffix of the request files."""


class Round:
    """The work of a round; `Loop` decides when it is done."""

    def __init__(self, config: Config, settings: Settings, beat: Callable[[], object] | None = None) -> None:
        """`beat` is called while a card hangs and between steps that may take long."""
        self._beat = beat or (lambda: None)
        self._settings = settings
        acknowledgements = Acknowledgements(settings.state_directory, settings.children_file)
        self._counts_file = settings.counts_file
        self._counts: list[health_pb2.Count] | None = None
        """Counts that are not written yet; None if there are none."""
        self._publisher = Publisher(settings.offers_file, settings.resources_directory, acknowledgements)
        self._device_info = DeviceInfo()
        self._devices_file = DevicesFile(settings.devices_file)
        self._verdicts_file = VerdictsFile(settings.verdicts_file)
        self._config_warnings = ConfigWarnings(settings.config_warnings_file)
        published = self._publisher.published
        self._offered = OfferedIds(published)
        history = History(settings.history_directory, "scanner", SCANNER_FILE_BYTES)
        self._reserve = Reserve(settings.reserve_file)
        self._published: object = None
        self._unwritable: str | None = None
        self._problems: list[spool_pb2.Problem] = []
        self._problems_for: object = None
        self._advertising_problems: list[spool_pb2.Problem] = []
        self._summary = spool.read_or_empty(settings.scan_file, spool_pb2.ScanSummary)
        self._is_summary_new = True
        """Whether it may differ from its file."""
        kept = spool.read_or_empty(settings.scanner_state_file, spool_pb2.ScannerState)
        self.counters = Counters(counters.BY_THE_SCANNER, kept.counters)
        self._counters_kept_at = 0.0
        self._raised: dict[tuple[str, str], int] = {}
        self._requests = SourceRequests(settings)
        earlier = self._verdicts_file.read()
        self._change_log = ChangeLog(history, published, self._summary.problems, earlier.sources)
        self._lost_file = LostFile(settings.lost_file, settings.kept_lost_file, machine(settings.host_root))
        self._present_file = PresentFile(settings.present_file, now(config).boot_id, machine(settings.host_root))
        self._present_for: object = None
        """See `Pipeline.present_for`, at the time of the last write."""
        lost = LostDevices(self._lost_file.read())
        lost.await_all(self._present_file.of_another_boot())
        self.pipeline = Pipeline(
            config,
            inventory=self._devices_file.read(),
            earlier=earlier,
            nvml_answer=settings.nvml_answer_file,
            findings=settings.findings_directory,
            holders=settings.holders_file,
            lost=lost,
            beat=beat,
        )
        self._open_kernel_log(earlier.remembered if earlier.boot_id == now(config).boot_id else NOTHING)
        self._not_offered: list[spool_pb2.Problem] = []
        self._notices: list[spool_pb2.Problem] = []
        self.counters.add(counters.KERNEL_LOG_LOST, amount=0)
        self._xids: list[PrintedXid] = []
        """Xids that are not counted yet: the resource names of their devices are known when the spool is written."""

    def _open_kernel_log(self, known: Remembered) -> None:
        is_simulated = self.pipeline.simulated_node is not None
        self.kernel_log = KernelLogReader(self.pipeline.config, simulated=is_simulated, position=known.kernel_log)
        self._kernel_log_source = KernelLogSource(known)
        self._records_matched_for = -1
        """Version of the inventory that the waiting records were matched with; -1 before the first."""
        self._has_new_records = False
        """Whether the kernel log had records since the verdicts were written."""
        self._kernel_log_problems: list[spool_pb2.Problem] = []

    def reconfigure(self, config: Config) -> None:
        """Use another configuration from the next scan on."""
        self.pipeline.reconfigure(config)
        self._change_log.reloaded(str(config.source or "options and environment"))
        self.kernel_log.reconfigure(config)

    def scan(self) -> bool:
        """Scan the whole host; True if it changed during the scan, so that another scan is due soon."""
        self._config_warnings.note_scan()
        scan = self.pipeline.scan(time.monotonic())
        self.counters.observe(counters.SCAN_DURATION, scan.duration_seconds)
        self._requests.publish(self.pipeline.requests)
        failed = {part.vendor for part in scan.unseen if part.card is None}
        for vendor in scan.vendors:
            self.counters.add(counters.SCANS, vendor)
            self.counters.add(counters.SCAN_FAILURES, vendor, amount=vendor in failed)
        if scan.changed or self._problems_for != self.pipeline.known:
            self._problems = problem_messages(scan, self.pipeline.config, self.pipeline.inventory.entries.values())
            self._not_offered = notice_messages(scan, self.pipeline.inventory.entries.values())
            self._problems_for = self.pipeline.known
        if scan.changed or scan.duration_seconds > LONG_SCAN_SECONDS:
            log.debug("%s", _summary_of(scan))
        self._summary.timestamp_seconds, self._summary.monotonic_seconds = time.time(), time.monotonic()
        self._is_summary_new = True
        self._summary.duration_seconds = scan.duration_seconds
        self.kernel_log.open()
        self._kernel_log_problems = self._unless_irrelevant(self.kernel_log.problems())
        self._notices = [
            *self._unless_irrelevant(self.kernel_log.notices()),
            *self._not_offered,
            *left_out(self.pipeline.inventory.entries.values()),
        ]
        return scan.look_again

    @property
    def has_many_devices(self) -> bool:
        """Whether a look at all of them takes long."""
        return len(self.pipeline.inventory.entries) >= MANY_DEVICES

    def on_host(self, paths: Iterable[str]) -> list[str]:
        """These paths without the host root."""
        root = str(self.pipeline.config.host_root.absolute()).rstrip("/")
        return [path.removeprefix(root) for path in paths]

    def scan_period(self, *, is_reported: bool) -> float:
        """Seconds from the last scan to the next one; `is_reported`: the kernel reports what happens to devices."""
        period = self.pipeline.config.scan.period
        if period is None:
            is_well = is_reported and self.pipeline.is_settled and not self._problems
            period = REPORTED_SCAN_SECONDS if is_well else SCAN_SECONDS
        if self.pipeline.changes_in_silence:
            period = min(period, SCAN_SECONDS)
        if period != self._summary.period_seconds:
            self._summary.period_seconds = period
            self._is_summary_new = True
        return period

    def seconds_to_next_poll(self) -> float:
        """Seconds from a regular poll to the next one: `health.poll`, or longer with nothing to look at before."""
        poll = self.pipeline.config.health.poll
        return max(poll, self.pipeline.pause()) if poll >= ROUND_SECONDS and self.pipeline.is_settled else poll

    def restore(self) -> None:
        """Write again what somebody has removed of the files for other processes and programs, except the spool."""
        self._requests.publish(self.pipeline.requests)
        self.pipeline.restore()

    def poll(self, *, periodic: bool, changes: HostChanges = ANYTHING) -> None:
        """Poll the health of the known devices."""
        began = time.perf_counter()
        self.pipeline.reads_kernel_log(self.kernel_log.readable is not None)
        self.pipeline.poll(periodic=periodic, changes=changes)
        self.counters.observe(counters.POLL_DURATION, time.perf_counter() - began)
        self._count_findings()

    def _count_findings(self) -> None:
        for word, total in self.pipeline.policy.raised.items():
            news = total - self._raised.get(word, 0)
            if news:
                self.counters.add(counters.FINDINGS, *word, amount=news)
        self._raised = dict(self.pipeline.policy.raised)

    def read_devlink(self) -> None:
        """Apply the notifications of devlink."""
        self.pipeline.read_devlink()
        self._count_findings()

    def read_kernel_log(self) -> bool:
        """Read a batch of new kernel log records; True if there are more. Requires a scan first."""
        records = self.kernel_log.read()
        if records.lost:
            self.counters.add(counters.KERNEL_LOG_LOST, amount=records.lost)
        self._has_new_records |= bool(records.events)
        inventory = self.pipeline.inventory
        if records.events or (self._kernel_log_source.is_waiting and self._records_matched_for != inventory.version):
            result = self._kernel_log_source.match(
                records.events, self.kernel_log.rules, inventory.entries.values(), inventory.version
            )
            self.pipeline.note(result.seen)
            self._xids += result.xids
            if result.to_look_at:
                self.poll(periodic=False, changes=HostChanges(named=self._functions_at(result.to_look_at)))
        self._records_matched_for = inventory.version
        return records.more

    def _functions_at(self, addresses: Iterable[str]) -> list[str]:
        """The sysfs paths of PCI functions, without the host root."""
        root = self.pipeline.config.host_root.resolve()
        found = [(root / "sys/bus/pci/devices" / address).resolve() for address in sorted(addresses)]
        return [f"/{path.relative_to(root)}" for path in found if path.is_relative_to(root)]

    def publish(self, *, looks: bool = True) -> bool:
        """Bring the spool up to date; False if it must be called again because a device waits for its move.

        `looks`: look whether others have changed or removed its files, and how much room there is.

        A spool that cannot be written (disk full) is logged and tried again with the next publication.
        """
        if looks or self._reserve.problem:
            self._reserve.tend()
        try:
            try:
                self._publish(looks=looks)
            except OSError as error:
                if error.errno != errno.ENOSPC or not self._reserve.give_up():
                    raise
                self._publish(looks=looks)
        except OSError as error:
            self._log_unwritable(error)
            return False
        finally:
            self._change_log.write()
        self._unwritable = None
        return self._published is not None

    def _publish(self, *, looks: bool) -> None:
        fingerprint = self.pipeline.fingerprint()
        self._lost_file.write(self.pipeline.lost.message())
        present_for = self.pipeline.present_for()
        if not self.pipeline.lost.is_waiting and present_for != self._present_for:
            is_written = self._present_file.write(self.pipeline.present(), time.monotonic())
            self._present_for = present_for if is_written else None
        self._change_log.lost(self.pipeline.lost_news)
        self.pipeline.lost_news = []
        # First: a scanner that is killed between the two must not forget a device that is offered.
        self._devices_file.write(self.pipeline.inventory)
        self._beat()
        self._verdicts_file.write(
            self.pipeline.policy, now(self.pipeline.config), self._remembered(), at_once=self._has_new_records
        )
        self._has_new_records = False
        self._beat()
        is_other = fingerprint != self._published
        if is_other or (looks and not (self._publisher.is_intact() and self._device_info.is_intact())):
            made = self.pipeline.offers()
            self._beat()
            unwritten = self._device_info.publish(self.pipeline.config.device_info_directory, made.made)
            complete = self._publisher.publish(made.made)
            self._beat()
            self._count_health_changes(made.made)
            self._published = fingerprint if complete else None
            policy = self.pipeline.policy
            self._change_log.published(
                made.made, policy.held_against, is_complete=complete, recover_after=policy.recover_after
            )
            self._advertising_problems = made.problems + unwritten
        self._change_log.found_sources(source_states(self.pipeline.policy.seen), time.monotonic())
        self._count_xids()
        self._write_counts()
        self._write_summary(looks=looks)
        self._config_warnings.publish(self.pipeline.config_warnings())
        seconds = KEEP_COUNTERS_SECONDS if self.counters.has_counted else KEEP_DURATIONS_SECONDS
        if time.monotonic() >= self._counters_kept_at + seconds:
            self.keep_counters()

    def _remembered(self) -> Remembered:
        source = self._kernel_log_source
        return Remembered(
            self.kernel_log.position, source.waiting, source.at_unknown_links, source.uuids, self.pipeline.memories()
        )

    def keep_counters(self) -> None:
        """Write the counters if they have changed. Raises OSError when they cannot be written."""
        if self.counters.changed:
            spool.write(self._settings.scanner_state_file, spool_pb2.ScannerState(counters=self.counters))
            self.counters.changed = self.counters.has_counted = False
            self._counters_kept_at = time.monotonic()

    def _log_unwritable(self, error: OSError) -> None:
        self._published = None
        if str(error) != self._unwritable:
            log.error("cannot write the spool: %s; the kubelet keeps the last lists; trying again", error)
        self._unwritable = str(error)

    def _write_summary(self, *, looks: bool) -> None:
        problems = [
            *self._problems,
            *self.pipeline.problems,
            *self._advertising_problems,
            *self._kernel_log_problems,
            *([self._reserve.problem] if self._reserve.problem else []),
        ]
        if problems != list(self._summary.problems):
            self._change_log.found_problems(problems)
            del self._summary.problems[:]
            self._summary.problems.extend(problems)
            self._is_summary_new = True
        if self._notices != list(self._summary.notices):
            self._change_log.found_notices(self._notices)
            del self._summary.notices[:]
            self._summary.notices.extend(self._notices)
            self._is_summary_new = True
        if self._is_summary_new or looks:
            spool.write(self._settings.scan_file, self._summary)
            self._is_summary_new = False

    def _write_counts(self) -> None:
        counts = self.pipeline.new_counts() if self._counts is None else self._counts
        if counts is not None:
            self._counts = counts  # until they are written
            boot_id = now(self.pipeline.config).boot_id
            spool.write(self._counts_file, health_pb2.Counts(boot_id=boot_id, counts=counts))
            self._counts = None

    def _unless_irrelevant(self, problems: list[spool_pb2.Problem]) -> list[spool_pb2.Problem]:
        """These problems of the kernel log if a rule applies to a device of this node, otherwise none."""
        entries = self.pipeline.inventory.entries.values() if problems else ()
        return problems if any(self.kernel_log.applies_to(entry.device) for entry in entries) else []

    def _count_xids(self) -> None:
        """Count the new Xids under each resource name and id of their devices."""
        if not self._xids:
            return
        names: dict[DeviceKey, list[tuple[str, str]]] = {}
        for name, key in self._offered.keys.items():
            names.setdefault(key, []).append(name)
        for printed in self._xids:
            for resource_name, device_id in names.get(printed.key, ()):
                self.counters.add(counters.XIDS, resource_name, device_id, printed.code, amount=printed.times)
        self._change_log.printed(self._xids, names)
        self._xids = []
        self._counters_kept_at = 0.0  # together with the verdicts: the next scanner does not read these records again

    def _count_health_changes(self, offers: Sequence[Made]) -> None:
        for resource_name, device_id in self._offered.changed(offers, self.pipeline.known):
            self.counters.add(counters.HEALTH_CHANGES, resource_name, device_id)
        self.counters.forget_others(counters.HEALTH_CHANGES, self._offered.keys)
        self.counters.forget_others(counters.XIDS, self._offered.keys)


class OfferedIds:
    """The ids under which devices are offered, and which of them are Unhealthy."""

    def __init__(self, published: Iterable[spool_pb2.Offer]) -> None:
        """`published`: by an earlier scanner."""
        found = [((offer.name, device_id), device) for offer in published for device_id, device in spool.listed(offer)]
        self.keys = {name: key_of(device) for name, device in found}
        """The key of each device, by resource name and each of its ids."""
        self._unhealthy = {name for name, device in found if device.reasons}
        self._known: object = None

    def changed(self, offers: Sequence[Made], known: object) -> list[tuple[str, str]]:
        """Take over these offers; returns the resource names and ids whose health has changed.

        With an equal `known` the same devices are offered as before.
        """
        if known != self._known:
            self.keys, self._known = dict(_ids_of(offers)), known
        before, self._unhealthy = self._unhealthy, {name for name, _ in _ids_of(offers, of_unhealthy=True)}
        return sorted((before ^ self._unhealthy) & self.keys.keys())


def _ids_of(offers: Iterable[Made], *, of_unhealthy: bool = False) -> Iterator[tuple[tuple[str, str], DeviceKey]]:
    """Resource name and id, and the key, of each device or of each that is Unhealthy."""
    for made in offers:
        for key in made.unhealthy if of_unhealthy else made.parts:
            for device_id in made.parts[key].ids:
                yield (made.name, device_id), key


def _summary_of(scan: "Scan") -> str:
    """The log message about a scan: its duration, and the numbers of devices, problems and unexamined parts."""
    of_vendors = Counter(device.vendor for device in scan.devices)
    found = ", ".join(f"{count} {vendor}" for vendor, count in sorted(of_vendors.items())) or "no devices"
    parts = [amount(len(scan.problems), "problem"), *([f"{len(scan.unseen)} not examined"] if scan.unseen else [])]
    change = "something changed" if scan.changed else "nothing changed"
    return f"scanned in {scan.duration_seconds * 1000:.1f} ms: {found}; {', '.join(parts)}; {change}"


class ConfigWarnings:
    """Writes the configuration's warnings; logs each after a second scan: devices may be found one after another."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._written: Sequence[str] | None = None
        self._of_last_scan: Sequence[str] = ()
        self._logged: set[str] = set()

    def note_scan(self) -> None:
        """Call before each scan."""
        self._of_last_scan = self._written or ()

    def publish(self, warnings: Sequence[str]) -> None:
        """Write the current warnings. Raises OSError when they cannot be written."""
        if warnings != self._written:
            spool.write(self._file, spool_pb2.Configuration(warnings=warnings))
            self._written = warnings
        for warning in warnings:
            if warning in self._of_last_scan and warning not in self._logged:
                log.warning("%s", warning)
                self._logged.add(warning)
        self._logged &= set(warnings)


class SourceRequests:
    """Writes `<run-dir>/requests`, and makes the directories for the answers, so that they can be watched."""

    def __init__(self, settings: Settings) -> None:
        self._directory = settings.requests_directory
        findings = settings.findings_directory
        self._operators = (findings, *(findings / source for source in OF_OPERATORS))
        self._answers = (self._directory, settings.facts_directory)
        self._failed = False

    def publish(self, to_sources: Mapping[str, str]) -> None:
        """Write exactly these requests, by source. A failed write is tried again with the next call."""
        requests = {f"{source}{_REQUEST_SUFFIX}": text for source, text in to_sources.items()}
        try:
            for directory in (*self._operators, *(self._answers if requests else ())):
                directory.mkdir(mode=0o700, exist_ok=True)
            for name, text in requests.items():
                spool.update(self._directory / name, text.encode())
            for file in self._directory.glob("[!.]*"):
                if file.name not in requests:
                    file.unlink(missing_ok=True)
        except OSError as error:
            if not self._failed:
                log.error("cannot write %s: %s; sources keep their last requests", self._directory, error)
            self._failed = True
        else:
            self._failed = False
