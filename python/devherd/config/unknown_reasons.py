"""What rules for findings may name: sources, and the reasons that they give. Pure."""

import difflib
from collections.abc import Collection, Iterator

from devherd.config.model import HealthOptions, HealthRule
from devherd.health.registry import MEANINGS
from devherd.selection import fits_any


def errors(health: HealthOptions) -> Iterator[str]:
    """Sources and reasons that do not exist: one line each, key path and what is wrong."""
    for number, rule in enumerate(health.rules):
        yield from _of_rule(f"health.rules[{number}]", rule)


def _of_rule(place: str, rule: HealthRule) -> Iterator[str]:
    sources = {source for source, _ in MEANINGS}
    meant = {source for source in sources if not rule.source or fits_any(source, rule.source)}
    reasons = {reason for source, reason in MEANINGS if source in meant}
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
