"""Warnings on settings that are probably mistakes on this node, and the note on MIG devices left out. Pure.

`config/checks.py` finds settings without effect on any node.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace

from devherd.config.resolved import ResolvedConfig, facts_of, selects
from devherd.config.sections import External, HealthRule, Match, ResourceRule
from devherd.inventory import DEVICE_PLUGIN, Entry
from devherd.offers.rules import Offer, Offers
from devherd.proto import spool_pb2
from devherd.text import amount

_WILD = frozenset("*?[")
GENERIC = "generic"
SIMULATED = "simulated"

Facts = Mapping[str, str]
_CAPABILITIES = "/proc/driver/nvidia/capabilities"


def config_warnings(config: ResolvedConfig, entries: Collection[Entry], offers: Offers) -> list[str]:
    """The warnings, a line each: place, mistake — cure. Without devices, only warnings about offers."""
    covered = {place for warning in config.warnings for place in _PLACE.findall(f" {warning}")}
    parts: list[HealthRule | External] = [*config.health.rules, *config.health.external]
    matches = [(part.place, part.match) for part in parts if not _is_in_order(part, covered)]
    has_matches = bool(config.resources or matches)
    way = config.way
    offered = [entry for entry in entries if way not in entry.left_out] if has_matches else []
    facts = [facts_of(entry) for entry in offered]
    awaited = frozenset(fact for entry in offered for fact in entry.device.awaited)
    hidden = [entry for entry in entries if way in entry.left_out] if has_matches else []
    left_out = [(facts_of(entry), entry.left_out[way]) for entry in hidden]
    return [
        *(_idle_rules(config, facts, left_out, offers, covered=covered, awaited=awaited) if facts or left_out else ()),
        *(_without_devices(matches, facts, awaited) if facts else ()),
        *_simulated_beside_real(offers.offers),
        *_given_twice(offers.offers),
        *_of_several_vendors(offers.offers),
    ]


def _idle_rules(
    config: ResolvedConfig,
    facts: Collection[Facts],
    left_out: Collection[tuple[Facts, str]],
    offers: Offers,
    *,
    covered: Collection[str],
    awaited: Collection[str],
) -> Iterator[str]:
    """Warn about resource rules that apply to no device: they match none, or earlier rules match the same.

    `left_out`: the facts of devices that no rule can offer, each with the reason. `covered`: as in `_is_in_order`.
    `awaited`: names of facts whose source has not answered yet for some device.
    """
    met = set(offers.rules.values())
    for number, rule in enumerate(config.resources):
        if f"resources[{number}]" in met or _is_in_order(rule, covered):
            continue
        if any(selects(rule.match, each) for each in facts):
            if _keeps_the_rest(rule):
                continue
            yield (
                f"{rule.place}: never reached on this node: the rules before it match every device that it matches"
                " — move it before them, or remove it"
            )
        elif why := [(each, why) for each, why in left_out if selects(rule.match, each)]:
            yield f"{rule.place}: matches {_named(why)} — remove the rule, or offer other devices by it"
        elif facts:
            yield from _without_devices([(rule.place, rule.match)], facts, awaited)


def _named(left_out: Collection[tuple[Facts, str]]) -> str:
    """Devices that are left out, by the reason of the first: `only 0000:01:00.0, which is left out: …`."""
    [(first, why), *others] = left_out
    name = first.get("pci_address") or first["id"]
    more = f" and {len(others)} more, which are" if others else ", which is"
    return f"only {name}{more} left out: {why}"


def _keeps_the_rest(rule: ResourceRule) -> bool:
    """True for a rule that keeps what the rules before it leave of a vendor from being offered; none may be left."""
    return not rule.advertise and rule.match.facts.keys() <= {"vendor"} and not rule.match.exclude


_PLACE = re.compile(r" ((?:resources|health\.rules|health\.external)\[\d+\])[:.]")


def _is_in_order(part: ResourceRule | HealthRule | External, covered: Collection[str]) -> bool:
    """True if the part needs no warning: it is optional, or its key is among those that other warnings cover."""
    return part.optional or part.place.rpartition(" ")[2] in covered


def _without_devices(
    matches: Iterable[tuple[str, Match]], facts: Collection[Facts], awaited: Collection[str]
) -> Iterator[str]:
    for place, match in matches:
        if match.facts.keys().isdisjoint(awaited) and not any(selects(match, each) for each in facts):
            compare = "compare it with the facts that `devherd scan --explain` shows, or add `optional: true`"
            cure = f"did you mean `{meant}`?" if (meant := _meant(match, facts)) else compare
            yield f"{place}: matches no device of this node, which has {amount(len(facts), 'device')} — {cure}"


def _meant(match: Match, facts: Collection[Facts]) -> str:
    """The glob with which the match would have a device, where a text is part of a fact; empty without one."""
    for fact, globs in match.facts.items():
        for glob in globs:
            part = glob.strip("*")
            if not part or _WILD & set(part):
                continue
            for value in (each[fact] for each in facts if fact in each):
                at = value.lower().find(part.lower())
                written = value[at : at + len(part)]
                wider = value if len(part) == len(value) else f"*{written}*"
                if at >= 0 and wider != glob and any(selects(_with(match, fact, wider), each) for each in facts):
                    return wider
    return ""


def _with(match: Match, fact: str, glob: str) -> Match:
    return replace(match, facts={**match.facts, fact: [glob]})


def _simulated_beside_real(offers: Iterable[Offer]) -> Iterator[str]:
    for offer in offers:
        simulated = sum(one.entry.vendor == SIMULATED for one in offer.devices)
        if 0 < simulated < len(offer.devices):
            yield (
                f"simulated: `{offer.name}` has {amount(simulated, 'simulated device')} beside"
                f" {len(offer.devices) - simulated} real, and a pod that is given a simulated one has no device"
                " — give the simulated ones another name"
            )


def _of_several_vendors(offers: Iterable[Offer]) -> Iterator[str]:
    for offer in offers:
        vendors = sorted({one.entry.vendor for one in offer.devices} - {SIMULATED})
        if len(vendors) > 1:
            yield (
                f"resources: `{offer.name}` is one resource of devices of {', '.join(vendors)}, and a pod gets any of"
                " them — give each rule that names it a `vendor` in its `match`, and each vendor a name"
            )


def _given_twice(offers: Collection[Offer]) -> Iterator[str]:
    """Warn about device nodes that a generic and a vendor's device share: a line for each pair of resources."""
    if not {one.entry.vendor == GENERIC for offer in offers for one in offer.devices} >= {True, False}:
        return
    given = [
        (path.path, offer.name, one.entry)
        for offer in offers
        for one in offer.devices
        for path in one.entry.device.paths
        if path.is_node
    ]
    generic = {path: name for path, name, entry in given if entry.vendor == GENERIC}
    warned = set()
    for path, name, entry in given if generic else ():
        if entry.vendor != GENERIC and path in generic and (generic[path], name) not in warned:
            warned.add((generic[path], name))
            yield (
                f"generic: {path} of `{generic[path]}` is also part of `{name}`, and two pods may be given it"
                f" — leave one of them out: `resources: [{{match: {{resource_name: {name}}}, advertise: false}}]`"
            )


def left_out(entries: Iterable[Entry], way: str) -> list[spool_pb2.Problem]:
    """The note on MIG devices that `mig_strategy: none` leaves out of the device plugin's offers, with the cure."""
    if way != DEVICE_PLUGIN:
        return []
    candidates = (entry.device for entry in entries if entry.vendor == "nvidia" and DEVICE_PLUGIN not in entry.left_out)
    divided = [int(count) for device in candidates if (count := device.attribute("mig_devices")) is not None]
    if not divided:
        return []
    total, of_gpus = amount(sum(divided), "MIG device"), amount(len(divided), "GPU")
    note = (
        f"{total} of {of_gpus} left out, because `vendors.nvidia.mig_strategy` is `none`: set it to `mixed` or `single`"
        " to advertise MIG devices, or turn MIG mode off (`nvidia-smi -mig 0`)"
    )
    return [spool_pb2.Problem(vendor="nvidia", path=_CAPABILITIES, error=note)]
