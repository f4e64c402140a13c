"""The scanner's way of the data in one place: scan → inventory → health → resources. No loop, no spool, no metrics."""

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from devherd._native import Scan, Scanner
from devherd.config import Config
from devherd.errors import UsageError
from devherd.proto import spool_pb2
from devherd.scanner import resources
from devherd.scanner.cdi import UNWRITABLE, CdiDirectory
from devherd.scanner.health import Health
from devherd.scanner.inventory import GONE, DeviceKey, Entry, Inventory

Faults = dict[DeviceKey, set[str]]


@dataclass(frozen=True, slots=True)
class ScanReport:
    """One scan, told whole: what it makes of the host, and why each device is where it is."""

    resources: list[spool_pb2.Resource]
    problems: list[spool_pb2.Problem]
    duration_seconds: float
    rules: dict[DeviceKey, str] = field(default_factory=dict)
    sources: dict[DeviceKey, dict[str, str]] = field(default_factory=dict)


class Pipeline:
    """From the host to resources, with what must be remembered between two looks.

    `known` and `known_options` are what an earlier scanner left in the spool.
    """

    def __init__(
        self,
        config: Config,
        known: Iterable[spool_pb2.Resource] = (),
        known_options: Mapping[str, str] | None = None,
    ) -> None:
        self.config = config
        self._native = native_scanner(config)
        self._inventory = Inventory.restored(known)
        self._health = Health(config.health.recover_after)
        self._health.restore((key, entry.reasons) for key, entry in self._inventory.entries.items())
        self._cdi = CdiDirectory(cdi_directory(config), config.host_root)
        self._cdi_for = -1  # no version of the inventory
        self._reconfigured = _differing(known_options or {}, vendor_options(config))
        self.problems: list[spool_pb2.Problem] = []
        """What neither the scan nor the naming of resources meets: CDI specs that cannot be written."""
        self._arranged = resources.Resources()
        self._arranged_for: tuple[int, int] | None = None

    def reconfigure(self, config: Config) -> None:
        """Use another configuration from the next scan on; what it does not change is left alone."""
        changed = _differing(vendor_options(self.config), vendor_options(config))
        if changed or config.scan.probe_timeout != self.config.scan.probe_timeout:
            with _refusals():
                self._native.reconfigure(config.native_json())
        if cdi_directory(config) != cdi_directory(self.config):
            self._cdi = CdiDirectory(cdi_directory(config), config.host_root)
            self._cdi_for = -1
        self._reconfigured |= changed
        self._health.recover_after = config.health.recover_after
        self.config = config

    def scan(self, now: float) -> Scan:
        """Look at the whole host at monotonic second `now`; what is found wrong counts at once."""
        scan = self._native.scan()
        if scan.changed or self._reconfigured or self._is_forgetting():
            before = self._inventory.entries
            self._inventory.observe(scan, now, self.config.health.forget_after, self._reconfigured)
            self._reconfigured = set()
            for key in before.keys() - self._inventory.entries.keys():
                if before[key].gone_since is not None:  # otherwise pods may hold it: the configuration let go of it
                    self._cdi.withdraw(before[key].device)
            self._health.forget_all_but(self._inventory.entries)
        self._health.note(self._standing_faults())
        return scan

    def poll(self, *, periodic: bool) -> None:
        """Look at what the scan said can be looked at cheaply; only a periodic poll lets devices recover."""
        faults = self._standing_faults()
        for vendor, card, device, reasons in self._native.poll():
            if (vendor, card, device) in self._inventory.entries:
                faults.setdefault((vendor, card, device), set()).update(reasons)
        if periodic:
            self._health.observe(faults)
        else:
            self._health.note(faults)

    def resources(self) -> resources.Resources:
        """What all this makes, under the configuration. Health changes often, what it is told of seldom."""
        arranged_for = (id(self.config), self._inventory.version)
        if arranged_for != self._arranged_for:
            self._arranged = resources.arrange(self.config, self._inventory.entries.values())
            self._arranged_for = arranged_for
        return self._arranged.judged(self._health)

    def fingerprint(self) -> object:
        """Equal for as long as `resources` answers the same."""
        return id(self.config), self._inventory.version, self._health.all_reasons()

    def watched_directories(self) -> list[str]:
        """Directories whose entries tell of devices that come and go."""
        return self._native.watched_directories()

    def _is_forgetting(self) -> bool:
        return any(GONE in entry.reasons for entry in self._inventory.faulty())

    def _standing_faults(self) -> Faults:
        """What is wrong whatever a poll says: the last scan's findings, and CDI specs that cannot be written."""
        faults = {entry.key: set(entry.reasons) for entry in self._inventory.faulty()}
        self.problems = []
        failed = self._publish_cdi()
        for key, entry in self._inventory.entries.items() if failed else ():
            errors = [failed[name] for name in entry.device.cdi_edits if name in failed]
            if errors:
                faults.setdefault(key, set()).add(UNWRITABLE)
                self.problems.append(_cdi_problem(entry, errors[0]))
        return faults

    def _publish_cdi(self) -> dict[str, OSError]:
        """Bring the CDI specs up to date: which names' specs cannot be written, and why."""
        if self._cdi_for != self._inventory.version:
            entries = sorted(self._inventory.entries.values(), key=lambda entry: bool(entry.reasons))
            self._cdi.want(
                [entry.device for entry in entries if GONE not in entry.reasons],
                [entry.device for entry in entries if GONE in entry.reasons],
            )
            self._cdi_for = self._inventory.version
        return self._cdi.publish()


def scan_once(config: Config) -> ScanReport:
    """One scan of the host, told whole; changes nothing."""
    native = native_scanner(config)
    scan = native.scan()
    inventory = Inventory()
    inventory.observe(scan, 0.0, config.health.forget_after)
    health = Health(config.health.recover_after)
    health.note({key: entry.reasons for key, entry in inventory.entries.items()})
    health.note({(vendor, card, device): reasons for vendor, card, device, reasons in native.poll()})
    made = resources.build(config, inventory.entries.values(), health)
    return ScanReport(
        resources=made.resources,
        problems=problem_messages(scan, config) + made.problems,
        duration_seconds=scan.duration_seconds,
        rules=made.rules,
        sources={(device.vendor, device.card, device.id): device.sources for device in scan.devices},
    )


def native_scanner(config: Config) -> Scanner:
    """The scan core, told what the configuration says. Raises UsageError when it refuses."""
    with _refusals():
        return Scanner(str(config.host_root.absolute()), config.native_json())


@contextmanager
def _refusals() -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise UsageError("the scan core refuses the configuration", str(error), "report this as a defect") from error


def cdi_directory(config: Config) -> Path:
    """Where CDI specs go, as this process reaches it: below the host root."""
    return config.host_root.absolute() / config.cdi_dir.relative_to("/")


def vendor_options(config: Config) -> dict[str, str]:
    """What each vendor is told, by the vendor's name, as JSON."""
    native = json.loads(config.native_json())
    options = {name.replace("_", "-"): options for name, options in native["vendors"].items()}
    del options["nvidia"]["nvml_probe"]  # by which interpreter NVML is asked is no option: an upgrade moves it
    options |= {"generic": native["generic"], "simulated": native["simulated"]}
    return {vendor: json.dumps(told, sort_keys=True) for vendor, told in options.items()}


def problem_messages(scan: Scan, config: Config) -> list[spool_pb2.Problem]:
    """A scan's problems as the spool holds them, and a vendor's absence where the configuration insists on it."""
    told = [
        spool_pb2.Problem(vendor=problem.vendor, path=problem.path, error=problem.error, device=problem.device or "")
        for problem in scan.problems
    ]
    return [*told, *_absences(scan, config)]


def _absences(scan: Scan, config: Config) -> Iterator[spool_pb2.Problem]:
    heard_of = {device.vendor for device in scan.devices}
    heard_of |= {problem.vendor for problem in scan.problems} | {part.vendor for part in scan.unseen}
    for section in type(config.vendors).model_fields:
        vendor = section.replace("_", "-")
        if getattr(config.vendors, section).enabled is True and vendor not in heard_of:
            error = f"no device is found, and `vendors.{section}.enabled` is true: see that its driver is loaded"
            yield spool_pb2.Problem(vendor=vendor, path="/sys", error=error)


def _cdi_problem(entry: Entry, error: OSError) -> spool_pb2.Problem:
    return spool_pb2.Problem(
        vendor=entry.vendor,
        path=str(error.filename or ""),
        error=f"the CDI spec cannot be written: {error.strerror or error}",
        device=entry.device.id,
    )


def _differing(before: Mapping[str, str], after: Mapping[str, str]) -> set[str]:
    return {vendor for vendor in before.keys() | after.keys() if before.get(vendor) != after.get(vendor)}
