"""What a configuration may say and what can have no effect: rules that match nothing, strategies that are overruled.

`devherd check-config` tells.
"""

import difflib
from collections.abc import Collection, Iterator
from fnmatch import fnmatchcase

from devherd.config import facts
from devherd.config.model import Config, ResourceRule, Selector


def doubts(config: Config) -> Iterator[str]:
    """One line each: key path, what cannot be — and what to do."""
    yield from _of_strategies(config.vendors.nvidia.device_list_strategy)
    catch_all = None
    for number, rule in enumerate(config.resources):
        place = f"resources[{number}]"
        if catch_all is not None:
            yield f"{place}: never used, for {catch_all} matches every device before it — put the narrower rule first"
        elif _matches_everything(rule):
            catch_all = place
        yield from _of_selector(f"{place}.match", rule.match)
        for index, exception in enumerate(rule.match.exclude):
            yield from _of_selector(f"{place}.match.exclude[{index}]", exception)


def _of_strategies(strategies: Collection[str]) -> Iterator[str]:
    if {"envvar", "volume-mounts"} <= set(strategies):
        yield (
            "vendors.nvidia.device_list_strategy: `envvar` has no effect beside `volume-mounts`, for which"
            " NVIDIA_VISIBLE_DEVICES is the directory of the mounts — leave one of them out"
        )


def _matches_everything(rule: ResourceRule) -> bool:
    return not rule.match.patterns() and not rule.match.exclude


def _of_selector(place: str, selector: Selector) -> Iterator[str]:
    patterns = selector.patterns()
    vendors = list(facts.OF_VENDOR)
    for glob in patterns.get("vendor", ()):
        if not any(fnmatchcase(vendor, glob) for vendor in vendors):
            yield f"{place}.vendor: no vendor fits `{glob}` — {_meant(glob, vendors)}"
    meant = [vendor for vendor in vendors if _is_meant(vendor, patterns)] or vendors
    whose = "no vendor" if meant == vendors else f"no device of {' or '.join(meant)}"
    known = [*facts.OF_EVERY_DEVICE, *dict.fromkeys(fact for vendor in meant for fact in facts.OF_VENDOR[vendor])]
    for fact, globs in patterns.items():
        if fact not in known:
            yield f"{place}.{fact}: {whose} has this fact — {_meant(fact, known)}"
        for glob in globs:
            if not facts.can_match(fact, glob):
                form = facts.EXAMPLES[fact][0]
                yield f"{place}.{fact}: no value can fit `{glob}` — values are like `{form}`, whole and in lower case"


def _is_meant(vendor: str, patterns: dict[str, list[str]]) -> bool:
    return "vendor" not in patterns or any(fnmatchcase(vendor, glob) for glob in patterns["vendor"])


def _meant(word: str, known: list[str]) -> str:
    close = difflib.get_close_matches(word, known, n=3)
    return f"did you mean {_listed(close)}?" if close else f"there are {_listed(known)}"


def _listed(words: list[str]) -> str:
    return ", ".join(f"`{word}`" for word in words)
