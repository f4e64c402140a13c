"""What selectors of devices may name: vendors, and the facts that their devices have. Pure."""

from collections.abc import Iterator
from fnmatch import fnmatchcase

from devherd.config import facts
from devherd.config.meant import meant
from devherd.config.problem import Location, Problem
from devherd.config.selectors import Match, Selector


def errors(location: Location, match: Match) -> Iterator[Problem]:
    """Vendors and facts that do not exist."""
    for where, selector in _parts(location, match):
        yield from _unknown_names(where, selector)


def doubts(location: Location, match: Match) -> Iterator[Problem]:
    """Values that no device can have."""
    for where, selector in _parts(location, match):
        for fact, globs in selector.patterns().items():
            for glob in globs:
                if not facts.can_match(fact, glob):
                    form = f"values look like `{facts.EXAMPLES[fact][0]}`, in full and lower case"
                    yield Problem((*where, fact), f"`{glob}` can never match", form)


def _parts(location: Location, match: Match) -> Iterator[tuple[Location, Selector]]:
    yield location, match
    for index, exception in enumerate(match.exclude):
        yield (*location, "exclude", index), exception


def _unknown_names(location: Location, selector: Selector) -> Iterator[Problem]:
    patterns = selector.patterns()
    vendors = list(facts.OF_VENDOR)
    for glob in patterns.get("vendor", ()):
        if not any(fnmatchcase(vendor, glob) for vendor in vendors):
            yield Problem((*location, "vendor"), f"no vendor matches `{glob}`", meant(glob, vendors))
    chosen = [vendor for vendor in vendors if is_about(vendor, selector)] or vendors
    whose = "no vendor has" if chosen == vendors else f"devices of {' or '.join(chosen)} do not have"
    known = [*facts.OF_EVERY_DEVICE, *dict.fromkeys(fact for vendor in chosen for fact in facts.OF_VENDOR[vendor])]
    for fact in patterns:
        if fact not in known:
            yield Problem((*location, fact), f"{whose} this fact", meant(fact, [*known, "exclude"]), at_key=True)


def is_about(vendor: str, selector: Selector) -> bool:
    """Whether a vendor's devices can be meant."""
    globs = selector.patterns().get("vendor")
    return globs is None or any(fnmatchcase(vendor, glob) for glob in globs)
