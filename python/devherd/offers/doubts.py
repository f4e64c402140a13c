"""What a configuration does on this node that nobody can have meant: rules without a device, devices given twice. Pure.

What has no effect on any node is found by `config/warnings.py`.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping

from devherd import selection
from devherd.amounts import amount
from devherd.config.host import NVML_FACTS
from devherd.config.resolved import Config, External, HealthRule, Match, ResourceRule
from devherd.inventory import Entry
from devherd.offers.rules import Offer, Offers

GENERIC = "generic"
SIMULATED = "simulated"

Facts = Mapping[str, str]


def doubts(config: Config, entries: Collection[Entry], offers: Offers) -> list[str]:
    """One line each: where, what is doubtful — what to do. None where there is no device."""
    facts = [selection.facts_of(entry) for entry in entries]
    parts: list[HealthRule | External] = [*config.health.rules, *config.health.external]
    matches = [(part.place, part.match) for part in parts if not _is_in_order(part, config.warnings)]
    return [
        *(_idle_rules(config, facts, offers) if facts else ()),
        *(_without_devices(matches, facts) if facts else ()),
        *_simulated_beside_real(offers.offers),
        *_given_twice(offers.offers),
    ]


def _idle_rules(config: Config, facts: Collection[Facts], offers: Offers) -> Iterator[str]:
    """Rules that decided for no device: none matches, or an earlier rule took it."""
    met = set(offers.rules.values())
    for number, rule in enumerate(config.resources):
        if f"resources[{number}]" in met or _is_in_order(rule, config.warnings):
            continue
        if any(selection.selects(rule.match, each) for each in facts):
            yield (
                f"{rule.place}: never reached on this node: the rules before it match every device that it matches"
                " — move it before them, or remove it"
            )
        else:
            yield from _without_devices([(rule.place, rule.match)], facts)


def _is_in_order(part: ResourceRule | HealthRule | External, warnings: Iterable[str]) -> bool:
    """Whether it may be about no device here; or about none on any node, as a warning says already."""
    key = part.place.rpartition(" ")[2]
    return part.optional or any(f" {key}{end}" in f" {warning}" for warning in warnings for end in ":.")


def _without_devices(matches: Iterable[tuple[str, Match]], facts: Collection[Facts]) -> Iterator[str]:
    for place, match in matches:
        if not any(selection.selects(match, each) for each in facts) and not _waits(match, facts):
            yield (
                f"{place}: matches no device of this node, which has {amount(len(facts), 'device')} — compare it with"
                " the facts that `devherd scan --explain` shows, or add `optional: true`"
            )


def _waits(match: Match, facts: Iterable[Facts]) -> bool:
    """Whether it names what NVML has still to say of a GPU."""
    named = NVML_FACTS & match.patterns().keys()
    return bool(named) and any(each["vendor"] == "nvidia" and not named & each.keys() for each in facts)


def _simulated_beside_real(offers: Iterable[Offer]) -> Iterator[str]:
    for offer in offers:
        simulated = sum(one.entry.vendor == SIMULATED for one in offer.devices)
        if 0 < simulated < len(offer.devices):
            yield (
                f"simulated: `{offer.name}` has {amount(simulated, 'simulated device')} beside"
                f" {len(offer.devices) - simulated} real, and a pod that is given a simulated one has no device"
                " — give the simulated ones another name"
            )


def _given_twice(offers: Iterable[Offer]) -> Iterator[str]:
    """Nodes of generic devices that devices of a vendor have as well: a line for each two resources."""
    given = [
        (path.path, offer.name, one.entry)
        for offer in offers
        for one in offer.devices
        for path in one.entry.device.paths
        if path.is_node
    ]
    generic = {path: name for path, name, entry in given if entry.vendor == GENERIC}
    said = set()
    for path, name, entry in given if generic else ():
        if entry.vendor != GENERIC and path in generic and (generic[path], name) not in said:
            said.add((generic[path], name))
            yield (
                f"generic: {path} of `{generic[path]}` is also part of `{name}`, and two pods may be given it"
                f" — leave one of them out: `resources: [{{match: {{resource_name: {name}}}, advertise: false}}]`"
            )
