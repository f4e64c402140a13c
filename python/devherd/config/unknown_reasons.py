"""What rules for findings may name: sources, and the reasons that they give. Pure."""

import difflib
from collections.abc import Collection, Iterator

from devherd.config.health_rule import HealthRule
from devherd.config.model import HealthOptions
from devherd.health import registry
from devherd.health.sources import EXTERNAL
from devherd.selection import fits_any


def errors(health: HealthOptions) -> Iterator[str]:
    """Sources and reasons that do not exist: one line each, key path and what is wrong."""
    said = {(f"{EXTERNAL}{external.name}", registry.EXTERNAL) for external in health.external}
    for number, rule in enumerate(health.rules):
        yield from _of_rule(f"health.rules[{number}]", rule, said.union(registry.MEANINGS))


def _of_rule(place: str, rule: HealthRule, said: Collection[tuple[str, str]]) -> Iterator[str]:
    sources = {source for source, _ in said}
    meant = {source for source in sources if not rule.source or fits_any(source, rule.source)}
    reasons = {reason for source, reason in said if source in meant}
    for glob in rule.source:
        if not any(fits_any(source, [glob]) for source in sources):
            yield f"{place}.source: no source is called `{glob}`; {_meant(glob, sources)}"
    for glob in rule.reason if meant else ():
        if not any(fits_any(reason, [glob]) for reason in reasons):
            whose = f"source `{next(iter(meant))}`" if len(meant) == 1 else "these sources"
            yield f"{place}.reason: `{glob}` is no reason of {whose}; {_meant(glob, reasons)}"


def _meant(word: str, known: Collection[str]) -> str:
    close = difflib.get_close_matches(word, known, n=1) or sorted(known)
    listed = ", ".join(f"`{name}`" for name in close)
    return f"did you mean {listed}?" if len(close) == 1 else f"known: {listed}"
