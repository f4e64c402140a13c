"""Offers and verdicts become devices by driver, a pool each. Pure.

The devices of a type have the same attributes with the same kinds, and the same capacities, because CEL ends every
allocation at a device without the one that it reads:

* A device waits while a fact that its table uses is awaited.
* A device without a needed attribute is withheld where as many of its type have it, or more: one bad device never costs
  another. If most have none, the type is without it.
* An attribute that is not needed is left out for the whole type where one device lacks it; so is one that is longer
  than the API permits at one device, or one more than the API permits.

No device stands beside its parts, be it that a rule offers both: a GPU beside its MIG devices, a physical function
beside its virtual ones. Whatever is withheld or left out is told in a notice.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from devherd._native import NaturalKey
from devherd.dra import amd, intel_gpu, nvidia, own
from devherd.dra.tables import Attribute, Capacity, DeviceType, Publishable, Value
from devherd.dra.values import (
    LONGEST_TEXT,
    MOST_ATTRIBUTES,
    MOST_TAINTS,
    is_attribute_name,
    is_label,
    taint_key,
)
from devherd.health.policy import FINE, Verdict
from devherd.inventory import DeviceKey
from devherd.offers.rules import Offer, Offered, Offers
from devherd.reasons.registry import GONE
from devherd.text import amount

TYPES = {
    "nvidia": nvidia.type_of,
    "amd": amd.type_of,
    "intel-gpu": intel_gpu.type_of,
    "intel-fpga": own.intel_fpga,
    "xilinx-fpga": own.xilinx_fpga,
    "rdma": own.rdma,
    "generic": own.generic,
    "simulated": own.simulated,
    "classes": own.classes,
}
"""By vendor: the type of a device. What DRA does not offer, as a GPU in MIG mode, the scan core has left out before."""

SHARES = "shares"
"""The capacity of a device that containers share."""

_Part = TypeVar("_Part", Attribute, Capacity)


@dataclass(frozen=True, slots=True)
class Published:
    """A device as a slice has it, and what it is here."""

    subject: Publishable
    type: DeviceType
    name: str
    attributes: Mapping[str, tuple[str, Value]]
    """By name: the key of the value and the value."""
    capacities: Mapping[str, tuple[int, bool]]
    """By name: the number and whether it is written with `Ki`, `Mi`, …"""
    taints: tuple[str, ...]
    """The keys."""

    __hash__ = None  # type: ignore[assignment]

    @property
    def key(self) -> DeviceKey:
        """Its key in the inventory."""
        return self.subject.entry.key


@dataclass(frozen=True, slots=True)
class Notice:
    """What a user must know of a device, or of a resource name, that is not as the configuration has it."""

    what: str
    """Driver and device, or the name."""
    why: str


@dataclass(frozen=True, slots=True)
class Unpublished:
    """A device of a driver's that is in no pool: what a claim may call it."""

    driver: str
    name: str | None
    """As far as it is known."""
    is_awaited: bool
    """True if it waits for a fact, and for nothing else."""


@dataclass(slots=True)
class Pools:
    """The devices by driver, sorted by name; a driver whose devices are all withheld has none."""

    devices: dict[str, list[Published]] = field(default_factory=dict)
    withheld: dict[DeviceKey, str] = field(default_factory=dict)
    """By device: why it is not published."""
    unpublished: dict[DeviceKey, Unpublished] = field(default_factory=dict)
    """The same devices, as far as a driver has their type."""
    notices: list[Notice] = field(default_factory=list)

    def withhold(self, subject: Publishable, kind: DeviceType, why: str) -> None:
        """Note why a device of this type is not published."""
        entry = subject.entry
        is_awaited = entry.gone_since is None and not kind.facts.isdisjoint(entry.device.awaited)
        self.withheld[entry.key] = why
        self.unpublished[entry.key] = Unpublished(kind.driver, kind.label(subject), is_awaited)


@dataclass(slots=True)
class _Candidate:
    """A device on its way into a pool."""

    subject: Publishable
    values: dict[str, Value | None]
    capacities: dict[str, int | None]
    own_capacities: Mapping[str, int]


def pools_of(
    offers: Offers, verdicts: Mapping[DeviceKey, Verdict], held: Collection[tuple[str, str]] = frozenset()
) -> Pools:
    """The pools of this node. The offers are of way `cdi`; a device without a verdict is fine.

    `held` are driver and name of the devices that claims hold: they stay, tainted, while they are gone.
    """
    made = Pools()
    by_type: dict[tuple[str, str], tuple[DeviceType, list[Publishable]]] = {}
    subjects = [_subject(offer, offered, verdicts) for offer in offers.offers for offered in offer.devices]
    # A part that is gone keeps nothing from its whole.
    divided = {subject.whole for subject in subjects if subject.entry.gone_since is None} - {None}
    for subject in subjects:
        type_of = TYPES.get(subject.entry.vendor)
        kind = type_of(subject) if type_of else "no driver publishes devices of its vendor"
        if not isinstance(kind, str):
            made.devices.setdefault(kind.driver, [])
            if subject.whole is not None or divided.isdisjoint(subject.names_as_whole):
                known, of_type = by_type.setdefault((kind.driver, kind.name), (kind, []))
                of_type.append(subject)
                if known is not kind:
                    by_type[kind.driver, kind.name] = known.joined(kind), of_type
                continue
            made.withhold(subject, kind, "it is divided: only its parts can be published")
        else:
            made.withheld[subject.entry.key] = kind
    for kind, of_type in by_type.values():
        made.devices[kind.driver] += _Type(kind, made, held).published(of_type)
    for driver, devices in made.devices.items():
        made.devices[driver] = sorted(_named_once(driver, devices, made), key=lambda device: NaturalKey(device.name))
    made.notices += [Notice(f"{key[0]} {key[2]}", f"it is not published: {why}") for key, why in made.withheld.items()]
    return made


def _subject(offer: Offer, offered: Offered, verdicts: Mapping[DeviceKey, Verdict]) -> Publishable:
    entry = offered.entry
    return Publishable(
        entry,
        entry.device.facts,
        offer.name,
        offered.rule,
        verdicts.get(entry.key, FINE),
        max(len(entry.device.shares), 1) * max(offered.replicas, 1),
        offer.fail_requests_greater_than_one,
    )


class _Type:
    """Makes the devices of one type even."""

    def __init__(self, kind: DeviceType, made: Pools, held: Collection[tuple[str, str]]) -> None:
        self._kind, self._made, self._held = kind, made, held
        self._where = f"{kind.driver} {kind.name}"

    def published(self, subjects: Iterable[Publishable]) -> list[Published]:
        """The devices that can be published; the others are withheld, with a reason."""
        whole = [made for subject in subjects if (made := self._candidate(subject)) is not None]
        capacities, whole = self._kept(self._kind.capacities, whole)
        attributes, whole = self._kept(self._legal(self._kind.attributes, whole), whole)
        attributes = self._fitting(attributes, capacities, whole)
        has_shares = any(each.subject.shares > 1 for each in whole)
        return [self._device(each, attributes, capacities, has_shares=has_shares) for each in whole]

    def _candidate(self, subject: Publishable) -> _Candidate | None:
        if (why := self._refusal(subject)) is not None:
            self._withhold(subject, why)
            return None
        return _Candidate(
            subject,
            {one.name: one.make(subject) for one in self._kind.attributes},
            {one.name: one.make(subject) for one in self._kind.capacities},
            self._kind.of_the_device(subject),
        )

    def _refusal(self, subject: Publishable) -> str | None:
        """Why the device cannot be published by itself; None if it can."""
        kind, entry = self._kind, subject.entry
        name = kind.label(subject)
        if entry.gone_since is not None and (kind.driver, name) not in self._held:
            return "it is gone"
        if awaited := sorted(kind.facts & entry.device.awaited):
            return f"it waits for {_listed(awaited)}"
        if name is None:
            unknown = sorted(fact for fact in kind.label_of if fact not in subject.facts) or kind.label_of
            return f"its name takes {_listed(unknown)}, which cannot be known here"
        return None if is_label(name) else f"`{name}` is no name of a device"

    def _withhold(self, subject: Publishable, why: str) -> None:
        self._made.withhold(subject, self._kind, why)

    def _legal(self, attributes: tuple[Attribute, ...], whole: list[_Candidate]) -> list[Attribute]:
        """The attributes whose names and values the API takes at every device."""
        legal = []
        for attribute in attributes:
            longest = max((_size(each.values[attribute.name]) for each in whole), default=0)
            if not is_attribute_name(attribute.name):
                self._left_out(attribute.name, "the API takes no such name")
            elif longest > LONGEST_TEXT:
                self._left_out(attribute.name, f"a value has {longest} bytes, and the API takes {LONGEST_TEXT}")
            else:
                legal.append(attribute)
        return legal

    def _kept(self, parts: Iterable[_Part], whole: list[_Candidate]) -> tuple[list[_Part], list[_Candidate]]:
        """The attributes or capacities that every device has, and the devices that have all that are needed."""
        kept: list[_Part] = []
        for part in sorted(parts, key=lambda part: not part.is_needed):
            lacking = [each for each in whole if _value(each, part) is None]
            if not lacking:
                kept.append(part)
            elif part.is_needed and 2 * len(lacking) <= len(whole):
                kept.append(part)
                for each in lacking:
                    self._withhold(each.subject, f"its `{part.name}` is not known, and that of others of its type is")
                whole = [each for each in whole if _value(each, part) is not None]
            elif len(lacking) < len(whole):
                few = amount(len(lacking), "device")
                self._left_out(part.name, f"{few} of {len(whole)} have none, and what one lacks no claim may read")
        return kept, whole

    def _fitting(
        self, attributes: list[Attribute], capacities: list[Capacity], whole: list[_Candidate]
    ) -> list[Attribute]:
        """The first attributes, the needed ones before the others, that fit beside the capacities."""
        most = max((len(each.own_capacities) for each in whole), default=0) + len(capacities)
        most += any(each.subject.shares > 1 for each in whole)
        room = max(MOST_ATTRIBUTES - most, 0)
        for attribute in attributes[room:]:
            self._left_out(attribute.name, f"a device has room for {MOST_ATTRIBUTES} attributes and capacities")
        return attributes[:room]

    def _left_out(self, name: str, why: str) -> None:
        self._made.notices.append(Notice(self._where, f"`{name}` is left out for every device of the type: {why}"))

    def _device(
        self, each: _Candidate, attributes: list[Attribute], capacities: list[Capacity], *, has_shares: bool
    ) -> Published:
        subject = each.subject
        numbers = {part.name: (each.capacities[part.name] or 0, part.is_binary) for part in capacities}
        numbers |= {name: (number, True) for name, number in each.own_capacities.items()}
        if has_shares:
            numbers[SHARES] = subject.shares, False
        values = {part.name: (part.kind, value) for part in attributes if (value := _value(each, part)) is not None}
        gone = () if subject.entry.gone_since is None else (GONE,)
        taints = sorted({taint_key(reason) for reason in (*subject.verdict.reasons, *gone)})
        if len(taints) > MOST_TAINTS:
            text = f"{amount(len(taints) - MOST_TAINTS, 'reason')} of {len(taints)} are no taints: the API takes 16"
            self._made.notices.append(Notice(f"{self._where} {subject.entry.device.id}", text))
        name = self._kind.label(subject) or ""
        return Published(subject, self._kind, name, values, numbers, tuple(taints[:MOST_TAINTS]))


def _value(each: _Candidate, part: Attribute | Capacity) -> Value | None:
    return each.values[part.name] if isinstance(part, Attribute) else each.capacities[part.name]


def _size(value: Value | None) -> int:
    return len(value.encode()) if isinstance(value, str) else 0


def _listed(facts: Iterable[str]) -> str:
    return ", ".join(f"`{fact}`" for fact in facts)


def _named_once(driver: str, devices: list[Published], made: Pools) -> list[Published]:
    """The devices with names of their own: of two with one name the first stays, for a name must mean the same."""
    found: dict[str, Published] = {}
    for device in devices:
        first = found.setdefault(device.name, device)
        if first is not device:
            other = first.subject.entry.device.id
            why = f"its name in {driver}, `{device.name}`, is that of {other}, too"
            made.withhold(device.subject, device.type, why)
    return list(found.values())
