"""Makes offers from devices and configuration: selection, naming, sharing, order of preference. Pure.

The first rule that matches a device decides its offer; a device that no rule matches keeps its vendor's default name.
`made` encodes them alike for all front ends; `device_plugin` makes what the kubelet is served.
"""

import functools
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from devherd._native import Device, vendors
from devherd.config.resolved import ResolvedConfig, facts_of, selects
from devherd.config.sections import PreStart, ResourceRule, Sharing, VendorOptions
from devherd.inventory import CLASSES, DEVICE_PLUGIN, DeviceKey, Entry
from devherd.proto import spool_pb2
from devherd.spool import ids_of
from devherd.text import resource_name_refusal

UNSHARED = Sharing()
MOST_BEFORE_VOLTA = 16
"""Limit of MPS clients of a GPU of compute capability below 7.0, <https://docs.nvidia.com/deploy/mps/>; the vendor's
plugin also applies it to 7.0. The configuration checks the limit of newer GPUs."""

_RDMA = "rdma"
_VERSION = re.compile(r"(\d+)\.\d+")
_DEFAULT_RULE = ResourceRule()
_DEFAULT_OPTIONS = VendorOptions()
_NO_PRE_START = PreStart()
_ROWS = {row.name: row for row in vendors()}


def feasible_sharing(sharing: Sharing, device: Device, way: str = DEVICE_PLUGIN) -> tuple[Sharing, str | None]:
    """How a device can be shared, and a message if that differs from the configuration."""
    if sharing.strategy != "mps":
        return sharing, None
    if sharing.replicas == 1:
        return UNSHARED, None
    attributes = device.attributes
    if (why := _why_no_mps(device.vendor, attributes, way)) is not None:
        return UNSHARED, f"{why}: it is advertised unshared"
    if sharing.replicas > MOST_BEFORE_VOLTA and _is_before_volta(attributes):
        capability = attributes["compute_capability"]
        text = f"MPS serves at most {MOST_BEFORE_VOLTA} clients on a GPU of compute capability {capability}"
        return replace(sharing, replicas=MOST_BEFORE_VOLTA), f"{text}: replicas limited to {MOST_BEFORE_VOLTA}"
    return sharing, None


def _why_no_mps(vendor: str, attributes: Mapping[str, str], way: str) -> str | None:
    if vendor != "nvidia":
        return "MPS shares NVIDIA's GPUs only"
    if way != DEVICE_PLUGIN:
        return "MPS is served by the device plugin alone"
    return "MPS cannot share a MIG device" if {"mig_profile", "gpu_instance"} & attributes.keys() else None


def _is_before_volta(attributes: Mapping[str, str]) -> bool:
    version = _VERSION.fullmatch(attributes.get("compute_capability", ""))
    return version is not None and int(version[1]) < 7


@dataclass(frozen=True, slots=True)
class Offered:
    """A device in an offer."""

    entry: Entry
    replicas: int
    """How many containers may share each of its ids; 0 if it is not shared."""
    pre_start: PreStart
    """What must hold before a container with it starts."""
    rule: str
    """The rule that chose the offer."""
    by_mps: bool = False
    """True if containers share it through NVIDIA's Multi-Process Service."""

    __hash__ = None  # type: ignore[assignment]

    @property
    def ids(self) -> list[str]:
        """The ids under which the kubelet lists it."""
        return ids_of(self.entry.device.id, self.replicas, self.entry.device.shares)


@dataclass(slots=True)
class Offer:
    """The devices that are advertised under one name."""

    name: str
    vendor: str
    """The vendor of its first device."""
    devices: list[Offered] = field(default_factory=list)
    preferred: str = "packed"
    """Which devices are allocated together: `aligned`, `packed`, `distributed`, `none`."""
    fail_requests_greater_than_one: bool = False


@dataclass(slots=True)
class Offers:
    """Offers sorted by name, the problems of devices that are not offered, and the rule of each device."""

    offers: list[Offer] = field(default_factory=list)
    problems: list[spool_pb2.Problem] = field(default_factory=list)
    rules: dict[DeviceKey, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Choice:
    """What the rules decide about a device."""

    entry: Entry
    rule: str
    offered: Offered | None = None
    """None if it is not offered."""
    name: str = ""
    preferred: str = ""
    problem: spool_pb2.Problem | None = None
    fail_requests_greater_than_one: bool = False


class Arranger:
    """Arranges the devices of a node for one way under one configuration; rules are applied only to new entries."""

    def __init__(self, config: ResolvedConfig, way: str = DEVICE_PLUGIN) -> None:
        self._config = config
        self._way = way
        self._choices: dict[DeviceKey, _Choice] = {}
        self._refusals: dict[str, str | None] = {}
        """By resource name: why it is refused, or None. Cached because many devices have the same name."""
        self._preferences: dict[tuple[str, bool], str] = {}
        """The default preference, by vendor and whether the device is shared."""

    def arrange(self, entries: Iterable[Entry]) -> Offers:
        """The offers of these devices, without regard to health."""
        before, self._choices = self._choices, {}
        result = Offers()
        by_name: dict[str, Offer] = {}
        for entry in entries:
            choice = before.get(entry.key)
            if choice is None or choice.entry is not entry:
                choice = self._choose(entry)
            self._choices[entry.key] = choice
        rivals = _Rivals(self._choices.values())
        for key, choice in self._choices.items():
            rival = rivals.of(choice)
            result.rules[key] = f"left out: its resource is {rival}'s, too" if rival else choice.rule
            if choice.problem is not None:
                result.problems.append(choice.problem)
            if choice.offered is not None and not rival:
                _advertise(choice, choice.offered, by_name)
        result.problems += rivals.problems
        for pool in self._config.pools if self._way == DEVICE_PLUGIN else ():
            _add_empty(self._config, pool, by_name)
        result.offers = [by_name[name] for name in sorted(by_name)]
        return result

    def _choose(self, entry: Entry) -> _Choice:
        if self._way in entry.left_out:
            return _Choice(entry, f"left out: {entry.left_out[self._way]}")
        number, rule = _rule_for(self._config.resources, entry)
        described = _describe(number, entry.vendor)
        if not rule.advertise:
            return _Choice(entry, described)
        shared, complaint = feasible_sharing(rule.sharing, entry.device, self._way)
        name = _name(rule, shared, entry)
        if name not in self._refusals:
            self._refusals[name] = resource_name_refusal(name)
        refusal = self._refusals[name]
        if refusal is not None:
            return _Choice(entry, described, problem=problem_of(entry, f"cannot be advertised: {refusal}"))
        replicas = shared.replicas if shared.replicas > 1 else 0
        return _Choice(
            entry,
            described,
            Offered(entry, replicas, self._pre_start(rule), described, by_mps=shared.strategy == "mps"),
            name,
            preferred=rule.preferred or self._preference(entry.vendor, shared=replicas > 0),
            problem=None if complaint is None else problem_of(entry, complaint),
            fail_requests_greater_than_one=shared.refuses_more_than_one,
        )

    def _pre_start(self, rule: ResourceRule) -> PreStart:
        """What must hold before a start: only the device plugin is asked then."""
        return rule.pre_start if self._way == DEVICE_PLUGIN else _NO_PRE_START

    def _preference(self, vendor: str, *, shared: bool) -> str:
        known = self._preferences.get((vendor, shared))
        if known is None:
            known = self._preferences[vendor, shared] = _vendors_preference(self._config, vendor, shared=shared)
        return known


def arrange(config: ResolvedConfig, entries: Iterable[Entry], way: str = DEVICE_PLUGIN) -> Offers:
    """The offers of these devices by this way under this configuration, without regard to health."""
    return Arranger(config, way).arrange(entries)


class _Rivals:
    """Finds the classes whose resource another vendor has, too: two devices of a resource could have one id."""

    def __init__(self, choices: Iterable[_Choice]) -> None:
        self._vendors: dict[str, str] = {}
        """The vendor of each resource that another vendor than `classes` has."""
        classes = False
        for choice in choices:
            if choice.entry.vendor == CLASSES:
                classes = True
            elif choice.offered is not None:
                self._vendors.setdefault(choice.name, choice.entry.vendor)
        self._is_needed = classes and bool(self._vendors)
        self._told: set[tuple[str, str]] = set()
        self.problems: list[spool_pb2.Problem] = []
        """One for each class and resource."""

    def of(self, choice: _Choice) -> str:
        """The vendor with the resource that the class of this device gives it; empty if there is none."""
        if not self._is_needed or choice.entry.vendor != CLASSES or choice.name != choice.entry.resource_name:
            return ""
        vendor = self._vendors.get(choice.name, "")
        name = choice.entry.device.attribute("class") or ""
        if vendor and (name, choice.name) not in self._told:
            self._told.add((name, choice.name))
            error = (
                f"class `{name}` and {vendor} both have the resource {choice.name}: the class's devices are not offered"
                " — give the class another `plugin.resource`, or its devices a `name` by a rule of `resources`"
            )
            self.problems.append(problem_of(choice.entry, error))
        return vendor


def _rule_for(rules: list[ResourceRule], entry: Entry) -> tuple[int | None, ResourceRule]:
    if rules:
        facts = facts_of(entry)
        for number, rule in enumerate(rules):
            if selects(rule.match, facts):
                return number, rule
    return None, _DEFAULT_RULE


_NAMES = frozenset({"pci_address", "id", "card"})


def is_named(config: ResolvedConfig, device: Device) -> bool:
    """Whether a rule offers the device by its name."""
    _, rule = _rule_for(config.resources, Entry(device, device.resource_name or ""))
    return rule.advertise and bool(_NAMES & rule.match.facts.keys())


def _advertise(choice: _Choice, offered: Offered, by_name: dict[str, Offer]) -> None:
    offer = by_name.get(choice.name)
    if offer is None:
        offer = by_name[choice.name] = Offer(choice.name, choice.entry.vendor)
    if offered.replicas or not offer.devices:
        offer.preferred = choice.preferred
    offer.fail_requests_greater_than_one |= choice.fail_requests_greater_than_one
    offer.devices.append(offered)


def _add_empty(config: ResolvedConfig, pool: str, by_name: dict[str, Offer]) -> None:
    """Add the offer of a pool without devices, under the name that a device of it would have."""
    entry = Entry(Device(vendor=_RDMA, card=pool, id="0", resource_name=pool), pool)
    _, rule = _rule_for(config.resources, entry)
    shared, _ = feasible_sharing(rule.sharing, entry.device)
    name = _name(rule, shared, entry)
    if rule.advertise and name not in by_name and resource_name_refusal(name) is None:
        by_name[name] = Offer(name, _RDMA, preferred=rule.preferred or _vendors_preference(config, _RDMA, shared=False))


def _name(rule: ResourceRule, shared: Sharing, entry: Entry) -> str:
    renamed = shared.rename if shared.replicas > 1 else None
    return renamed or rule.name or entry.resource_name


def _vendors_preference(config: ResolvedConfig, vendor: str, *, shared: bool) -> str:
    """The default of `preferred`: the option of the vendor's section, or the default of the vendor's plugin."""
    row = _ROWS[vendor]
    options = config.vendors.get(row.section, _DEFAULT_OPTIONS)
    chosen = options.preferred_shared if shared else options.preferred
    return chosen or row.preferred(shared)


@functools.cache
def _describe(number: int | None, vendor: str) -> str:
    return f"{vendor}'s default name" if number is None else f"resources[{number}]"


def problem_of(entry: Entry, error: str) -> spool_pb2.Problem:
    """A problem of a device in its offer."""
    return spool_pb2.Problem(vendor=entry.vendor, path=entry.resource_name, error=error, device=entry.device.id)
