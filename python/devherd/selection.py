"""Which devices a selector of the configuration means: by facts, each with globs. Pure."""

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from devherd.config.resolved import Match, Selector

if TYPE_CHECKING:
    from devherd.inventory import Entry


def selects(match: Match, facts: Mapping[str, str]) -> bool:
    """Whether it means a device with these facts, and excludes it by none of its exceptions."""
    return fits(match, facts) and not any(fits(exception, facts) for exception in match.exclude)


def fits(selector: Selector, facts: Mapping[str, str]) -> bool:
    """Whether the device has every fact of the selector, and each fits one of its globs; case-sensitive."""
    return all(fact in facts and fits_any(facts[fact], globs) for fact, globs in selector.patterns().items())


def fits_any(word: str, globs: Iterable[str]) -> bool:
    """Whether a word fits one of these globs; case-sensitive."""
    return any(fnmatchcase(word, glob) for glob in globs)


def facts_of(entry: "Entry") -> dict[str, str]:
    """What selectors may name: the device's attributes, and these of every device; vendors as the file has them."""
    return entry.device.attributes | {
        "vendor": entry.vendor.replace("-", "_"),
        "id": entry.device.id,
        "resource_name": entry.resource_name,
    }
