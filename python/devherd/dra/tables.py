"""How a table says what a device of a type has: attributes, capacities, name, each with the facts that it is made of.

A table is code, not a file: vendors cut, join and choose, and each is a dozen lines.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from devherd._native import Fact
from devherd.dra.values import semver
from devherd.health.policy import Verdict
from devherd.inventory import Entry
from devherd.reasons.registry import CORDONED

Value = str | int | bool

PCI_BUS_ID = "resource.kubernetes.io/pciBusID"
PCIE_ROOT = "resource.kubernetes.io/pcieRoot"
NUMA_NODE = "resource.kubernetes.io/numaNode"
"""Standard attributes: https://github.com/kubernetes/dynamic-resource-allocation/tree/v0.37.2/deviceattribute."""


@dataclass(frozen=True, slots=True)
class Publishable:
    """A device that the rules offer, with what its table reads."""

    entry: Entry
    facts: Mapping[str, Fact]
    resource_name: str
    """The name under which the rules offer it."""
    rule: str
    """The rule that chose the name."""
    verdict: Verdict
    shares: int = 1
    """How many containers may share it."""
    takes_one: bool = False
    """True if a container may ask for one of its shares, but not for more."""

    __hash__ = None  # type: ignore[assignment]

    def text(self, fact: str) -> str | None:
        """A fact as text; None if it is not known."""
        known = self.facts.get(fact)
        return None if known is None else known.text

    def number(self, fact: str) -> int | None:
        """A fact as a number; None if it is not known, or no number."""
        text = self.text(fact)
        try:
            return None if text is None else int(text)
        except ValueError:
            return None

    @property
    def whole(self) -> str | None:
        """What it is a part of: UUID of a MIG device's GPU, address of a physical function; None if it is a whole."""
        is_mig = "mig_profile" in self.facts or "gpu_instance" in self.facts
        return self.text("gpu_uuid") if is_mig else self.text("physfn")

    @property
    def names_as_whole(self) -> tuple[str | None, ...]:
        """What its parts call it. A subfunction has the PCI address of its parent, and no parts."""
        return self.text("uuid"), None if "subfunction" in self.facts else self.text("pci_address")

    @property
    def is_ill(self) -> bool:
        """Whether it is Unhealthy for another reason than an operator's cordon."""
        return any(reason != CORDONED for reason in self.verdict.reasons)


@dataclass(frozen=True, slots=True)
class Attribute:
    """One attribute of every device of a type."""

    name: str
    kind: str
    """The key of its value: `string`, `int`, `bool`, `version`."""
    make: Callable[[Publishable], Value | None]
    """Its value; None if it is not known."""
    made_of: tuple[str, ...] = ()
    """The facts."""
    is_needed: bool = True
    """True if a device without it is withheld, unless most of its type have none; else it is then left out for all."""


@dataclass(frozen=True, slots=True)
class Capacity:
    """One capacity of every device of a type."""

    name: str
    make: Callable[[Publishable], int | None]
    made_of: tuple[str, ...] = ()
    is_binary: bool = True
    """Whether it is written with `Ki`, `Mi`, …"""
    is_needed: bool = True


@dataclass(frozen=True, slots=True)
class DeviceType:
    """The devices of a driver with one schema; its name is their attribute `type`."""

    driver: str
    name: str
    label: Callable[[Publishable], str | None]
    """The device's name in the pool, a DNS label; None if a fact that it takes is not known."""
    attributes: tuple[Attribute, ...]
    capacities: tuple[Capacity, ...] = ()
    label_of: tuple[str, ...] = ()
    """The facts that the name is made of."""
    of_the_device: Callable[[Publishable], Mapping[str, int]] = field(default=lambda _: {})
    """Capacities whose very names differ from device to device, as the vendor's driver has them."""
    told_by: tuple[tuple[str, ...], ...] = ((),)
    """Attributes that tell the devices of one resource name from others of the type; the first that are published."""
    is_in_names: bool = True
    """False if the vendor's resource names are the same for every type of the driver."""

    @property
    def facts(self) -> frozenset[str]:
        """Every fact that the table uses."""
        parts: tuple[Attribute | Capacity, ...] = (*self.attributes, *self.capacities)
        return frozenset((*(fact for part in parts for fact in part.made_of), *self.label_of))

    def joined(self, other: "DeviceType") -> "DeviceType":
        """With the attributes of the same type at another device: the facts of a device class may be optional."""
        known = {one.name for one in self.attributes}
        more = [one for one in other.attributes if one.name not in known]
        return replace(self, attributes=(*self.attributes, *more)) if more else self


def constant(name: str, value: str) -> Attribute:
    """A string that every device has."""
    return Attribute(name, "string", lambda _: value)


def text(name: str, fact: str, *, otherwise: str | None = None, is_needed: bool = True) -> Attribute:
    """A fact as a string; `otherwise` where it is not known."""

    def make(subject: Publishable) -> str | None:
        known = subject.text(fact)
        return otherwise if known is None else known

    return Attribute(name, "string", make, (fact,), is_needed)


def number(name: str, fact: str, *, otherwise: int | None = None, is_needed: bool = True) -> Attribute:
    """A fact as a number; `otherwise` where it is not known."""

    def make(subject: Publishable) -> int | None:
        known = subject.number(fact)
        return otherwise if known is None else known

    return Attribute(name, "int", make, (fact,), is_needed)


def version(name: str, fact: str, *, is_needed: bool = True) -> Attribute:
    """A fact as a version; not known where it is none."""
    return Attribute(name, "version", lambda subject: semver(subject.text(fact) or ""), (fact,), is_needed)


def flag(name: str, fact: str) -> Attribute:
    """A fact as a boolean; false where it is not known."""
    return Attribute(name, "bool", lambda subject: subject.text(fact) == "true", (fact,))


def count(name: str, fact: str, *, is_needed: bool = True) -> Capacity:
    """A fact as a capacity, in its own unit."""
    return Capacity(name, lambda subject: subject.number(fact), (fact,), is_needed=is_needed)


def _numa_node(subject: Publishable) -> int | None:
    """By KEP-6072 a device without a node has no attribute. Not every vendor has the fact: a USB device has none."""
    known = subject.number("numa_node")
    nodes = subject.entry.device.numa_nodes
    if known is None and len(nodes) == 1:
        known = nodes[0]
    return known if known is not None and known >= 0 else None


BUS_ID = text(PCI_BUS_ID, "pci_address")
ROOT = text(PCIE_ROOT, "pcie_root", is_needed=False)
NODE = Attribute(NUMA_NODE, "int", _numa_node, ("numa_node",), is_needed=False)
