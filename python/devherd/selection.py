"""Which devices a selector of the configuration means."""

from collections.abc import Mapping
from fnmatch import fnmatchcase

from devherd.config.resolved import Match, Selector
from devherd.inventory import Entry


def facts_of(entry: Entry) -> dict[str, str]:
    """What selectors may name: the device's attributes, and these of every device; vendors as the file has them."""
    return entry.device.attributes | {
        "vendor": entry.vendor.replace("-", "_"),
        "id": entry.device.id,
        "resource_name": entry.resource_name,
    }


def is_meant(match: Match, facts: Mapping[str, str]) -> bool:
    """Whether a device with these facts fits, and none of the exceptions."""
    return matches(match, facts) and not any(matches(exception, facts) for exception in match.exclude)


def matches(selector: Selector, facts: Mapping[str, str]) -> bool:
    """Whether a device has every fact of the selector, and each fits one of its globs; case-sensitive."""
    return all(fact in facts and fits(facts[fact], globs) for fact, globs in selector.patterns().items())


def fits(word: str, globs: list[str]) -> bool:
    """Whether one of these globs fits; case-sensitive."""
    return any(fnmatchcase(word, glob) for glob in globs)
