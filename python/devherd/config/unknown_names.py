"""What selectors of devices may name: vendors, and the facts that their devices have. Pure."""

import difflib
from collections.abc import Iterator
from fnmatch import fnmatchcase

from devherd.config import facts
from devherd.config.selectors import Match, Selector


def errors(place: str, match: Match) -> Iterator[str]:
    """Vendors and facts that do not exist: one line each, key path and what is wrong."""
    for where, selector in _parts(place, match):
        yield from _unknown_names(where, selector)


def doubts(place: str, match: Match) -> Iterator[str]:
    """Values that no device can have: one line each, key path, what is doubtful, how such values look."""
    for where, selector in _parts(place, match):
        for fact, globs in selector.patterns().items():
            for glob in globs:
                if not facts.can_match(fact, glob):
                    form = f"`{facts.EXAMPLES[fact][0]}`, in full and lower case"
                    yield f"{where}.{fact}: `{glob}` can never match — values look like {form}"


def _parts(place: str, match: Match) -> Iterator[tuple[str, Selector]]:
    yield place, match
    for index, exception in enumerate(match.exclude):
        yield f"{place}.exclude[{index}]", exception


def _unknown_names(place: str, selector: Selector) -> Iterator[str]:
    patterns = selector.patterns()
    vendors = list(facts.OF_VENDOR)
    for glob in patterns.get("vendor", ()):
        if not any(fnmatchcase(vendor, glob) for vendor in vendors):
            yield f"{place}.vendor: no vendor matches `{glob}`; {_meant(glob, vendors)}"
    meant = [vendor for vendor in vendors if _is_meant(vendor, patterns)] or vendors
    whose = "no vendor has" if meant == vendors else f"devices of {' or '.join(meant)} do not have"
    known = [*facts.OF_EVERY_DEVICE, *dict.fromkeys(fact for vendor in meant for fact in facts.OF_VENDOR[vendor])]
    for fact in patterns:
        if fact not in known:
            yield f"{place}.{fact}: {whose} this fact; {_meant(fact, known)}"


def _is_meant(vendor: str, patterns: dict[str, list[str]]) -> bool:
    return "vendor" not in patterns or any(fnmatchcase(vendor, glob) for glob in patterns["vendor"])


def _meant(word: str, known: list[str]) -> str:
    close = difflib.get_close_matches(word, known, n=3)
    return f"did you mean {_listed(close)}?" if close else f"known: {_listed(known)}"


def _listed(words: list[str]) -> str:
    return ", ".join(f"`{word}`" for word in words)
