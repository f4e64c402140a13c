"""`health.rules` of the configuration: what a finding means for a device instead of what the registry says."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from devherd import selection
from devherd.health import registry
from devherd.health.registry import Meaning

if TYPE_CHECKING:
    from devherd._native import Finding
    from devherd.config.resolved import HealthRule
    from devherd.inventory import DeviceKey, Entry, Inventory


class Rules:
    """The rules, the first one that fits decides; and the devices that they are about, as they are now."""

    def __init__(self, rules: Sequence["HealthRule"], inventory: "Inventory") -> None:
        self._rules = rules
        self._inventory = inventory

    def meaning_of(self, key: "DeviceKey", finding: "Finding") -> Meaning:
        """What a finding means for a device. Raises KeyError for an unknown word."""
        meaning = registry.meaning_of(finding)
        for number, rule in enumerate(self._rules):
            if _is_about(rule, finding) and _means(rule, self._inventory.entries, key):
                return _changed(meaning, rule, rule.name or f"health.rules[{number}]")
        return meaning


def _is_about(rule: "HealthRule", finding: "Finding") -> bool:
    said = ((finding.source, rule.source), (finding.reason, rule.reason), (finding.value, rule.value))
    return all(not globs or selection.fits_any(word, globs) for word, globs in said)


def _means(rule: "HealthRule", entries: Mapping["DeviceKey", "Entry"], key: "DeviceKey") -> bool:
    """A rule for certain devices is about none that is not known."""
    if not (rule.match.facts or rule.match.exclude):
        return True
    return key in entries and selection.selects(rule.match, selection.facts_of(entries[key]))


def _changed(meaning: Meaning, rule: "HealthRule", name: str) -> Meaning:
    return replace(
        meaning,
        action=rule.action or meaning.action,
        after=meaning.after if rule.after is None else rule.after,
        hold=meaning.hold if rule.hold is None else rule.hold,
        only_when_new=meaning.only_when_new and rule.action is None,
        rule=name,
    )
