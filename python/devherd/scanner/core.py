"""The native scanner and poller for a configuration, and their results as spool messages."""

import json
import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from devherd._native import Device, Edits, Look, Platform, Poller, Problem, Scan, Scanner, vendors
from devherd.config.resolved import DEVICE_PLUGIN_ALONE, ResolvedConfig
from devherd.errors import UsageError
from devherd.health.kernel_log import LastWords
from devherd.inventory import CLASSES, DEVICE_PLUGIN, OFFERED_BY_ALL, Entry, class_key
from devherd.offers import rules
from devherd.proto import spool_pb2
from devherd.text import amount

log = logging.getLogger(__name__)

SECOND_LOOK_SECONDS = 1.0
LONG_SCAN_SECONDS = 1.0
"""A scan that takes longer is logged at debug even if nothing has changed."""


def native_scanner(config: ResolvedConfig, nvml_answer: Path | None = None) -> Scanner:
    """The native scanner with the settings of the configuration. Raises UsageError when it rejects them."""
    with refusals():
        return Scanner(str(config.host_root.absolute()), config.native_json(nvml_answer))


@contextmanager
def refusals() -> Iterator[None]:
    """Turn the native scanner's ValueError into UsageError."""
    try:
        yield
    except ValueError as error:
        raise UsageError("the scan core refuses the configuration", str(error), "report this as a defect") from error


def native_poller(config: ResolvedConfig, scanner: Scanner) -> Poller:
    """The native poller with the health sources of the configuration."""
    poller = Poller(scanner)
    poller.switch_off(set(config.health.sources_off))
    return poller


def settled_looks(poller: Poller) -> list[Look]:
    """Poll all devices; if a look is unsure, poll again after SECOND_LOOK_SECONDS and return the second result."""
    looks = poller.poll()
    if any(look.is_unsure for look in looks):
        time.sleep(SECOND_LOOK_SECONDS)
        looks = poller.poll()
    return looks


def left_out_by(config: ResolvedConfig, native: Scanner) -> Callable[[Device], Mapping[str, str]]:
    """Why a device is not offered although no rule says so, by each way in use that does not offer it."""

    def why(device: Device) -> Mapping[str, str]:
        answers = {way: answer for way in config.ways if (answer := native.left_out(device, way)) is not None}
        if not answers:  # as of almost all
            return OFFERED_BY_ALL
        is_named = any(unless_named for _, unless_named in answers.values()) and rules.is_named(config, device)
        return {way: reason for way, (reason, unless_named) in answers.items() if not (unless_named and is_named)}

    return why


def vendor_options(config: ResolvedConfig) -> dict[str, str]:
    """The options as JSON: of each vendor by its name, of each device class by `class_key`.

    Where the ways in use decide what a vendor's scan finds, they are among its options, unless the device plugin is the
    only one.
    """
    sections = json.loads(config.native_json())["vendors"]
    options = {row.name: sections[row.section] for row in vendors() if row.name != CLASSES}
    if config.ways != DEVICE_PLUGIN_ALONE:
        options |= {row.name: [options[row.name], sorted(config.ways)] for row in vendors() if row.uses_ways}
    options |= {class_key(one["name"]): one for one in sections[CLASSES]}
    return {name: json.dumps(one, sort_keys=True) for name, one in options.items()}


def problem_messages(
    scan: Scan, config: ResolvedConfig, known: Iterable[Entry], last_words: LastWords | None = None
) -> list[spool_pb2.Problem]:
    """The problems of a scan as spool messages; with what drivers have said of functions that are no device.

    Includes vendors that are enabled and have no device, and cards without a driver. A card without a driver that
    belongs to a known device is left out: there it is a finding.
    """
    entries = list(known)
    problems = _messages([*scan.problems, *_strange(scan.driverless, entries)], last_words or LastWords())
    reported = {problem.vendor for problem in problems} | scan.vendors_with_devices
    reported |= {part.vendor for part in scan.unseen}
    noted = {problem.vendor for problem in _strange(scan.not_offered, entries)}
    return [*problems, *_absences(config, reported, noted)]


def notice_messages(scan: Scan, known: Iterable[Entry]) -> list[spool_pb2.Problem]:
    """Notes on hardware that is not offered, possibly on purpose, as spool messages."""
    return _messages(_strange(scan.not_offered, known), LastWords())


def _strange(of_functions: Iterable[Problem], known: Iterable[Entry]) -> list[Problem]:
    """The problems that do not concern a PCI function of a known device."""
    problems = list(of_functions)
    if not problems:
        return []
    addresses = {address for entry in known if entry.pci_address for address in entry.pci_address.split(",")}
    return [problem for problem in problems if problem.device is None or problem.device not in addresses]


def _messages(problems: Iterable[Problem], last_words: LastWords) -> list[spool_pb2.Problem]:
    return [
        spool_pb2.Problem(
            vendor=problem.vendor,
            path=problem.path,
            error=_with_last_words(problem, last_words),
            device=problem.device or "",
        )
        for problem in problems
    ]


def _with_last_words(problem: Problem, last_words: LastWords) -> str:
    """The problem; what the driver has said stands in place of a cure that is only a guess."""
    if problem.refusal is None or problem.device is None:
        return problem.error
    what, is_bound = problem.refusal
    said = last_words.about(problem.vendor, problem.device, is_bound=is_bound)
    return f"{what}: the kernel log says {', '.join(f'`{text}`' for text in said)}" if said else problem.error


def _absences(config: ResolvedConfig, reported: Collection[str], noted: Collection[str]) -> Iterator[spool_pb2.Problem]:
    for section, options in config.vendors.items():
        vendor = section.replace("_", "-")
        if options.enabled is True and vendor not in reported:
            cure = "the notes say what drives them" if vendor in noted else "check that its driver is loaded"
            error = f"`vendors.{section}.enabled` is true, but no device was found: {cure}"
            yield spool_pb2.Problem(vendor=vendor, path="/sys", error=error)


def log_scan(scan: Scan) -> None:
    """Log the duration of a scan and the numbers of devices, problems and unexamined parts, if anything is new."""
    if not (scan.changed or scan.duration_seconds > LONG_SCAN_SECONDS):
        return
    of_vendors = Counter(device.vendor for device in scan.devices)
    found = ", ".join(f"{count} {vendor}" for vendor, count in sorted(of_vendors.items())) or "no devices"
    parts = [amount(len(scan.problems), "problem"), *([f"{len(scan.unseen)} not examined"] if scan.unseen else [])]
    change = "something changed" if scan.changed else "nothing changed"
    log.debug("scanned in %.1f ms: %s; %s; %s", scan.duration_seconds * 1000, found, ", ".join(parts), change)


def edits_for(
    native: Scanner,
    platforms: Mapping[str, Platform],
    mps_root: str | None,
    entry: Entry,
    resource_name: str,
    *,
    way: str = DEVICE_PLUGIN,
    by_mps: bool = False,
) -> Edits | None:
    """The container edits of a device by a way, under a resource name; None if its vendor is switched off.

    `platforms`: by vendor, what its devices have in common. `mps_root`: the directory of NVIDIA's Multi-Process
    Service, for a device that containers share through it (`by_mps`).
    """
    return native.edits(entry.device, platforms.get(entry.key[0]), way, resource_name, mps_root if by_mps else None)
