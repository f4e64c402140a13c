"""The scanner's way of the data in one place: scan → inventory → findings → policy → rules. No loop, no spool."""

import functools
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import repeat
from pathlib import Path

from devherd._native import Device, Edits, Finding, Look, Scan
from devherd.cdi import spec
from devherd.cdi.directory import CdiDirectory
from devherd.config.resolved import Config
from devherd.health.findings_files import FindingsFiles, take_in
from devherd.health.policy import Earlier, Policy
from devherd.health.registry import (
    CDI,
    CDI_UNWRITABLE,
    EVENT_SOURCES,
    FIRST_SIGHT_SOURCES,
    GONE,
    INVENTORY,
    OF_OPERATORS,
)
from devherd.health.remembered import Memory
from devherd.health.rules import Rules
from devherd.health.seen import ANY_SOURCE, Now, Seen
from devherd.health.sources import EXTERNAL, device_dump, devlink, mps, uevents
from devherd.health.sources.order import left_to_others, requests_for
from devherd.inventory import DeviceKey, Entry, Inventory
from devherd.offers import device_plugin, doubts, rules
from devherd.proto import health_pb2, spool_pb2
from devherd.scanner.devlink import DevlinkReader
from devherd.scanner.host_events import ANYTHING, Happened
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
        self._is_devlink_there = False
        self._devlink_for = -1  # no version of the inventory
        self.requests: dict[str, str] = {}
        """What each source that is a process of its own is to be asked, by source."""
        self._standing: list[tuple[Entry, list[Finding]]] = []
        self._standing_for = -1  # no version of the inventory
        self._cdi = CdiDirectory(config.cdi_directory, config.host_root)
        self._cdi_for = -1  # no version of the inventory
        self._unwritable: dict[str, OSError] = {}
        self._strange: set[DeviceKey] = set(self.inventory.entries)
        """Devices that not every source has looked at of those whose first look is a base to compare with."""
        self._reconfigured = _differing(self.inventory.vendor_options, vendor_options(config))
        self.problems: list[spool_pb2.Problem] = []
        """What neither the scan nor the naming of resources meets: CDI specs that cannot be written, and cards that
        could not be looked at.
        """
        self._arranged = device_plugin.Resources()
        self._arranged_for: tuple[int, int] | None = None
        self._doubts: list[str] = []
        self._doubted_for: tuple[int, int] | None = None
        self._offers = rules.Offers()
        self._by_mps: dict[str, list[DeviceKey]] = {}
        """By resource: the devices that it shares through NVIDIA's MPS control daemon."""

    def reconfigure(self, config: Config) -> None:
        """Use another configuration from the next scan on; what it does not change is left alone."""
        changed = _differing(vendor_options(self.config), vendor_options(config))
        settings = config.native_json(self._nvml_answer)
        if settings != self.config.native_json(self._nvml_answer):
            with refusals():
                self._native.reconfigure(settings)
        if config.cdi_directory != self.config.cdi_directory:
            self._cdi = CdiDirectory(config.cdi_directory, config.host_root)
            self._cdi_for = -1
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
                    self._cdi.withdraw(
                        _specs(edits_by(self._native, platforms)(before[key], before[key].resource_name))
                    )
            self._strange = {key for key in self.inventory.entries if key in self._strange or key not in before}
            self._native.watch_also(self._left_to_polls())
            self.policy.forget_all_but(self.inventory.entries, now(self.config))
        self._unwritable = self._publish_cdi()
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
        if self._devlink_for != self.inventory.version:
            entries = self.inventory.entries.values()
            self._is_devlink_there = any(entry.gone_since is None and devlink.may_speak_of(entry) for entry in entries)
            self._devlink_for = self.inventory.version
        return self._is_devlink_there

    def _looks(self, *, periodic: bool, happened: Happened) -> list[Look]:
        if periodic:
            held = self.policy.all_held()
            awaited = [(key, {one.finding.source for one in all_held}) for key, all_held in held]
            return self._native.poll_due(awaited, self._beat)
        if happened.lost:
            return self._native.poll(self._beat)
        return self._native.poll_named(happened.places, happened.nodes, self._beat)

    def resources(self) -> device_plugin.Resources:
        """The resources that result under the configuration. Health changes often, the rest seldom."""
        return self._arrange().judged(self.policy.verdicts())

    def _arrange(self) -> device_plugin.Resources:
        arranged_for = self.known
        if arranged_for != self._arranged_for:
            self._offers = offers = rules.arrange(self.config, self.inventory.entries.values())
            self._arranged = device_plugin.resources(offers, self._edits_of, self.config.mps_root or "")
            self._by_mps = {
                offer.name: keys
                for offer in offers.offers
                if (keys := [one.entry.key for one in offer.devices if one.by_mps])
            }
            self._arranged_for = arranged_for
        return self._arranged

    def doubts(self) -> list[str]:
        """What the configuration does on this node that nobody can have meant."""
        self._arrange()
        if self._doubted_for != self._arranged_for:
            self._doubts = doubts.doubts(self.config, self.inventory.entries.values(), self._offers)
            self._doubted_for = self._arranged_for
        return self._doubts

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
        self.problems = []
        entries = self.inventory.entries.values()
        for entry in entries if self._unwritable else ():
            errors = [self._unwritable[name] for name in self._specs_of(entry) if name in self._unwritable]
            if errors:
                seen.add(entry.key, [_cdi_finding(errors[0])])
                self.problems.append(_cdi_problem(entry, errors[0]))
        if self.config.mps_root is not None:
            self._arrange()
            self.problems += mps.take_in(seen, self._by_mps, self.config.host_root, self.config.mps_root)
        device_dump.take_in(seen, entries, self.config.host_root)
        devlink.take_in(seen, self.devlink.reporters, entries, self.devlink.failed)
        self.problems += self.devlink.problems()
        said = self._findings_files.read([*OF_OPERATORS, *sorted(self.requests)], now(self.config))
        take_in(seen, said, entries, {f"{EXTERNAL}{one.name}": one.match for one in self.config.health.external})
        return seen

    def _noted_by_the_scan(self) -> list[tuple[Entry, list[Finding]]]:
        """The devices that the last scan found something wrong with, did not find or could not examine."""
        if self._standing_for != self.inventory.version:
            found = ((entry, entry.findings) for entry in self.inventory.entries.values())
            self._standing = [
                (entry, findings if entry.gone_since is None else [_gone()])
                for entry, findings in found
                if findings or entry.gone_since is not None or entry.unseen is not None
            ]
            self._standing_for = self.inventory.version
        return self._standing

    def _publish_cdi(self) -> dict[str, OSError]:
        """Bring the CDI specs up to date: which names' specs cannot be written, and why."""
        if self._cdi_for != self.inventory.version:
            entries = sorted(self.inventory.entries.values(), key=lambda entry: bool(entry.findings))
            known: dict[str, spec.ContainerEdits] = {}
            self._cdi.want(
                [self._brought(entry, known) for entry in entries if entry.gone_since is None],
                [self._brought(entry, known) for entry in entries if entry.gone_since is not None],
            )
            self._cdi_for = self.inventory.version
        return self._cdi.publish()

    def _brought(self, entry: Entry, known: dict[str, spec.ContainerEdits]) -> dict[str, spec.ContainerEdits]:
        """What a device brings by CDI; what it has in common with those before it is made once."""
        specs = self._specs_of(entry)
        for name, edits in specs.items():
            if name not in known:
                known[name] = spec.container_edits(edits)
        return {name: known[name] for name in specs}

    def _edits_of(self, entry: Entry, resource_name: str) -> Edits | None:
        if self._beat:
            self._beat()
        return edits_by(self._native, self.inventory.platforms)(entry, resource_name)

    def _specs_of(self, entry: Entry) -> Mapping[str, Edits]:
        return _specs(self._edits_of(entry, entry.resource_name))


def now(config: Config) -> Now:
    """This moment on the host."""
    return Now(time.time(), time.monotonic(), _boot_id(config.host_root))


@functools.cache
def _boot_id(host_root: Path) -> str:
    """Empty where the host has none: a simulated node."""
    try:
        return (host_root / "proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _specs(edits: Edits | None) -> Mapping[str, Edits]:
    return edits.specs if edits else {}


def _gone() -> Finding:
    return Finding(
        source=INVENTORY, reason=GONE, detail="no scan finds the device any more; it is listed until it is forgotten"
    )


def _cdi_finding(error: OSError) -> Finding:
    return Finding(
        source=CDI,
        reason=CDI_UNWRITABLE,
        detail="the CDI spec that names the device cannot be written",
        file=str(error.filename or ""),
        value=error.strerror or str(error),
    )


def _cdi_problem(entry: Entry, error: OSError) -> spool_pb2.Problem:
    return spool_pb2.Problem(
        vendor=entry.vendor,
        path=str(error.filename or ""),
        error=f"the CDI spec cannot be written: {error.strerror or error}",
        device=entry.device.id,
    )


def _differing(before: Mapping[str, str], after: Mapping[str, str]) -> set[str]:
    return {vendor for vendor in before.keys() | after.keys() if before.get(vendor) != after.get(vendor)}
