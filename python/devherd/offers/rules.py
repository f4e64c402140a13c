"""Devices + configuration → offers: selection, naming, sharing, order of preference. A pure function.

The first rule that matches a device decides its offer; a device that no rule matches keeps its vendor's own name.
How a front end gives devices to containers is decided there: `device_plugin` for the kubelet's.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from devherd import resource_name, selection
from devherd._native import vendors
from devherd.config.resolved import Config, ResourceRule, Sharing, VendorOptions
from devherd.inventory import DeviceKey, Entry
from devherd.offers import sharing
from devherd.proto import spool_pb2

_DEFAULT_RULE = ResourceRule()
_DEFAULT_OPTIONS = VendorOptions()
_ROWS = {row.name: row for row in vendors()}


@dataclass(frozen=True, slots=True)
class Offered:
    """A device in an offer."""

    entry: Entry
    replicas: int = 0
    """How many containers may share it; 0 for one that is not shared."""
    by_mps: bool = False
    """Whether they share it through NVIDIA's Multi-Process Service."""

    @property
    def device_id(self) -> str:
        """The device's own id."""
        return self.entry.device.id


@dataclass(slots=True)
class Offer:
    """What is advertised under one name."""

    name: str
    vendor: str
    """Of its first device."""
    devices: list[Offered] = field(default_factory=list)
    preferred: str = "packed"
    """Which devices are given together: `aligned`, `packed`, `distributed`, `none`."""
    fail_requests_greater_than_one: bool = False


@dataclass(slots=True)
class Offers:
    """Offers sorted by name, what could not be offered, and which rule each device met."""

    offers: list[Offer] = field(default_factory=list)
    problems: list[spool_pb2.Problem] = field(default_factory=list)
    rules: dict[DeviceKey, str] = field(default_factory=dict)


def arrange(config: Config, entries: Iterable[Entry]) -> Offers:
    """The offers that these devices make under this configuration, whatever their health."""
    result = Offers()
    by_name: dict[str, Offer] = {}
    for entry in entries:
        number, rule = _rule_for(config.resources, entry)
        result.rules[entry.key] = _describe(number, entry)
        if rule.advertise:
            _advertise(config, rule, entry, by_name, result)
    result.offers = [by_name[name] for name in sorted(by_name)]
    return result


def _rule_for(rules: list[ResourceRule], entry: Entry) -> tuple[int | None, ResourceRule]:
    if rules:
        facts = selection.facts_of(entry)
        for number, rule in enumerate(rules):
            if selection.selects(rule.match, facts):
                return number, rule
    return None, _DEFAULT_RULE


def _advertise(config: Config, rule: ResourceRule, entry: Entry, by_name: dict[str, Offer], result: Offers) -> None:
    shared, complaint = sharing.feasible(rule.sharing, entry.device)
    name = _name(rule, shared, entry)
    refusal = resource_name.explain(name)
    if refusal is not None:
        complaint = f"cannot be advertised: {refusal}"
    if complaint is not None:
        result.problems.append(problem_of(entry, complaint))
    if refusal is not None:
        return
    offer = by_name.get(name)
    replicas = shared.replicas if shared.replicas > 1 else 0
    if offer is None:
        offer = by_name[name] = Offer(name, entry.vendor)
    if replicas or not offer.devices:
        offer.preferred = rule.preferred or _vendors_preference(config, entry.vendor, shared=replicas > 0)
    offer.fail_requests_greater_than_one |= shared.refuses_more_than_one
    offer.devices.append(Offered(entry, replicas, by_mps=shared.strategy == "mps"))


def _name(rule: ResourceRule, shared: Sharing, entry: Entry) -> str:
    renamed = shared.rename if shared.replicas > 1 else None
    return renamed or rule.name or entry.resource_name


def _vendors_preference(config: Config, vendor: str, *, shared: bool) -> str:
    """Which devices the vendor's own plugin prefers to give together."""
    row = _ROWS[vendor]
    options = config.vendors.get(row.section, _DEFAULT_OPTIONS)
    chosen = options.preferred_shared if shared else options.preferred
    return chosen or row.preferred(shared)


def _describe(number: int | None, entry: Entry) -> str:
    return f"{entry.vendor}'s default name" if number is None else f"resources[{number}]"


def problem_of(entry: Entry, error: str) -> spool_pb2.Problem:
    """A problem of a device in its offer."""
    return spool_pb2.Problem(vendor=entry.vendor, path=entry.resource_name, error=error, device=entry.device.id)
