"""What labels are made of: the devices, what is offered of them, and what is known of the node besides."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from devherd.config.resolved import Config
from devherd.inventory import Entry
from devherd.node_labels.nvml_facts import NvmlFacts, facts_in
from devherd.offers import rules
from devherd.offers.rules import Offer, Offered


@dataclass(frozen=True, slots=True)
class Node:
    """A node, as far as labels tell of it."""

    entries: list[Entry] = field(default_factory=list)
    """Its devices, without those that are gone."""
    offers: list[Offer] = field(default_factory=list)
    mig_strategy: str = "none"
    nvml: NvmlFacts = field(default_factory=NvmlFacts)
    """What NVML says of each GPU."""
    machine: str = ""
    """What the firmware calls it: sys/class/dmi/id/product_name; empty when that is unknown."""

    def of(self, vendor: str) -> list[Entry]:
        """The devices of a vendor."""
        return [entry for entry in self.entries if entry.vendor == vendor]

    def offered(self, entries: Iterable[Entry]) -> Iterator[tuple[Offer, Offered]]:
        """Those of these devices that are offered, each with its offer."""
        keys = {entry.key for entry in entries}
        for offer in self.offers:
            for one in offer.devices:
                if one.entry.key in keys:
                    yield offer, one


def node_of(config: Config, entries: Iterable[Entry], nvml_answer: bytes, machine: str) -> Node:
    """The node with these devices under this configuration; `nvml_answer` is the answer file's content."""
    present = [entry for entry in entries if entry.gone_since is None]
    options = json.loads(config.native).get("vendors", {}).get("nvidia", {})
    return Node(
        entries=present,
        offers=rules.arrange(config, present).offers,
        mig_strategy=options.get("mig_strategy", "none"),
        nvml=facts_in(nvml_answer),
        machine=machine,
    )


def fact(entry: Entry, name: str) -> str:
    """A fact of a device as text; empty when it is unknown."""
    found = entry.device.facts.get(name)
    return found.text if found is not None else ""
