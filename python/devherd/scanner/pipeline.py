"""The steps of the scanner: scan → inventory → findings → policy → rules. No loop, no spool."""

import contextlib
import time
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Generic, TypeVar

from devherd import spool
from devherd._native import Device, Edits, Finding, Look, Platform, Scan
from devherd.config.resolved import Config
from devherd.health import host
from devherd.health.findings import FindingsFiles, take_in
from devherd.health.held import ANY_SOURCE, Memory, Seen
from devherd.health.lost import Host, LostDevices, News, Vanished, orders_file, present
from devherd.health.policy import FINE, Earlier, Policy, Rules
from devherd.health.verdicts import held_messages
from devherd.inventory import DeviceKey, Entry, Inventory, key_of, not_examined
from devherd.offers import config_warnings, rules
from devherd.offers.device_plugin import DevicePluginOffers, EditsOf, Maker
from devherd.process import HOLDERS, LOOK_PERIOD_SECONDS
from devherd.proto import health_pb2, spool_pb2
from devherd.reasons.registry import (
    CORDONED,
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
from devherd.scanner.core import edits_by, edits_for, native_poller, native_scanner, now, refusals, vendor_options
from devherd.scanner.host_events import ANYTHING, DevlinkReader, HostChanges
from devherd.scanner.side_files import CdiSpecs
from devherd.sources.request import left_to_others, requests_for

Value = TypeVar("Value")


class Memo(Generic[Value]):
    """Keeps the last value and the key for which it was made."""

    def __init__(self) -> None:
        self._kept: tuple[Hashable, Value] | None = None

    def of(self, key: Hashable, make: Callable[[], Value]) -> Value:
        """The kept value if it was made for an equal key, otherwise a new one by `make`."""
        if self._kept is None or self._kept[0] != key:
            self._kept = key, make()
        return self._kept[1]


UNKNOWN_SECONDS = 30.0
"""How much longer than `forget_after` a device stays listed while nobody can say whether a pod holds it."""


@dataclass(frozen=True)
class NodeOffers:
    """The offers of `entries` under `config`, and the form that the device plugin serves."""

    config: Config
    entries: Collection[Entry]
    offers: rules.Offers
    device_plugin: DevicePluginOffers

    @cached_property
    def config_warnings(self) -> list[str]:
        """Effects of the configuration on this node that are probably mistakes, a line each."""
        return config_warnings.config_warnings(self.config, self.entries, self.offers)

    @cached_property
    def shared_by_mps(self) -> dict[str, list[DeviceKey]]:
        """The devices that are shared through NVIDIA's MPS control daemon, by resource name."""
        return {
            offer.name: keys
            for offer in self.offers.offers
            if (keys := [one.entry.key for one in offer.devices if one.by_mps])
        }


class _Makers:
    """What makes the offers under one configuration and with one set of platforms: only what changed is made again."""

    def __init__(self, config: Config, edits_of: EditsOf, processor_nodes: Callable[[], Collection[int]]) -> None:
        """`edits_of` returns a container's edits for a device and a resource name."""
        self._config = config
        self._arranger = rules.Arranger(config)
        self.messages = Maker(edits_of, config.mps_root or "", processor_nodes)

    def make(self, entries: Collection[Entry]) -> NodeOffers:
        """Apply the rules of the configuration to these devices."""
        offers = self._arranger.arrange(entries)
        return NodeOffers(self._config, entries, offers, self.messages.make(offers))


class Pipeline:
    """Makes offers from the host, and keeps the state that is needed between two looks.

    `inventory` and `earlier` were written by an earlier scanner. `nvml_answer` is the file that process `source:nvml`
    writes; without it NVML is not asked. `findings` is the directory of sources that run in separate processes.
    `holders` is the file of process `holders`, which runs while a device is gone. `lost` are devices that are missed.
    `beat` is called every half second while a card hangs, and between steps that take long with many devices.
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
        holders: Path | None = None,
        lost: LostDevices | None = None,
    ) -> None:
        self.config = config
        self._holders = holders
        self.lost = LostDevices() if lost is None else lost
        self.changes_in_silence = False
        """Whether the last scan has found a device that can become another without an event."""
        self._began: float | None = None
        """Monotonic second of the first scan."""
        self.lost_news: list[News] = []
        """What has become of lost devices since somebody took this."""
        self._configured = 1
        """Number of configurations used so far."""
        self._beat = beat
        self._nvml_answer = nvml_answer
        self._native = native_scanner(config, nvml_answer)
        self._poller = native_poller(config, self._native)
        self.inventory = inventory or Inventory()
        self.policy = Policy(config.health.recover_after)
        self._judge_by(config)
        earlier = earlier or Earlier()
        self.policy.restore(earlier, self.inventory.entries, now(config))
        self._memories: Sequence[Memory] = ()
        if earlier.boot_id == now(config).boot_id:
            self._memories = earlier.remembered.memories
            self._poller.recall(self._memories)
        self._findings = findings
        self._findings_files = FindingsFiles(findings)
        self._hears_of_findings = self._hears_of_devices = False
        self._look_at = 0.0
        """Monotonic second from which regular polls look again at what events report."""
        self._dumps: Sequence[tuple[str, Finding]] = ()
        self.devlink = DevlinkReader(self.simulated_node, config.scan.probe_timeout)
        self._devlink_cards = Memo[bool]()
        self.requests: dict[str, str] = {}
        """The request to each source that runs in a separate process, by source."""
        self._standing = Memo[list[tuple[Entry, list[Finding]]]]()
        self._cdi = CdiSpecs(config)
        self._strange: set[DeviceKey] = set(self.inventory.entries)
        """Devices that a source in FIRST_SIGHT_SOURCES has not looked at: its first look is the base for later ones."""
        self._reconfigured = _differing(self.inventory.vendor_options, vendor_options(config))
        self.problems: list[spool_pb2.Problem] = []
        """Problems of CDI specs and of looks at cards; those of the scan and of offers are kept elsewhere."""
        self._offered = Memo[NodeOffers]()
        self._makers = self._new_makers()
        self._made_for: tuple[int, Mapping[str, Platform]] = self._configured, {}

    def reconfigure(self, config: Config) -> None:
        """Use another configuration from the next scan on; what it does not change is kept."""
        changed = _differing(vendor_options(self.config), vendor_options(config))
        settings = config.native_json(self._nvml_answer)
        if settings != self.config.native_json(self._nvml_answer):
            with refusals():
                self._native.reconfigure(settings)
        self._poller.switch_off(set(config.health.sources_off))
        if config.cdi_directory != self.config.cdi_directory:
            self._cdi = CdiSpecs(config)
        self._reconfigured |= changed
        self._judge_by(config)
        self.config = config
        self._configured += 1

    def _judge_by(self, config: Config) -> None:
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
        scan = self._native.scan(self._beat)
        self.changes_in_silence = scan.changes_in_silence
        requests = scan.requests | requests_for(self.config, self._findings, now(self.config).boot_id)
        self.requests = {name: text for name, text in requests.items() if name not in self.config.health.sources_off}
        gone, held = self._gone_unseen(scan), self._held_and_gone(clock)
        self._forget_as_ordered()
        reconfigured = frozenset(self._reconfigured)
        before, platforms, version = self.inventory.entries, self.inventory.platforms, self.inventory.version
        if scan.changed or self._reconfigured or gone or self._is_forgetting():
            forget_after, left_out = self.config.health.forget_after, self._native.left_out
            self.inventory.observe(
                scan,
                clock,
                forget_after,
                self._reconfigured,
                left_out=left_out,
                gone=gone,
                held=held,
                forgotten=self.lost.forgotten,
            )
            self.inventory.use_options(vendor_options(self.config))
            self._reconfigured = set()
        if self.inventory.version != version:
            for key in before.keys() - self.inventory.entries.keys():
                if before[key].gone_since is not None:  # otherwise the configuration dropped it, and pods may hold it
                    self._cdi.withdraw(before[key], edits_by(self._native, platforms))
            self._strange = {key for key in self.inventory.entries if key in self._strange or key not in before}
            self.policy.forget_all_but(self.inventory.entries, now(self.config))
        if scan.changed or self.inventory.version != version:
            self._poller.watch(scan, self._left_to_polls())
        if self._is_forgetting() and self._holders is not None:
            self.requests[HOLDERS] = "{}"
        self._cdi.publish(self.inventory, self._edits_of)
        self.policy.note(self._seen_without_looking(), now(self.config))
        self._began = clock if self._began is None else self._began
        if self.lost or self._is_forgetting():
            host = Host(self.inventory.entries, scan.vendors, reconfigured, self._driver_at, time.time())
            self.lost_news += self.lost.observe(self._vanished(clock, held), host)
            if self.lost.is_waiting and clock - self._began >= self.config.health.forget_after:
                self.lost_news += self.lost.end_of_waiting(host)
        return scan

    @property
    def is_settled(self) -> bool:
        """Whether all is well as far as is known: nothing is held, gone, unexamined or awaited."""
        is_asked = self.config.mps_root is not None and MPS not in self.config.health.sources_off
        return not (
            self._strange
            or self.lost
            or self._noted_by_the_scan()
            or self.policy.holds_anything
            or (is_asked and self._node_offers().shared_by_mps)
        )

    def pause(self) -> float:
        """Seconds until a regular poll has something to look at."""
        return float(self._poller.pause())

    def restore(self) -> None:
        """Write removed CDI specs again."""
        self._cdi.publish(self.inventory, self._edits_of)

    def present(self) -> list[health_pb2.LostDevice]:
        """The devices that the next boot will miss if it does not find them."""
        offered = ((one.entry, offer.name) for offer in self._node_offers().offers.offers for one in offer.devices)
        return present(offered, self._cordoned())

    def _forget_as_ordered(self) -> None:
        if self.lost and self._findings is not None:
            with contextlib.suppress(OSError):  # no descriptor is left: the next scan reads it
                self.lost.forget(spool.read_or_empty(orders_file(self._findings), health_pb2.Forget).orders)

    def _vanished(self, clock: float, held: Mapping[DeviceKey, Sequence[str]]) -> Iterator[Vanished]:
        """The devices that are listed, gone, and Unhealthy for that."""
        verdicts, moment = self.policy.verdicts(), now(self.config)
        for offer in self._node_offers().offers.offers:
            for entry in (one.entry for one in offer.devices):
                if entry.gone_since is not None and GONE in verdicts.get(entry.key, FINE).reasons:
                    since = moment.wall - max(0.0, clock - entry.gone_since)
                    findings = held_messages(self.policy, entry.key, moment)
                    yield Vanished(entry, offer.name, since, held.get(entry.key, ()), findings)

    def _driver_at(self, address: str) -> str | None:
        """The driver of a PCI function: empty without one, None if there is no such function."""
        function = self.config.host_root / "sys/bus/pci/devices" / address
        if not address or not function.exists():
            return None
        try:
            return (function / "driver").readlink().name
        except OSError:
            return ""

    def poll(self, *, periodic: bool, changes: HostChanges = ANYTHING) -> None:
        """Poll the health of the known devices.

        A periodic poll looks at devices that are due, and lets devices recover. Another poll looks at devices that had
        an event, or at all devices if events were lost.
        """
        clock = time.monotonic()  # the events came before the looks, which may take long
        if self._has_devlink():
            self.devlink.look(self._beat)
        else:
            self.devlink.pause()
        seen = self._seen_without_looking(looks=not periodic or clock >= self._look_at)
        self._poller.leave_alone(left_to_others(seen))
        for key in self._strange:
            seen.not_looked.setdefault(key, {})
        for look in self._looks(periodic=periodic, changes=changes):
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
        self._strange = seen.unseen(self._strange, FIRST_SIGHT_SOURCES)
        if periodic:
            self.policy.observe(seen, now(self.config))
        else:
            self.policy.note(seen, now(self.config))
        if changes.events:
            self.note(host.seen_in_uevents(changes.events, self.inventory.entries.values(), clock))

    def reads_kernel_log(self, is_logged: bool) -> None:
        """Whether the kernel log is read: what it reports is polled less often then."""
        self._poller.reads_kernel_log(is_logged)

    def note(self, seen: Seen) -> None:
        """Apply kernel events and evidence from between two polls."""
        self.policy.note(seen, now(self.config))

    def memories(self) -> Sequence[Memory]:
        """The memories of the native scanner for its next process in this boot."""
        news = self._poller.new_memories()
        self._memories = self._memories if news is None else news
        return self._memories

    def new_counts(self) -> list[health_pb2.Count] | None:
        """Counts of the native sources that are no findings; None if no source has looked since the last call."""
        counts = self._poller.new_counts()
        if counts is None:
            return None
        return [
            health_pb2.Count(pci_address=address, ibdev=ibdev, part=part, name=name, kind=kind, number=number)
            for address, ibdev, part, name, kind, number in counts
        ]

    def read_devlink(self) -> None:
        """Apply the notifications of devlink since the last call."""
        if self.devlink.receive():
            seen = Seen()
            host.take_in_devlink(seen, self.devlink.reporters, self.inventory.entries.values(), self.devlink.failed)
            self.note(seen)

    def _has_devlink(self) -> bool:
        """Whether there is a card that may have devlink health reporters."""
        entries = self.inventory.entries.values()
        return DEVLINK not in self.config.health.sources_off and self._devlink_cards.of(
            self.inventory.version,
            lambda: any(entry.gone_since is None and host.is_network_card(entry) for entry in entries),
        )

    def _looks(self, *, periodic: bool, changes: HostChanges) -> list[Look]:
        if periodic:
            held = self.policy.all_held()
            awaited = [(key, {one.finding.source for one in all_held}) for key, all_held in held]
            return self._poller.poll_due(awaited, self._beat)
        if changes:
            self._native.forget()
        if changes.lost:
            return self._poller.poll(self._beat)
        return self._poller.poll_named(changes.places, changes.nodes, self._beat)

    def offers(self) -> DevicePluginOffers:
        """The offers under the configuration, with verdicts. One that has not changed is the same object."""
        made = self._node_offers().device_plugin
        return self._makers.messages.judge(made, self.policy.verdicts())

    def config_warnings(self) -> list[str]:
        """Effects of the configuration on this node that are probably mistakes, a line each."""
        return self._node_offers().config_warnings

    def _node_offers(self) -> NodeOffers:
        return self._offered.of(self.known, self._make_offers)

    def _make_offers(self) -> NodeOffers:
        made_for = self._configured, self.inventory.platforms
        if made_for != self._made_for:
            self._makers, self._made_for = self._new_makers(), made_for
        return self._makers.make(self.inventory.entries.values())

    def _new_makers(self) -> _Makers:
        return _Makers(self.config, self._edits_of, self._native.processor_nodes)

    def present_for(self) -> object:
        """Changes whenever `present` returns something else."""
        return self.known, self._cordoned()

    def _cordoned(self) -> list[DeviceKey]:
        return [key for key, verdict in self.policy.verdicts().items() if CORDONED in verdict.reasons]

    @property
    def known(self) -> tuple[int, int]:
        """Changes with the inventory and with the configuration."""
        return self._configured, self.inventory.version

    def fingerprint(self) -> object:
        """Changes whenever `offers` returns something else."""
        return self.known, self.policy.verdicts()

    @property
    def simulated_node(self) -> Path | None:
        """The simulated node whose events replace the kernel's; None on a real host."""
        return self.config.host_root if self._native.is_simulated else None

    def watched_directories(self) -> list[str]:
        """Directories, never in sysfs or procfs, whose entries are created and removed with devices."""
        return self._native.watched_directories()

    def findings_directories(self) -> list[str]:
        """Existing directories into which sources in separate processes write findings."""
        return self._findings_files.directories()

    def _left_to_polls(self) -> list[Device]:
        """Devices that the last scan could not examine, without a finding: only a poll notices their removal."""
        unseen = ((entry, entry.unseen) for entry in self.inventory.entries.values())
        return [entry.device for entry, part in unseen if part is not None and part.finding is None]

    def _gone_unseen(self, scan: Scan) -> set[DeviceKey]:
        """The devices that the scan could not examine and that are gone all the same."""
        unseen = not_examined(scan, self.inventory.entries)
        are_gone = self._native.are_gone([entry.device for entry in unseen]) if unseen else []
        return {entry.key for entry, is_gone in zip(unseen, are_gone, strict=True) if is_gone}

    def _held_and_gone(self, clock: float) -> dict[DeviceKey, list[str]]:
        """The devices that were gone before this scan and that pods hold, as far as is known, each with its pods.

        Before the first answer, for UNKNOWN_SECONDS at most after a device was to be forgotten, each may be held; as
        long as it cannot be read for lack of descriptors, too.
        """
        if self._holders is None or not self._is_forgetting():
            return {}
        gone = ((key, entry.gone_since) for key, entry in self.inventory.entries.items())
        if not self._holders.exists():
            limit = self.config.health.forget_after + UNKNOWN_SECONDS
            return {key: [] for key, since in gone if since is not None and clock - since < limit}
        try:
            answer = spool.read_or_empty(self._holders, spool_pb2.Holders)
        except OSError:
            return {key: [] for key, since in gone if since is not None}
        pods = {(one.resource_name, one.device_id): one.pods for one in answer.devices}
        held: dict[DeviceKey, list[str]] = {}
        for offer in self._node_offers().device_plugin.offers if pods else ():
            for device_id, device in spool.listed(offer):
                if (offer.name, device_id) in pods:
                    of_device = held.setdefault(key_of(device), [])
                    of_device += [pod for pod in pods[offer.name, device_id] if pod not in of_device]
        return held

    def _is_forgetting(self) -> bool:
        return self.inventory.has_gone

    def hears(self, *, of_findings: bool, of_devices: bool) -> None:
        """Whether a change of findings' files, and an event of a device, make a poll that is no regular one."""
        self._hears_of_findings, self._hears_of_devices = of_findings, of_devices

    def _device_dumps(self, *, looks: bool) -> Sequence[tuple[str, Finding]]:
        if looks or not self._hears_of_devices:
            self._dumps = ()
            self._dumps = self._poller.device_dumps(self._beat)
        return self._dumps

    def _seen_without_looking(self, *, looks: bool = True) -> Seen:
        """Findings of the last scan, of CDI specs that cannot be written, and of sources outside this process.

        Without `looks`, what events would have reported is as it was.
        """
        seen = Seen()
        if looks:
            self._look_at = time.monotonic() + LOOK_PERIOD_SECONDS
        for entry, findings in self._noted_by_the_scan():
            seen.add(entry.key, findings)
            if entry.unseen is not None:
                seen.not_looked[entry.key] = {ANY_SOURCE: "the last scan could not examine it"}
            elif entry.gone_since is not None:
                seen.not_looked[entry.key] = dict.fromkeys(EVENT_SOURCES, "it is gone")
        entries = self.inventory.entries.values()
        self.problems = self._cdi.take_in(seen)
        off = self.config.health.sources_off
        if self.config.mps_root is not None and MPS not in off:
            shared = self._node_offers().shared_by_mps
            self.problems += host.take_in_mps(seen, shared, self.config.host_root, self.config.mps_root)
        if DEVICE_DUMP not in off:
            host.take_in_device_dumps(seen, entries, lambda: self._device_dumps(looks=looks))
        host.take_in_devlink(seen, self.devlink.reporters, entries, self.devlink.failed)
        self.problems += self.devlink.problems()
        sources = [*OF_OPERATORS, *sorted(self.requests)]
        reads = looks or not self._hears_of_findings
        reported = self._findings_files.read(sources, now(self.config), looks=reads)
        take_in(
            seen, reported, entries, {f"{EXTERNAL_PREFIX}{one.name}": one.match for one in self.config.health.external}
        )
        for (_, card, _), reason in self.policy.newly_cleared(seen):
            self._poller.forget_best(card, reason)
        return seen

    def _noted_by_the_scan(self) -> list[tuple[Entry, list[Finding]]]:
        """The devices for which the last scan has findings, or that it did not find or could not examine."""
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
        return edits_for(self._native, self.inventory.platforms, entry, resource_name)


def _gone() -> Finding:
    return Finding(
        source=INVENTORY, reason=GONE, detail="no scan finds the device any more; it is listed until it is forgotten"
    )


def _differing(before: Mapping[str, str], after: Mapping[str, str]) -> set[str]:
    return {vendor for vendor in before.keys() | after.keys() if before.get(vendor) != after.get(vendor)}
