"""One scan and one poll of the host, without a running instance and without changing anything."""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from devherd._native import ClassEntry, Device, Edits, Look, Problem, Scan, Scanner, boot_id
from devherd.config.resolved import ResolvedConfig
from devherd.health.held import Held, Now, Seen
from devherd.health.policy import Policy, Rules, Verdict
from devherd.inventory import CLASSES, DeviceKey, Inventory
from devherd.offers.config_warnings import left_out
from devherd.proto import health_pb2, spool_pb2
from devherd.scanner.core import (
    left_out_by,
    native_poller,
    native_scanner,
    notice_messages,
    problem_messages,
    settled_looks,
)
from devherd.scanner.kernel_log import last_words_of_boot
from devherd.scanner.offering import Offering


@dataclass(frozen=True, slots=True)
class ClassReport:
    """What device classes find on a host, and nothing else does."""

    devices: list[Device]
    edits: list[Edits]
    """What a container gets for each of them."""
    problems: list[Problem]
    notices: list[Problem]
    """Devices that are left out because another has their node or id, and entries that several classes fit."""
    entries: list[ClassEntry]
    """What became of each entry that the classes looked at, if that was asked."""
    looks: list[Look]
    """What health checks see of the devices, if that was asked."""


def scan_classes(
    config: ResolvedConfig, classes: Sequence[Mapping[str, Any]], *, with_entries: bool = False
) -> ClassReport:
    """Scan the host once for these classes, in the form of `DeviceClass.native`; changes nothing.

    `with_entries` is for people who write a class: they also learn which devices another vendor has.
    """
    settings = json.loads(config.native)
    for section, options in settings["vendors"].items() if not with_entries else ():
        if isinstance(options, dict):
            options["enabled"] = False
        else:
            settings["vendors"][section] = []
    settings["vendors"][CLASSES] = list(classes)
    config = replace(config, native=json.dumps(settings))
    native = native_scanner(config)
    scan = native.scan()
    platform = scan.platforms.get(CLASSES)
    devices = [one for one in scan.devices if one.vendor == CLASSES]
    found = [(one, native.edits(one, platform, "device-plugin", one.resource_name or "")) for one in devices]
    given = [(one, edits) for one, edits in found if edits is not None]
    entries = native.class_entries() if with_entries else []
    looks = [one for one in _looks(config, native, scan) if one.vendor == CLASSES] if with_entries else []
    problems, notices = ([one for one in some if one.vendor == CLASSES] for some in (scan.problems, scan.not_offered))
    return ClassReport([one for one, _ in given], [edits for _, edits in given], problems, notices, entries, looks)


def _looks(config: ResolvedConfig, native: Scanner, scan: Scan) -> list[Look]:
    poller = native_poller(config, native)
    poller.watch(scan, [])
    return settled_looks(poller)


@dataclass(frozen=True, slots=True)
class ScanReport:
    """The result of one scan: offers and problems, and the rule of each device."""

    offers: list[spool_pb2.Offer]
    problems: list[spool_pb2.Problem]
    duration_seconds: float
    rules: dict[DeviceKey, str] = field(default_factory=dict)
    sources: dict[DeviceKey, dict[str, str]] = field(default_factory=dict)
    held: dict[DeviceKey, list[Held]] = field(default_factory=dict)
    """The verdicts on the devices, with the evidence."""
    judged: Mapping[DeviceKey, Verdict] = field(default_factory=dict)
    """The same in words: of each device against which something counts."""
    vendors: list[str] = field(default_factory=list)
    """The vendors that were looked for."""
    inventory: Inventory = field(default_factory=Inventory)
    notices: list[spool_pb2.Problem] = field(default_factory=list)
    """Notes for users that are not problems."""
    config_warnings: list[str] = field(default_factory=list)
    """Effects of the configuration on this node that are probably mistakes."""
    instance: str = ""
    """The run directory of the instance whose verdicts are in the offers, too; empty without one."""
    verdicts: Mapping[DeviceKey, Sequence[health_pb2.Held]] = field(default_factory=dict)
    """What that instance holds against the devices."""


def scan_once(config: ResolvedConfig) -> ScanReport:
    """Scan the host once; changes nothing. If the scan needs facts from NVML, it is repeated with them."""
    from devherd.sources.nvml.main import AnswerOnce  # noqa: PLC0415 - the scanner has no need of it

    with AnswerOnce() as answer:
        native = native_scanner(config, answer.file)
        scan = native.scan()
        if answer.ask(scan.requests):
            scan = native.scan()
    inventory = Inventory()
    inventory.observe(scan, 0.0, config.health.forget_after, left_out=left_out_by(config, native))
    policy = Policy(config.health.recover_after)
    policy.use(config.health.recover_after, Rules(config.health.rules, inventory).meaning_of)
    seen = Seen({key: entry.findings for key, entry in inventory.entries.items()})
    for look in _looks(config, native, scan):
        seen.add((look.vendor, look.card, look.id), look.findings)
    policy.note(seen, Now(time.time(), time.monotonic(), boot_id(str(config.host_root))))
    offering = Offering(config, native, inventory)
    offers = offering.without_health().offers
    is_refused = any(problem.refusal for problem in (*scan.problems, *scan.driverless))
    last_words = last_words_of_boot(config, simulated=native.is_simulated) if is_refused else None
    made = offering.judged(policy.verdicts())
    return ScanReport(
        offers=made.offers,
        problems=[*problem_messages(scan, config, inventory.entries.values(), last_words), *made.problems],
        duration_seconds=scan.duration_seconds,
        rules=offers.rules,
        sources={(device.vendor, device.card, device.id): device.sources for device in scan.devices},
        held=dict(policy.all_held()),
        judged=policy.verdicts(),
        vendors=scan.vendors,
        inventory=inventory,
        notices=[*notice_messages(scan, inventory.entries.values()), *left_out(inventory.entries.values(), config.way)],
        config_warnings=offering.without_health().config_warnings,
    )
