"""Valid settings that have no effect: rules that match nothing, options that another one overrides.

`devherd check-config` prints it.
"""

import difflib
from collections.abc import Collection, Iterator
from fnmatch import fnmatchcase

from devherd.config import facts
from devherd.config.model import Config, ResourceRule
from devherd.config.selectors import Match, Selector


def warnings_of(config: Config) -> Iterator[str]:
    """One line each: key path, what has no effect — what to do."""
    yield from _of_strategies(config.vendors.nvidia.device_list_strategy)
    yield from _of_generic(config)
    catch_all = None
    for number, rule in enumerate(config.resources):
        place = f"resources[{number}]"
        if catch_all is not None:
            yield f"{place}: unreachable: {catch_all} already matches every device — move the narrower rule first"
        elif _matches_everything(rule):
            catch_all = place
        yield from _of_match(f"{place}.match", rule.match)
    for number, external in enumerate(config.health.external):
        yield from _of_match(f"health.external[{number}].match", external.match)


def _of_strategies(strategies: Collection[str]) -> Iterator[str]:
    if {"envvar", "volume-mounts"} <= set(strategies):
        yield (
            "vendors.nvidia.device_list_strategy: `envvar` has no effect together with `volume-mounts`, which sets"
            " NVIDIA_VISIBLE_DEVICES to the directory of the mounts — remove one of them"
        )


def _of_generic(config: Config) -> Iterator[str]:
    """A group is known to the kubelet by its paths: the same ones under the same name make the same device ids."""
    first: dict[str, str] = {}
    for number, resource in enumerate(config.generic):
        for index, group in enumerate(resource.groups):
            place = f"generic[{number}].groups[{index}]"
            members = group.model_dump_json(exclude={"count"})
            earlier = first.setdefault(f"{resource.name} {members}", place)
            if earlier != place:
                yield f"{place}: the same devices as {earlier} under the same name — remove it, raise `count` there"


def _matches_everything(rule: ResourceRule) -> bool:
    return not rule.match.patterns() and not rule.match.exclude


def _of_match(place: str, match: Match) -> Iterator[str]:
    yield from _of_selector(place, match)
    for index, exception in enumerate(match.exclude):
        yield from _of_selector(f"{place}.exclude[{index}]", exception)


def _of_selector(place: str, selector: Selector) -> Iterator[str]:
    patterns = selector.patterns()
    vendors = list(facts.OF_VENDOR)
    for glob in patterns.get("vendor", ()):
        if not any(fnmatchcase(vendor, glob) for vendor in vendors):
            yield f"{place}.vendor: no vendor matches `{glob}` — {_meant(glob, vendors)}"
    meant = [vendor for vendor in vendors if _is_meant(vendor, patterns)] or vendors
    whose = "no vendor has" if meant == vendors else f"devices of {' or '.join(meant)} do not have"
    known = [*facts.OF_EVERY_DEVICE, *dict.fromkeys(fact for vendor in meant for fact in facts.OF_VENDOR[vendor])]
    for fact, globs in patterns.items():
        if fact not in known:
            yield f"{place}.{fact}: {whose} this fact — {_meant(fact, known)}"
        for glob in globs:
            if not facts.can_match(fact, glob):
                form = facts.EXAMPLES[fact][0]
                yield f"{place}.{fact}: `{glob}` can never match — values look like `{form}`, in full and lower case"


def _is_meant(vendor: str, patterns: dict[str, list[str]]) -> bool:
    return "vendor" not in patterns or any(fnmatchcase(vendor, glob) for glob in patterns["vendor"])


def _meant(word: str, known: list[str]) -> str:
    close = difflib.get_close_matches(word, known, n=3)
    return f"did you mean {_listed(close)}?" if close else f"known: {_listed(known)}"


def _listed(words: list[str]) -> str:
    return ", ".join(f"`{word}`" for word in words)
