"""Which records of the kernel log say something about a device: the shipped rules and the user's own."""

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from devherd.config.resolved import KernelLogOptions

SHIPPED = Path(__file__).with_name("kernel_log_rules.toml")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One rule; kernel_log_rules.toml documents the fields."""

    name: str
    contains: str
    pattern: str
    vendor: str = ""
    reason: str = ""
    evidence: str = ""
    takes_back: str = ""
    optional: bool = False


@cache
def shipped() -> tuple[Rule, ...]:
    """The rules that come with devherd, in their order."""
    return tuple(Rule(**row) for row in tomllib.loads(SHIPPED.read_text("utf-8"))["rule"])


def in_force(options: KernelLogOptions) -> dict[str, Rule]:
    """The rules under the configuration by name, in their order: what is the user's own comes last."""
    ours = [rule for rule in shipped() if not rule.optional or rule.name in options.optional]
    theirs = [
        Rule(name=rule.name, contains=rule.contains, pattern=rule.pattern, reason="kernel-log")
        for rule in options.rules
    ]
    return {rule.name: rule for rule in [*ours, *theirs]}


def compiled_from(rules: Iterable[Rule]) -> list[tuple[str, str, str]]:
    """What the scan core needs of them."""
    return [(rule.name, rule.contains, rule.pattern) for rule in rules]
