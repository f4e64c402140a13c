"""Labels as data, and their input: devices, offers, facts of the node."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from devherd.config.resolved import ResolvedConfig
from devherd.inventory import Entry, Inventory, key_of
from devherd.proto import spool_pb2

NOT_ANSWERED = "only NVML reports it, and has not been asked or has not answered"
_NVML = "NVML"
"""The source of facts from NVML (rust/src/vendors/nvidia)."""

_LONGEST = 63
_PART = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?")
_PREFIX = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*")
_LONGEST_PREFIX = 253


@dataclass(frozen=True, slots=True)
class LabelFacts:
    """The facts of a node that labels are made from."""

    entries: list[Entry] = field(default_factory=list)
    """The devices of the node, without those that are gone."""
    offers: list[spool_pb2.Offer] = field(default_factory=list)
    mig_strategy: str = "none"
    machine: str = ""
    """Name of the machine by its firmware; empty if unknown."""

    def of(self, vendor: str) -> list[Entry]:
        """The devices of a vendor."""
        return [entry for entry in self.entries if entry.vendor == vendor]

    def offered(self, entries: Iterable[Entry]) -> Iterator[tuple[spool_pb2.Offer, spool_pb2.Device]]:
        """The devices among `entries` that are offered, each with its offer."""
        keys = {entry.key for entry in entries}
        for offer in self.offers:
            for device in offer.devices:
                if key_of(device) in keys:
                    yield offer, device


def node_of(config: ResolvedConfig, inventory: Inventory, offers: Iterable[spool_pb2.Offer]) -> LabelFacts:
    """The label facts of a node with these devices and offers."""
    options = json.loads(config.native).get("vendors", {}).get("nvidia", {})
    platform = inventory.platforms.get("nvidia")
    machine = platform.facts.get("machine") if platform is not None else None
    return LabelFacts(
        entries=[entry for entry in inventory.entries.values() if entry.gone_since is None],
        offers=list(offers),
        mig_strategy=options.get("mig_strategy", "none"),
        machine=machine.text if machine is not None else "",
    )


def fact(entry: Entry, name: str) -> str:
    """A fact of a device as text; empty if unknown."""
    found = entry.device.facts.get(name)
    return found.text if found is not None else ""


def is_answered(entries: Iterable[Entry]) -> bool:
    """Whether NVML has reported a fact of any of these devices."""
    return any(found.source == _NVML for entry in entries for found in entry.device.facts.values())


def is_value(text: str) -> bool:
    """Whether a text may be a label's value; the empty text may."""
    return not text or _is_part(text)


def is_name(text: str) -> bool:
    """Whether a text may be a label's name with a prefix."""
    prefix, slash, name = text.partition("/")
    return bool(slash) and len(prefix) <= _LONGEST_PREFIX and bool(_PREFIX.fullmatch(prefix)) and _is_part(name)


def _is_part(text: str) -> bool:
    return len(text) <= _LONGEST and bool(_PART.fullmatch(text))


@dataclass(slots=True)
class Labels:
    """The labels of the node, and those that are missing."""

    values: dict[str, str] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    """By name, the reason why a label of the vendor's labeller is left out or incomplete."""

    def put(self, name: str, value: object) -> None:
        """Add a label; one that Kubernetes would refuse becomes a missing one."""
        text = str(value)
        if not is_name(name):
            self.missing[name] = "not a legal name of a label: 63 characters of A-Z, a-z, 0-9, -, _ and ."
        elif not is_value(text):
            self.missing[name] = f"`{text}` is not a legal value of a label: 63 characters of A-Z, a-z, 0-9, -, _ and ."
        else:
            self.values[name] = text

    def leave_out(self, why: str, *names: str) -> None:
        """Record why labels are missing."""
        self.missing.update(dict.fromkeys(names, why))

    def add(self, others: "Labels") -> None:
        """Add all labels of another set."""
        self.values |= others.values
        self.missing |= others.missing

    def without(self, globs: list[str]) -> "Labels":
        """A copy without the names that a glob matches."""
        return Labels(_unmatched(self.values, globs), _unmatched(self.missing, globs))


def _unmatched(named: Mapping[str, str], globs: list[str]) -> dict[str, str]:
    return {name: text for name, text in named.items() if not any(fnmatchcase(name, glob) for glob in globs)}
