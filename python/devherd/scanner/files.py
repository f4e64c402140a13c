"""The files of the scanner in the run directory: read at the start, brought up to date after each look."""

import errno
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from devherd import counters, spool
from devherd._native import boot_id, machine
from devherd.config.resolved import ResolvedConfig
from devherd.counters import Counters
from devherd.health.lost import LostDevices, LostFile, PresentFile
from devherd.health.policy import Earlier
from devherd.health.verdicts import VerdictsFile, source_states
from devherd.history import SCANNER_FILE_BYTES, History
from devherd.inventory import DeviceKey, DevicesFile, key_of
from devherd.log import Once
from devherd.offers.made import MadeOffer
from devherd.proto import health_pb2, spool_pb2
from devherd.scanner.change_log import ChangeLog
from devherd.scanner.observer import Observer
from devherd.scanner.offering import cordoned
from devherd.scanner.publisher import Acknowledgements, Publisher, Reserve
from devherd.scanner.side_files import DeviceInfo, SourceRequests
from devherd.settings import Settings

log = logging.getLogger(__name__)

KEEP_COUNTERS_SECONDS = 1.0
"""Least time between two writes of the counters."""
KEEP_DURATIONS_SECONDS = 10.0
"""As KEEP_COUNTERS_SECONDS, if only durations have changed."""


class ScannerFiles:
    """Creates the observer from the files of an earlier scanner, and writes its state and the resulting offers.

    Also counts and logs the changes.
    """

    def __init__(self, config: ResolvedConfig, settings: Settings, beat: Callable[[], object] | None = None) -> None:
        """`beat` is called while a card hangs and between steps that may take long."""
        self._settings = settings
        self._scan_file, self._counts_file = settings.scan_file, settings.counts_file
        self._counters_file = settings.scanner_state_file
        self._beat = beat or (lambda: None)
        self._devices_file = DevicesFile(settings.devices_file)
        self._devices_version = -1
        """Version of the inventory in its file."""
        self._verdicts_file = VerdictsFile(settings.verdicts_file)
        this_machine = machine(str(settings.host_root))
        self._lost_file = LostFile(settings.lost_file, settings.kept_lost_file, this_machine)
        self._lost_for: object = None
        """The scan after which the lost devices were written last."""
        self._present_file = PresentFile(settings.present_file, boot_id(str(config.host_root)), this_machine)
        self._present_for: object = None
        """The input from which the devices for the next boot were last written."""
        acknowledgements = Acknowledgements(settings.state_directory, settings.children_file)
        self._publisher = Publisher(settings.offers_file, settings.resources_directory, acknowledgements)
        published = self._publisher.published
        self._offered = OfferedIds(published)
        self._published_for: object = None
        """The input of the last completely written offers; None while an offer is not written."""
        self._offer_problems: list[spool_pb2.Problem] = []
        self._device_info = DeviceInfo()
        self._requests = SourceRequests(settings)
        self._config_warnings = ConfigWarnings(settings.config_warnings_file)
        self._reserve = Reserve(settings.reserve_file)
        self._unwritable = Once(log.error)
        self._summary = spool.read_or_empty(settings.scan_file, spool_pb2.ScanSummary)
        self._summary_for: object = None
        """The scan that the summary is about."""
        self._is_summary_new = True
        """Whether the summary may differ from its file."""
        self._counts: list[health_pb2.Count] | None = None
        """Counts that are not written yet; None if there are none."""
        self._counters_kept_at = 0.0
        earlier = self._verdicts_file.read()
        history = History(settings.history_directory, "scanner", SCANNER_FILE_BYTES)
        self._change_log = ChangeLog(history, published, self._summary.problems, earlier.sources)
        self.observer = self._observer_after(config, earlier, beat)
        self.observer.counters.add(counters.KERNEL_LOG_LOST, amount=0)

    def _observer_after(self, config: ResolvedConfig, earlier: Earlier, beat: Callable[[], object] | None) -> Observer:
        settings = self._settings
        lost = LostDevices(self._lost_file.read())
        lost.await_all(self._present_file.of_another_boot())
        kept = spool.read_or_empty(settings.scanner_state_file, spool_pb2.ScannerState)
        return Observer(
            config,
            inventory=self._devices_file.read(),
            earlier=earlier,
            lost=lost,
            nvml_answer=settings.nvml_answer_file,
            findings=settings.findings_directory,
            holders=settings.holders_file,
            claims=settings.prepared_claims_file,
            counts=Counters(counters.BY_THE_SCANNER, kept.counters),
            beat=beat,
        )

    def reconfigured(self, config: ResolvedConfig) -> None:
        """Note that another configuration is in force."""
        self._change_log.reloaded(str(config.source or "options and environment"))

    def write_requests(self) -> None:
        """Bring the requests to sources up to date, and make the directories for their answers."""
        self._requests.publish(self.observer.requests)

    def note_period(self, seconds: float) -> None:
        """Note the time from the last scan to the next one, for readers of the summary."""
        if seconds != self._summary.period_seconds:
            self._summary.period_seconds = seconds
            self._is_summary_new = True

    def publish(self, *, looks: bool = True) -> bool:
        """Bring the files up to date; False if it must be called again because a device waits for its move.

        `looks`: also check whether others have changed or removed the files, and how much space is left.

        A directory that cannot be written (disk full) is logged and tried again with the next publication.
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
        self._unwritable.over()
        return self._published_for is not None

    def _publish(self, *, looks: bool) -> None:
        observer = self.observer
        self._write_lost()
        # Before the offers: a scanner that is killed in between must not forget an offered device.
        if observer.inventory.version != self._devices_version:
            self._devices_file.write(observer.inventory)
            self._devices_version = observer.inventory.version
            self._beat()
        at_once = observer.kernel_log.has_new_records
        facts_of = observer.offering.facts_of
        self._verdicts_file.write(observer.policy, observer.now(), observer.remembered(), facts_of, at_once=at_once)
        observer.kernel_log.has_new_records = False
        self._write_offers(looks=looks)
        self._change_log.found_sources(source_states(observer.policy.seen), time.monotonic())
        self._count_xids()
        self._write_counts()
        self._write_summary(looks=looks)
        seconds = KEEP_COUNTERS_SECONDS if observer.counters.has_counted else KEEP_DURATIONS_SECONDS
        if time.monotonic() >= self._counters_kept_at + seconds:
            self.keep_counters()

    def _write_lost(self) -> None:
        observer, gone = self.observer, self.observer.gone
        if observer.last_scan is not self._lost_for:
            self._lost_file.write(gone.lost.message())
            self._lost_for = observer.last_scan
        verdicts = observer.policy.verdicts()
        present_for = observer.offering.known, cordoned(verdicts)
        if present_for != self._present_for and not gone.lost.is_waiting:
            is_written = self._present_file.write(observer.offering.present(verdicts), time.monotonic())
            self._present_for = present_for if is_written else None
        if gone.news:
            self._change_log.lost(gone.news)
            gone.news = []

    def _write_offers(self, *, looks: bool) -> None:
        offering, policy = self.observer.offering, self.observer.policy
        verdicts = policy.verdicts()
        made_for = offering.known, verdicts
        is_intact = not looks or (self._publisher.is_intact() and self._is_device_info_intact())
        if made_for == self._published_for and is_intact:
            return
        offers = offering.judged(verdicts)
        self._beat()
        unwritten = self._write_device_info(offers.all)
        complete = self._publisher.publish(offers.served, offers.by_dra)
        self._beat()
        self._count_health_changes(offers.all)
        self._published_for = made_for if complete else None
        self._change_log.published(
            offers.all, policy.held_against, is_complete=complete, recover_after=policy.recover_after
        )
        self._offer_problems = [*offers.problems, *unwritten]

    def _is_device_info_intact(self) -> bool:
        return not self._device_info.written or self._device_info.is_intact()

    def _write_device_info(self, offers: Sequence[MadeOffer]) -> list[spool_pb2.Problem]:
        config = self.observer.config
        if config.device_info_dir is None and not self._device_info.written:
            return []
        return self._device_info.publish(config.device_info_directory, offers)

    def keep_counters(self) -> None:
        """Write the counters if they have changed. Raises OSError when they cannot be written."""
        counts = self.observer.counters
        if counts.changed:
            spool.write(self._counters_file, spool_pb2.ScannerState(counters=counts.series()))
            counts.changed = counts.has_counted = False
            self._counters_kept_at = time.monotonic()

    def _log_unwritable(self, error: OSError) -> None:
        self._published_for = None
        self._unwritable.complain("cannot write the spool: %s; the kubelet keeps the last lists; trying again", error)

    def _write_summary(self, *, looks: bool) -> None:
        observer, scan, summary = self.observer, self.observer.last_scan, self._summary
        if scan is not None and scan is not self._summary_for:
            self._config_warnings.publish(observer.offering.without_health().config_warnings)
            summary.timestamp_seconds, summary.monotonic_seconds = time.time(), time.monotonic()
            summary.duration_seconds = scan.duration_seconds
            self._summary_for, self._is_summary_new = scan, True
        problems = [
            *observer.scan_problems,
            *observer.problems,
            *self._offer_problems,
            *observer.kernel_log_problems,
            *([self._reserve.problem] if self._reserve.problem else []),
        ]
        if problems != list(summary.problems):
            self._change_log.found_problems(problems)
            del summary.problems[:]
            summary.problems.extend(problems)
            self._is_summary_new = True
        if observer.notices != list(summary.notices):
            self._change_log.found_notices(observer.notices)
            del summary.notices[:]
            summary.notices.extend(observer.notices)
            self._is_summary_new = True
        if self._is_summary_new or looks:
            spool.write(self._scan_file, summary)
            self._is_summary_new = False

    def _write_counts(self) -> None:
        """Write the counts of the poller's sources: numbers that are not findings."""
        rows = self.observer.poller.new_counts()
        if rows is not None:
            self._counts = [
                health_pb2.Count(pci_address=address, ibdev=ibdev, part=part, name=name, kind=kind, number=number)
                for address, ibdev, part, name, kind, number in rows
            ]
        if self._counts is not None:
            counts = health_pb2.Counts(boot_id=self.observer.boot_id, counts=self._counts)
            spool.write(self._counts_file, counts)
            self._counts = None

    def _count_xids(self) -> None:
        """Count the new Xids under each resource name and id of their devices."""
        observer = self.observer
        if not observer.kernel_log.xids:
            return
        names: dict[DeviceKey, list[tuple[str, str]]] = {}
        for name, key in self._offered.keys.items():
            names.setdefault(key, []).append(name)
        for printed in observer.kernel_log.xids:
            for resource_name, device_id in names.get(printed.key, ()):
                observer.counters.add(counters.XIDS, resource_name, device_id, printed.code, amount=printed.times)
        self._change_log.printed(observer.kernel_log.xids, names)
        observer.kernel_log.xids = []
        self._counters_kept_at = 0.0  # together with the verdicts: the next scanner does not read these records again

    def _count_health_changes(self, offers: Sequence[MadeOffer]) -> None:
        counts, known = self.observer.counters, self.observer.offering.known
        for resource_name, device_id in self._offered.changed(offers, known):
            counts.add(counters.HEALTH_CHANGES, resource_name, device_id)
        counts.forget_others(counters.HEALTH_CHANGES, self._offered.keys)
        counts.forget_others(counters.XIDS, self._offered.keys)


class OfferedIds:
    """The ids under which devices are offered, and which of them are Unhealthy."""

    def __init__(self, published: Iterable[spool_pb2.Offer]) -> None:
        """`published`: the offers that an earlier scanner wrote."""
        found = [((offer.name, device_id), device) for offer in published for device_id, device in spool.listed(offer)]
        self.keys = {name: key_of(device) for name, device in found}
        """The key of each device, by resource name and each of its ids."""
        self._unhealthy = {name for name, device in found if device.reasons}
        self._known: object = None

    def changed(self, offers: Sequence[MadeOffer], known: object) -> list[tuple[str, str]]:
        """Take over these offers; returns the resource names and ids whose health has changed.

        With an equal `known` the same devices are offered as before.
        """
        if known != self._known:
            self.keys, self._known = dict(_ids_of(offers)), known
        before, self._unhealthy = self._unhealthy, {name for name, _ in _ids_of(offers, of_unhealthy=True)}
        return sorted((before ^ self._unhealthy) & self.keys.keys())


def _ids_of(offers: Iterable[MadeOffer], *, of_unhealthy: bool = False) -> Iterator[tuple[tuple[str, str], DeviceKey]]:
    """Resource name and id, and the key, of each device or of each that is Unhealthy."""
    for made in offers:
        for key in made.unhealthy if of_unhealthy else made.devices:
            for device_id in made.ids[key]:
                yield (made.name, device_id), key


class ConfigWarnings:
    """Writes the configuration's warnings after each scan, and logs a warning once two scans in a row have raised it.

    Devices may appear one after another: the first scan may miss a device that the next one finds.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._written: Sequence[str] | None = None
        self._logged: set[str] = set()

    def publish(self, warnings: Sequence[str]) -> None:
        """Write the warnings of a scan. Raises OSError when they cannot be written."""
        before = self._written or ()
        if warnings != self._written:
            spool.write(self._file, spool_pb2.Configuration(warnings=warnings))
            self._written = warnings
        for warning in warnings:
            if warning in before and warning not in self._logged:
                log.warning("%s", warning)
                self._logged.add(warning)
        self._logged &= set(warnings)
