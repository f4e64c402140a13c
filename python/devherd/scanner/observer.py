"""The observer: scans the host, polls health, reads reports of other sources, and passes all of it to the policy."""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from devherd import counters
from devherd._native import Device, Evidence, Finding, Look, Platform, Scan, answering, boot_id, pci_functions
from devherd.config.resolved import ResolvedConfig
from devherd.counters import Counters
from devherd.health import host
from devherd.health.findings import FindingsFiles, take_in
from devherd.health.held import ANY_SOURCE, NOTHING, Memory, Now, Remembered, Seen
from devherd.health.lost import LostDevices, renamed, renaming
from devherd.health.policy import Earlier, Policy, Rules
from devherd.inventory import DeviceKey, Entry, Inventory, not_examined
from devherd.offers.config_warnings import left_out
from devherd.process import HOLDERS, LOOK_PERIOD_SECONDS
from devherd.proto import health_pb2, spool_pb2
from devherd.reasons.registry import (
    DEVICE_DUMP,
    DEVLINK,
    EVENT_SOURCES,
    EXTERNAL_PREFIX,
    FIRST_SIGHT_SOURCES,
    GONE,
    INVENTORY,
    MPS,
    OF_OPERATORS,
)
from devherd.scanner.core import (
    edits_for,
    left_out_by,
    log_scan,
    native_poller,
    native_scanner,
    notice_messages,
    problem_messages,
    refusals,
    vendor_options,
)
from devherd.scanner.gone import GoneDevices
from devherd.scanner.host_events import ANYTHING, DevlinkReader, HostChanges
from devherd.scanner.kernel_log import KernelLogReader
from devherd.scanner.offering import Offering
from devherd.scanner.side_files import CdiSpecs
from devherd.sources.request import left_to_others, requests_for


class Observer:
    """Scans and polls the host, and keeps its state between two looks.

    `inventory`, `earlier` and `lost`: the state that an earlier scanner left. `nvml_answer` is the file that process
    `source:nvml` writes; without it NVML is not asked. `findings` is the directory of sources that run in separate
    processes, `holders` the file of process `holders`, `claims` that of prepared claims. `beat` is called every half
    second while a card hangs, and between steps that take long with many devices.
    """

    def __init__(
        self,
        config: ResolvedConfig,
        *,
        inventory: Inventory | None = None,
        earlier: Earlier | None = None,
        lost: LostDevices | None = None,
        nvml_answer: Path | None = None,
        findings: Path | None = None,
        holders: Path | None = None,
        claims: Path | None = None,
        counts: Counters | None = None,
        beat: Callable[[], object] | None = None,
    ) -> None:
        earlier = earlier or Earlier()
        self.config = config
        self.boot_id = boot_id(str(config.host_root))
        self.counters = counts or Counters(counters.BY_THE_SCANNER)
        self._beat = beat
        self._nvml_answer = nvml_answer
        self._native = native_scanner(config, nvml_answer)
        self.poller = native_poller(config, self._native)
        self.inventory = inventory or Inventory()
        self.offering = Offering(config, self._native, self.inventory, beat)
        self.policy = Policy(config.health.recover_after)
        self._judge_by(config)
        self.policy.restore(earlier, self.inventory.entries, self.now())
        known = earlier.remembered if earlier.boot_id == self.boot_id else NOTHING
        self._memories: Sequence[Memory] = known.memories
        self.poller.recall(self._memories)
        self.gone = GoneDevices(
            LostDevices() if lost is None else lost,
            self.inventory,
            self.policy,
            self.offering,
            findings=findings,
            holders=holders,
            claims=claims,
        )
        self._findings = findings
        self._findings_files = FindingsFiles(findings)
        self._reported: Mapping[str, health_pb2.Findings] = {}
        """What the sources in separate processes have reported, by source."""
        self._sources: Sequence[str] = ()
        """The sources that `_reported` was read for."""
        self._is_told_of_findings = self._is_told_of_devices = False
        self._scanned_at = self._look_at = 0.0
        """Monotonic seconds: when the last scan began; when polls look again at things that events normally report."""
        self._dumps: Sequence[tuple[str, Finding]] = ()
        self.devlink = DevlinkReader(self.simulated_node, config.scan.probe_timeout)
        is_simulated = self.simulated_node is not None
        self.kernel_log = KernelLogReader(config, simulated=is_simulated, known=known)
        self.requests: dict[str, str] = {}
        """The request to each source that runs in a separate process, by source."""
        self._cdi = CdiSpecs(config)
        self._new: set[DeviceKey] = set(self.inventory.entries)
        """Devices that a source in FIRST_SIGHT_SOURCES has not looked at: its first look is the base for later ones."""
        self._reconfigured = _differing(self.inventory.vendor_options, vendor_options(config))
        """The vendors and classes whose options have changed since the last scan; a class until no pod holds what it no
        longer finds."""
        self.last_scan: Scan | None = None
        self.changes_in_silence = self._has_other_rules = False
        """Whether the last scan has found a device that can change into another one without an event; whether rules or
        ways of the configuration have changed since: they decide what is left out."""
        self.scan_problems: list[spool_pb2.Problem] = []
        self.kernel_log_problems: list[spool_pb2.Problem] = []
        self.problems: list[spool_pb2.Problem] = []
        """Problems of CDI specs and of looks at cards."""
        self.notices: list[spool_pb2.Problem] = []
        """Notes of the last scan that are not problems."""
        self._scan_said_for: object = None
        self._not_offered: list[spool_pb2.Problem] = []
        self._raised: Mapping[tuple[str, str], int] = {}
        self._sort_out()

    def now(self) -> Now:
        """The current time on the clocks of health."""
        return Now(time.time(), time.monotonic(), self.boot_id)

    @property
    def simulated_node(self) -> Path | None:
        """The simulated node whose events replace the kernel's; None on a real host."""
        return self.config.host_root if self._native.is_simulated else None

    def reconfigure(self, config: ResolvedConfig) -> None:
        """Use another configuration from the next scan on; unaffected state is kept."""
        changed = _differing(vendor_options(self.config), vendor_options(config))
        settings = config.native_json(self._nvml_answer)
        if settings != self.config.native_json(self._nvml_answer):
            with refusals():
                self._native.reconfigure(settings)
        self.poller.switch_off(set(config.health.sources_off))
        if config.cdi_directory != self.config.cdi_directory:
            self._cdi = CdiSpecs(config)
        self._reconfigured |= changed
        self._has_other_rules |= (config.resources, config.ways) != (self.config.resources, self.config.ways)
        self._judge_by(config)
        self.offering.reconfigure(config)
        self.kernel_log.reconfigure(config)
        self.config = config

    def _judge_by(self, config: ResolvedConfig) -> None:
        health = config.health
        meaning_of = Rules(health.rules, self.inventory).meaning_of
        self.policy.use(
            health.recover_after,
            meaning_of,
            has_breaker=health.breaker,
            damps=health.flapping,
            off=health.sources_off,
        )

    def scan(self, clock: float) -> Scan:
        """Scan the whole host at monotonic second `clock`; findings count at once.

        A poll must follow: it looks at the devices that are found here.
        """
        self._scanned_at = time.monotonic()
        scan = self.last_scan = self._native.scan(self._beat)
        self.changes_in_silence = scan.changes_in_silence
        self._count_scan(scan)
        gone, held = self._gone_unseen(scan), self.gone.held(clock, self.config.health.forget_after)
        self.gone.take_orders()
        dropped, self._reconfigured = self._reconfigured, set()
        before, platforms, version = self.inventory.entries, self.inventory.platforms, self.inventory.version
        if scan.changed or dropped or gone or self.inventory.has_gone or self._has_other_rules:
            self._has_other_rules = False
            forgotten = self.gone.lost.forgotten
            forget_after, why = self.config.health.forget_after, left_out_by(self.config, self._native)
            self.inventory.observe(
                scan, clock, forget_after, dropped, left_out=why, gone=gone, held=held, forgotten=forgotten
            )
            self._reconfigured = self.inventory.use_options(vendor_options(self.config), dropped)
        is_other = self.inventory.version != version
        if is_other:
            self._let_go(before, platforms)
            self._sort_out()
        if scan.changed or is_other:
            self.poller.watch(scan, self._left_to_polls())
        self.requests = self._requests_after(scan)
        self._cdi.publish(self.inventory, self.config.ways, self.offering.edits_of)
        self._note(self._seen_without_looking())
        self.gone.observe(scan, clock, self.now(), config=self.config, dropped=dropped, held=held)
        self.kernel_log.open()
        self._describe(scan)
        return scan

    def _count_scan(self, scan: Scan) -> None:
        log_scan(scan)
        self.counters.observe(counters.SCAN_DURATION, scan.duration_seconds)
        failed = {part.vendor for part in scan.unseen if part.card is None}
        for vendor in scan.vendors:
            self.counters.add(counters.SCANS, vendor)
            self.counters.add(counters.SCAN_FAILURES, vendor, amount=vendor in failed)

    def _gone_unseen(self, scan: Scan) -> set[DeviceKey]:
        """The devices that are gone although the scan could not examine them."""
        unseen = not_examined(scan, self.inventory.entries)
        are_gone = self._native.are_gone([entry.device for entry in unseen]) if unseen else []
        return {entry.key for entry, is_gone in zip(unseen, are_gone, strict=True) if is_gone}

    def _let_go(self, before: Mapping[DeviceKey, Entry], platforms: Mapping[str, Platform]) -> None:
        """Drop what was kept for devices that are no longer known."""
        entries = self.inventory.entries
        forgotten = [before[key] for key in before.keys() - entries.keys() if before[key].gone_since is not None]
        if forgotten:  # the configuration dropped the others, and pods may hold them
            edits_of = partial(edits_for, self._native, platforms, None)
            self._cdi.withdraw(forgotten, entries.values(), self.config.ways, edits_of)
        self._new = {key for key in self.inventory.entries if key in self._new or key not in before}
        self.policy.forget_all_but(self.inventory.entries, self.now())

    def _sort_out(self) -> None:
        """Collect the devices that every poll needs; valid until the inventory changes."""
        entries = self.inventory.entries.values()
        elsewhere = renamed(entries) if self.inventory.has_gone else {}
        self._noted_by_the_scan = [
            (entry, entry.findings if entry.gone_since is None else [_why_gone(entry, elsewhere.get(entry.key, ()))])
            for entry in entries
            if not entry.is_found or entry.findings
        ]
        self._has_network_card = any(entry.gone_since is None and host.is_network_card(entry) for entry in entries)

    def _left_to_polls(self) -> list[Device]:
        """Devices that the last scan could not examine, without a finding: only a poll notices their removal."""
        unseen = ((entry, entry.unseen) for entry in self.inventory.entries.values())
        return [entry.device for entry, part in unseen if part is not None and part.finding is None]

    def _requests_after(self, scan: Scan) -> dict[str, str]:
        requests = scan.requests | requests_for(self.config, self._findings, self.boot_id)
        wanted = {name: text for name, text in requests.items() if name not in self.config.health.sources_off}
        return wanted | ({HOLDERS: "{}"} if self.gone.needs_holders else {})

    def _describe(self, scan: Scan) -> None:
        """Update the problems and notes of the scan."""
        entries = self.inventory.entries.values()
        said_for = self.offering.known, self.kernel_log.last_words.version
        if scan.changed or self._scan_said_for != said_for:
            self.scan_problems = problem_messages(scan, self.config, entries, self.kernel_log.last_words)
            self._not_offered = notice_messages(scan, entries)
            self._scan_said_for = said_for
        self.kernel_log_problems = self._unless_irrelevant(self.kernel_log.problems())
        notices = self._unless_irrelevant(self.kernel_log.notices())
        self.notices = [*notices, *self._not_offered, *left_out(entries, self.config.way)]

    def _unless_irrelevant(self, problems: list[spool_pb2.Problem]) -> list[spool_pb2.Problem]:
        """These problems of the kernel log if a rule applies to a device of this node, otherwise none."""
        entries = self.inventory.entries.values() if problems else ()
        return problems if any(self.kernel_log.applies_to(entry.device) for entry in entries) else []

    def poll(self, *, periodic: bool, changes: HostChanges = ANYTHING) -> None:
        """Poll the health of the known devices.

        A periodic poll looks at devices that are due, and lets devices recover. Another poll looks at devices that had
        an event, or at all devices if events were lost.
        """
        clock = time.monotonic()  # the events came before the looks, which may take long
        if self._has_network_card and DEVLINK not in self.config.health.sources_off:
            self.devlink.look(self._beat)
        elif self.devlink.is_in_use:
            self.devlink.pause()
        seen = self._seen_without_looking(looks=not periodic or clock >= self._look_at)
        for key in self._new:
            seen.not_looked.setdefault(key, {})
        self._take_in_looks(seen, self._looks(periodic=periodic, changes=changes))
        self._add_disproofs(seen)
        if self._new:
            self._new = seen.unseen(self._new, FIRST_SIGHT_SOURCES)
        if periodic:
            self.policy.observe(seen, self.now())
        else:
            self.policy.note(seen, self.now())
        if changes.events:
            self.policy.note(host.seen_in_uevents(changes.events, self.inventory.entries.values(), clock), self.now())
        self.counters.observe(counters.POLL_DURATION, time.monotonic() - clock)
        self._count_findings()

    def _looks(self, *, periodic: bool, changes: HostChanges) -> list[Look]:
        self.poller.reads_kernel_log(self.kernel_log.readable is not None)
        if periodic:
            held = self.policy.all_held()
            awaited = [(key, {one.finding.source for one in all_held}) for key, all_held in held]
            return self.poller.poll_due(awaited, self._beat)
        if changes:
            self._native.forget()
        if changes.lost:
            return self.poller.poll(self._beat)
        return self.poller.poll_named(changes.places, changes.nodes, self._beat)

    def _take_in_looks(self, seen: Seen, looks: Iterable[Look]) -> None:
        for look in looks:
            key = look.vendor, look.card, look.id
            if key not in self.inventory.entries:
                continue
            seen.add(key, look.findings)
            if self.inventory.entries[key].unseen is None:
                seen.not_looked.setdefault(key, {}).update(look.not_looked)
            if ANY_SOURCE in look.not_looked and not look.findings:
                why = look.not_looked[ANY_SOURCE]
                self.problems.append(spool_pb2.Problem(vendor=look.vendor, path=look.card, error=why, device=look.id))

    def _seen_without_looking(self, *, looks: bool = True) -> Seen:
        """Findings of the last scan, of CDI specs that cannot be written, and of sources outside this process.

        Without `looks`, things that events report are taken as unchanged.
        """
        seen = Seen()
        if looks:
            self._look_at = time.monotonic() + LOOK_PERIOD_SECONDS
        for entry, findings in self._noted_by_the_scan:
            seen.add(entry.key, findings)
            if entry.unseen is not None:
                seen.not_looked[entry.key] = {ANY_SOURCE: "the last scan could not examine it"}
            elif entry.gone_since is not None:
                seen.not_looked[entry.key] = dict.fromkeys(EVENT_SOURCES, "it is gone")
        self.problems = self._cdi.take_in(seen) if self._cdi.unwritten else []
        self._take_in_mps(seen)
        self._take_in_device_dumps(seen, looks=looks)
        self._take_in_devlink(seen)
        self._take_in_findings(seen, looks=looks)
        return seen

    def _take_in_mps(self, seen: Seen) -> None:
        if self.config.mps_root is not None and MPS not in self.config.health.sources_off:
            shared = self.offering.without_health().shared_by_mps
            self.problems += host.take_in_mps(seen, shared, self.config.host_root, self.config.mps_root)

    def _take_in_device_dumps(self, seen: Seen, *, looks: bool) -> None:
        if DEVICE_DUMP in self.config.health.sources_off:
            return
        if looks or not self._is_told_of_devices:
            self._dumps = ()
            try:
                self._dumps = self.poller.device_dumps(self._beat)
            except OSError as error:
                seen.failed[DEVICE_DUMP] = str(error)
        if self._dumps:
            host.take_in_device_dumps(seen, self.inventory.entries.values(), self._dumps)

    def _take_in_devlink(self, seen: Seen) -> None:
        if self.devlink.is_in_use:
            entries = self.inventory.entries.values()
            host.take_in_devlink(seen, self.devlink.reporters, entries, self.devlink.failed)
            self.problems += self.devlink.problems()

    def _take_in_findings(self, seen: Seen, *, looks: bool) -> None:
        """Apply the reports of sources in separate processes, and the orders of operators."""
        sources, reads = [*OF_OPERATORS, *sorted(self.requests)], looks or not self._is_told_of_findings
        if reads or sources != self._sources:
            self._reported = self._findings_files.read(sources, self.boot_id, looks=reads)
            self._sources = sources
        if not self._reported:
            self.poller.leave_alone(set())
            return
        scopes = {f"{EXTERNAL_PREFIX}{one.name}": one.match for one in self.config.health.external}
        take_in(seen, self._reported, self.inventory.entries.values(), scopes)
        self.poller.leave_alone(left_to_others(seen))
        for (_, card, _), reason in self.policy.newly_cleared(seen):
            self.poller.forget_best(card, reason)

    def _note(self, seen: Seen) -> None:
        """Apply what was seen between two polls."""
        self.policy.note(seen, self.now())
        self._count_findings()

    def _count_findings(self) -> None:
        if self.policy.raised != self._raised:
            for word, times in (Counter(self.policy.raised) - Counter(self._raised)).items():
                self.counters.add(counters.FINDINGS, *word, amount=times)
            self._raised = dict(self.policy.raised)

    def read_devlink(self) -> None:
        """Apply the notifications of devlink since the last call."""
        if self.devlink.receive():
            seen = Seen()
            entries = self.inventory.entries.values()
            host.take_in_devlink(seen, self.devlink.reporters, entries, self.devlink.failed)
            self._note(seen)

    def read_kernel_log(self) -> bool:
        """Apply a batch of new records of the kernel log; True if there are more. Requires a scan first."""
        records = self.kernel_log.read()
        if records.lost:
            self.counters.add(counters.KERNEL_LOG_LOST, amount=records.lost)
        version = self.kernel_log.last_words.version
        matched = self.kernel_log.match(records, self.inventory.entries.values(), self.inventory.version)
        if self.last_scan is not None and self.kernel_log.last_words.version != version:
            self._describe(self.last_scan)
        if matched is not None:
            self._add_disproofs(matched.seen)
            self._note(matched.seen)
            if matched.to_look_at:
                self.poll(periodic=False, changes=HostChanges(named=self._functions_at(matched.to_look_at)))
        return records.more

    def _add_disproofs(self, seen: Seen) -> None:
        """Add what has succeeded since events said that it had failed: a device was started, its function answers."""
        entries, now = self.inventory.entries, time.monotonic()
        for key in self.policy.disproved_by(Evidence.STARTED, seen):
            if key in entries and host.is_started(entries[key]):
                seen.evident(key, Evidence.STARTED, self._scanned_at)
        unanswering = self.policy.disproved_by(Evidence.ANSWERED, seen)
        by_key = {key: host.bus_addresses(entries[key]) for key in unanswering if key in entries}
        if not by_key:
            return
        answer = set(answering(str(self.config.host_root), sorted(set().union(*by_key.values()))))
        for key, addresses in by_key.items():
            if addresses and addresses <= answer:
                seen.evident(key, Evidence.ANSWERED, now)

    def _functions_at(self, addresses: Iterable[str]) -> list[str]:
        """The sysfs paths of PCI functions, without the host root."""
        return pci_functions(str(self.config.host_root), sorted(addresses))

    def restore(self) -> None:
        """Write removed CDI specs again."""
        self._cdi.publish(self.inventory, self.config.ways, self.offering.edits_of)

    def remembered(self) -> Remembered:
        """State of the sources that a later scanner of this boot needs."""
        news = self.poller.new_memories()
        self._memories = self._memories if news is None else news
        return replace(self.kernel_log.known, memories=self._memories)

    @property
    def is_settled(self) -> bool:
        """Whether all is well as far as is known: nothing is held, gone, unexamined or awaited."""
        is_asked = self.config.mps_root is not None and MPS not in self.config.health.sources_off
        return not (
            self._new
            or self.gone.misses_any
            or self._noted_by_the_scan
            or self.policy.holds_anything
            or (is_asked and self.offering.without_health().shared_by_mps)
        )

    def watched_directories(self) -> list[str]:
        """Directories, never in sysfs or procfs, whose entries are created and removed with devices."""
        return self._native.watched_directories()

    def findings_directories(self) -> list[str]:
        """Existing directories into which sources in separate processes write findings."""
        return self._findings_files.directories()

    def is_told(self, *, of_findings: bool, of_devices: bool) -> None:
        """Set whether changed findings files, and device events, trigger a poll outside the regular ones."""
        self._is_told_of_findings, self._is_told_of_devices = of_findings, of_devices


_GONE = Finding(
    source=INVENTORY, reason=GONE, detail="no scan finds the device any more; it is listed until it is forgotten"
)


def _why_gone(gone: Entry, there: Sequence[Entry]) -> Finding:
    return renaming(gone, there) if there else _GONE


def _differing(before: Mapping[str, str], after: Mapping[str, str]) -> set[str]:
    return {vendor for vendor in before.keys() | after.keys() if before.get(vendor) != after.get(vendor)}
