"""What rules for findings may name: sources, and the reasons that they give. Pure."""

from collections.abc import Collection, Iterator

from devherd.config.health import HealthOptions
from devherd.config.health_rule import HealthRule
from devherd.config.meant import meant
from devherd.config.problem import Location, Problem
from devherd.health import registry
from devherd.health.sources import EXTERNAL
from devherd.selection import fits_any


def errors(health: HealthOptions) -> Iterator[Problem]:
    """Sources and reasons that do not exist."""
    said = {(f"{EXTERNAL}{external.name}", registry.EXTERNAL) for external in health.external}
    for number, rule in enumerate(health.rules):
        yield from _of_rule(("health", "rules", number), rule, said.union(registry.MEANINGS))


def _of_rule(location: Location, rule: HealthRule, said: Collection[tuple[str, str]]) -> Iterator[Problem]:
    sources = {source for source, _ in said}
    chosen = {source for source in sources if not rule.source or fits_any(source, rule.source)}
    reasons = {reason for source, reason in said if source in chosen}
    for glob in rule.source:
        if not any(fits_any(source, [glob]) for source in sources):
            yield Problem((*location, "source"), f"no source is called `{glob}`", meant(glob, sorted(sources)))
    for glob in rule.reason if chosen else ():
        if not any(fits_any(reason, [glob]) for reason in reasons):
            whose = f"source `{next(iter(chosen))}`" if len(chosen) == 1 else "these sources"
            yield Problem((*location, "reason"), f"`{glob}` is not a reason of {whose}", meant(glob, sorted(reasons)))
