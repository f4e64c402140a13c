"""Rules that find records about devices in the kernel log: the shipped ones and the user's own."""

import tomllib
from collections.abc import Collection, Iterable
from functools import cache
from pathlib import Path

from devherd.records import Record

SHIPPED = Path(__file__).with_name("kernel_log_rules.toml")


class Rule(Record, kw_only=True):
    """One rule; kernel_log_rules.toml documents the fields."""

    name: str
    contains: str
    pattern: str
    vendor: str = ""
    reason: str = ""
    reason_at_link: str = ""
    evidence: str = ""
    takes_back: tuple[str, ...] = ()
    optional: bool = False
    looks: bool = False


@cache
def shipped() -> tuple[Rule, ...]:
    """The rules that come with devherd, in their order."""
    rows = tomllib.loads(SHIPPED.read_text("utf-8"))["rule"]
    return tuple(Rule(**row | {"takes_back": tuple(row.get("takes_back", ()))}) for row in rows)


def in_force(optional: Collection[str], own: Iterable[tuple[str, str, str]]) -> dict[str, Rule]:
    """Rules by name, in the order in which they are tried: shipped ones, the user's own, those that only look.

    `optional` has the names of shipped rules that are off by default; each of `own` is name, contains, pattern.
    """
    ours = [rule for rule in shipped() if not rule.optional or rule.name in optional]
    theirs = [
        Rule(name=name, contains=contains, pattern=pattern, reason="kernel-log") for name, contains, pattern in own
    ]
    return {rule.name: rule for rule in sorted([*ours, *theirs], key=lambda rule: rule.looks)}


def compiled_from(rules: Iterable[Rule]) -> list[tuple[str, str, str]]:
    """Name, `contains` and pattern of each rule, for the scan core."""
    return [(rule.name, rule.contains, rule.pattern) for rule in rules]
