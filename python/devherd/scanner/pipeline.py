"""The scanner's way of the data in one place: scan → inventory → findings → policy → rules. No loop, no spool."""

import time
from collections.abc import Callable, Mapping, Sequence
from itertools import repeat
from pathlib import Path

from devherd._native import Device, Edits, Finding, Look, Scan
from devherd.config.resolved import Config
from devherd.health.findings_files import FindingsFiles, take_in
from devherd.health.policy import Earlier, Policy
from devherd.health.registry import EVENT_SOURCES, FIRST_SIGHT_SOURCES, GONE, INVENTORY, OF_OPERATORS
from devherd.health.remembered import Memory
from devherd.health.rules import Rules
from devherd.health.seen import ANY_SOURCE, Seen
from devherd.health.sources import EXTERNAL, device_dump, devlink, mps, uevents
from devherd.health.sources.order import left_to_others, requests_for
from devherd.inventory import DeviceKey, Entry, Inventory
from devherd.offers import device_plugin
from devherd.proto import health_pb2, spool_pb2
from devherd.scanner.arrangement import Arrangement, arrange
from devherd.scanner.cdi_specs import CdiSpecs
from devherd.scanner.devlink import DevlinkReader
from devherd.scanner.host_events import ANYTHING, Happened
from devherd.scanner.made_again import MadeAgain
from devherd.scanner.moment import now
from devherd.scanner.scan_core import edits_by, native_scanner, refusals, vendor_options


class Pipeline:
    """From the host to resources, with what must be remembered between two looks.

    `inventory` and `earlier` are what an earlier scanner left in the run directory; `nvml_answer` is
    the file in which process `source:nvml` answers, without one NVML is not asked; `findings` is the directory of
    sources that are processes of their own. `beat` is called every half second while cards that hang are waited
    for, and between steps that take long with many devices.
    """

    def __init__(
        self,
        config: Config,
        *,
        inventory: Inventory | None = None,
        beat: Callable[[], object] | None = None,
        nvml_answer: Path | None = None,
        earlier: Earlier | None = None,
        findings: Path | None = None,
    ) -> None:
        self.config = config
        self._configured = 1
        """How many configurations there have been."""
        self._beat = beat
        self._nvml_answer = nvml_answer
        self._native = native_scanner(config, nvml_answer)
        self.inventory = inventory or Inventory()
        self.policy = Policy(config.health.recover_after)
        self._judge_by(config)
        earlier = earlier or Earlier()
        self.policy.restore(earlier, self.inventory.entries, now(config))
        self._memories: Sequence[Memory] = ()
        if earlier.boot_id == now(config).boot_id:
            self._memories = earlier.remembered.memories
            self._native.recall(self._memories)
        self._findings = findings
        self._findings_files = FindingsFiles(findings)
        self.devlink = DevlinkReader(self.simulated_node, config.scan.probe_timeout)
        self._devlink_cards = MadeAgain[bool]()
        self.requests: dict[str, str] = {}
        """What each source that is a process of its own is to be asked, by source."""
        self._standing = MadeAgain[list[tuple[Entry, list[Finding]]]]()
        self._cdi = CdiSpecs(config)
        self._strange: set[DeviceKey] = set(self.inventory.entries)
        """Devices that not every source has looked at of those whose first look is a base to compare with."""
        self._reconfigured = _differing(self.inventory.vendor_options, vendor_options(config))
        self.problems: list[spool_pb2.Problem] = []
        """What neither the scan nor the naming of resources meets: CDI specs that cannot be written, and cards that
        could not be looked at.
        """
        self._arranged = MadeAgain[Arrangement]()

    def reconfigure(self, config: Config) -> None:
        """Use another configuration from the next scan on; what it does not change is left alone."""
        changed = _differing(vendor_options(self.config), vendor_options(config))
        settings = config.native_json(self._nvml_answer)
        if settings != self.config.native_json(self._nvml_answer):
            with refusals():
                self._native.reconfigure(settings)
        if config.cdi_directory != self.config.cdi_directory:
            self._cdi = CdiSpecs(config)
        self._reconfigured |= changed
        self._judge_by(config)
        self.config = config
        self._configured += 1

    def _judge_by(self, config: Config) -> None:
        health = config.health
        meaning_of = Rules(health.rules, self.inventory).meaning_of
        self.policy.use(health.recover_after, meaning_of, has_breaker=health.breaker, damps=health.flapping)

    def scan(self, moment: float) -> Scan:
        """Look at the whole host at monotonic second `moment`; what is found wrong counts at once.

        A poll has to follow: it looks at the devices that are found here.
        """
        scan = self._native.scan(self._beat)
        self.requests = scan.requests | requests_for(self.config, self._findings, now(self.config).boot_id)
        if scan.changed or self._reconfigured or self._is_forgetting():
            before, platforms = self.inventory.entries, self.inventory.platforms
            self.inventory.observe(scan, moment, self.config.health.forget_after, self._reconfigured)
            self.inventory.vendor_options = vendor_options(self.config)
            self._reconfigured = set()
            for key in before.keys() - self.inventory.entries.keys():
                if before[key].gone_since is not None:  # otherwise pods may hold it: the configuration let go of it
                    self._cdi.withdraw(before[key], edits_by(self._native, platforms))
            self._strange = {key for key in self.inventory.entries if key in self._strange or key not in before}
            self._native.watch_also(self._left_to_polls())
            self.policy.forget_all_but(self.inventory.entries, now(self.config))
        self._cdi.publish(self.inventory, self._edits_of)
        self.policy.note(self._seen_without_looking(), now(self.config))
        return scan

    def poll(self, *, periodic: bool, happened: Happened = ANYTHING) -> None:
        """Look at what can be looked at cheaply.

        A periodic poll looks at what is due, and lets devices recover; one in between at what something happened to.
        """
        moment = time.monotonic()  # what happened had happened before the looks, which may take long
        if self._has_devlink():
            self.devlink.look(self._beat)
        else:
            self.devlink.rest()
        seen = self._seen_without_looking()
        self._native.leave_alone(left_to_others(seen))
        for key in self._strange:
            seen.not_looked.setdefault(key, {})
        for look in self._looks(periodic=periodic, happened=happened):
            key = look.vendor, look.card, look.id
            if key in self.inventory.entries:
                seen.add(key, look.findings)
                if self.inventory.entries[key].unseen is None:
                    seen.not_looked.setdefault(key, {}).update(look.not_looked)
                if ANY_SOURCE in look.not_looked and not look.findings:
                    why = look.not_looked[ANY_SOURCE]
                    self.problems.append(
                        spool_pb2.Problem(vendor=look.vendor, path=look.card, error=why, device=look.id)
                    )
        self._strange = {
            key for key in self._strange if any(map(seen.why_not_looked, repeat(key), FIRST_SIGHT_SOURCES))
        }
        if periodic:
            self.policy.observe(seen, now(self.config))
        else:
            self.policy.note(seen, now(self.config))
        if happened.events:
            self.hear(uevents.told(happened.events, self.inventory.entries.values(), moment))

    def hear(self, seen: Seen) -> None:
        """Take in what is told in between: events of the kernel, evidence."""
        self.policy.note(seen, now(self.config))

    def memories(self) -> Sequence[Memory]:
        """What the scan core has seen in this boot that its next process has to know."""
        news = self._native.new_memories()
        self._memories = self._memories if news is None else news
        return self._memories

    def new_counts(self) -> list[health_pb2.Count] | None:
        """What the scan core's sources have counted that is no finding; None where none has looked since."""
        counts = self._native.new_counts()
        if counts is None:
            return None
        return [
            health_pb2.Count(pci_address=address, ibdev=ibdev, part=part, name=name, kind=kind, number=number)
            for address, ibdev, part, name, kind, number in counts
        ]

    def hear_devlink(self) -> None:
        """Take in what drivers have said of their cards' firmware since then."""
        if self.devlink.hear():
            seen = Seen()
            devlink.take_in(seen, self.devlink.reporters, self.inventory.entries.values(), self.devlink.failed)
            self.hear(seen)

    def _has_devlink(self) -> bool:
        """Whether a card is there of which it may speak."""
        entries = self.inventory.entries.values()
        return self._devlink_cards.of(
            self.inventory.version,
            lambda: any(entry.gone_since is None and devlink.may_speak_of(entry) for entry in entries),
        )

    def _looks(self, *, periodic: bool, happened: Happened) -> list[Look]:
        if periodic:
            held = self.policy.all_held()
            awaited = [(key, {one.finding.source for one in all_held}) for key, all_held in held]
            return self._native.poll_due(awaited, self._beat)
        if happened.lost:
            return self._native.poll(self._beat)
        return self._native.poll_named(happened.places, happened.nodes, self._beat)

    def resources(self) -> device_plugin.Resources:
        """The resources that result under the configuration."""
        return self._arrangement().resources.judged(self.policy.verdicts())

    def doubts(self) -> list[str]:
        """What the configuration does on this node that nobody can have meant."""
        return self._arrangement().doubts

    def _arrangement(self) -> Arrangement:
        return self._arranged.of(
            self.known, lambda: arrange(self.config, self.inventory.entries.values(), self._edits_of)
        )

    @property
    def known(self) -> tuple[int, int]:
        """Equal for as long as the same is known of devices, under the same configuration."""
        return self._configured, self.inventory.version

    def fingerprint(self) -> object:
        """Equal for as long as `resources` answers the same."""
        return self.known, self.policy.verdicts()

    @property
    def simulated_node(self) -> Path | None:
        """The simulated node whose events are heard instead of the kernel's; None on a real host."""
        return self.config.host_root if self._native.is_simulated else None

    def watched_directories(self) -> list[str]:
        """Directories, never in sysfs or procfs, whose entries come and go with devices."""
        return self._native.watched_directories()

    def findings_directories(self) -> list[str]:
        """Existing directories in which sources that are processes of their own write what they see."""
        return self._findings_files.directories()

    def _left_to_polls(self) -> list[Device]:
        """Devices that the last scan could not examine and said nothing against: nothing else would see them go."""
        unseen = ((entry, entry.unseen) for entry in self.inventory.entries.values())
        return [entry.device for entry, part in unseen if part is not None and part.finding is None]

    def _is_forgetting(self) -> bool:
        return any(entry.gone_since is not None for entry in self.inventory.entries.values())

    def _seen_without_looking(self) -> Seen:
        """What the last scan found wrong, CDI specs that could not be written, and what other processes see."""
        seen = Seen()
        for entry, findings in self._noted_by_the_scan():
            seen.add(entry.key, findings)
            if entry.unseen is not None:
                seen.not_looked[entry.key] = {ANY_SOURCE: "the last scan could not examine it"}
            elif entry.gone_since is not None:
                seen.not_looked[entry.key] = dict.fromkeys(EVENT_SOURCES, "it is gone")
        entries = self.inventory.entries.values()
        self.problems = self._cdi.take_in(seen)
        if self.config.mps_root is not None:
            shared = self._arrangement().shared_by_mps
            self.problems += mps.take_in(seen, shared, self.config.host_root, self.config.mps_root)
        device_dump.take_in(seen, entries, self.config.host_root)
        devlink.take_in(seen, self.devlink.reporters, entries, self.devlink.failed)
        self.problems += self.devlink.problems()
        said = self._findings_files.read([*OF_OPERATORS, *sorted(self.requests)], now(self.config))
        take_in(seen, said, entries, {f"{EXTERNAL}{one.name}": one.match for one in self.config.health.external})
        return seen

    def _noted_by_the_scan(self) -> list[tuple[Entry, list[Finding]]]:
        """The devices that the last scan found something wrong with, did not find or could not examine."""
        return self._standing.of(
            self.inventory.version,
            lambda: [
                (entry, entry.findings if entry.gone_since is None else [_gone()])
                for entry in self.inventory.entries.values()
                if not entry.is_found or entry.findings
            ],
        )

    def _edits_of(self, entry: Entry, resource_name: str) -> Edits | None:
        if self._beat:
            self._beat()
        return edits_by(self._native, self.inventory.platforms)(entry, resource_name)


def _gone() -> Finding:
    return Finding(
        source=INVENTORY, reason=GONE, detail="no scan finds the device any more; it is listed until it is forgotten"
    )


def _differing(before: Mapping[str, str], after: Mapping[str, str]) -> set[str]:
    return {vendor for vendor in before.keys() | after.keys() if before.get(vendor) != after.get(vendor)}
