"""One scan and one poll of the host, without a running instance and without changing anything."""

from dataclasses import dataclass, field

from devherd.config.host import first_answer, nvml_answers
from devherd.config.resolved import Config
from devherd.health.held import Held
from devherd.health.policy import Policy
from devherd.health.rules import Rules
from devherd.health.seen import Seen
from devherd.inventory import DeviceKey, Inventory
from devherd.offers import device_plugin, doubts, rules
from devherd.proto import spool_pb2
from devherd.scanner.left_out import left_out
from devherd.scanner.moment import now
from devherd.scanner.scan_core import edits_by, native_scanner, problem_messages, settled_looks


@dataclass(frozen=True, slots=True)
class ScanReport:
    """The result of one scan: resources and problems, and the rule of each device."""

    resources: list[spool_pb2.Resource]
    problems: list[spool_pb2.Problem]
    duration_seconds: float
    rules: dict[DeviceKey, str] = field(default_factory=dict)
    sources: dict[DeviceKey, dict[str, str]] = field(default_factory=dict)
    held: dict[DeviceKey, list[Held]] = field(default_factory=dict)
    """The verdicts on the devices, with the evidence."""
    vendors: list[str] = field(default_factory=list)
    """Those that were asked."""
    inventory: Inventory = field(default_factory=Inventory)
    nvml_answer: bytes = b""
    """What NVML said, where it was asked: an answer file (rust/src/nvml/answer.rs)."""
    notices: list[spool_pb2.Problem] = field(default_factory=list)
    """What is no problem and still to be said."""
    doubts: list[str] = field(default_factory=list)
    """What the configuration does on this node that nobody can have meant."""


def scan_once(config: Config) -> ScanReport:
    """One scan of the host; changes nothing. NVML is asked first if the scan needs it."""
    from devherd.health.sources.nvml.once import AnswerOnce  # noqa: PLC0415 - the scanner has no need of it

    with AnswerOnce() as answer:
        native = native_scanner(config, answer.file)
        scan = native.scan()
        if answer.ask(scan.requests):
            scan = native.scan()
        nvml_answer = first_answer(nvml_answers(config.host_root, answer.file))
    inventory = Inventory()
    inventory.observe(scan, 0.0, config.health.forget_after)
    policy = Policy(config.health.recover_after)
    policy.use(config.health.recover_after, Rules(config.health.rules, inventory).meaning_of)
    seen = Seen({key: entry.findings for key, entry in inventory.entries.items()})
    for look in settled_looks(native):
        seen.add((look.vendor, look.card, look.id), look.findings)
    policy.note(seen, now(config))
    offers = rules.arrange(config, inventory.entries.values())
    edits_of = edits_by(native, inventory.platforms)
    made = device_plugin.resources(offers, edits_of, config.mps_root or "").judged(policy.verdicts())
    return ScanReport(
        resources=made.resources,
        problems=problem_messages(scan, config, inventory.entries.values()) + made.problems,
        duration_seconds=scan.duration_seconds,
        rules=made.rules,
        sources={(device.vendor, device.card, device.id): device.sources for device in scan.devices},
        held=dict(policy.all_held()),
        vendors=scan.vendors,
        inventory=inventory,
        nvml_answer=nvml_answer,
        notices=left_out(config, inventory.entries.values()),
        doubts=doubts.doubts(config, inventory.entries.values(), offers),
    )
