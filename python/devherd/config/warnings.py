"""Valid settings that have no effect, whatever the host: rules that match nothing, options that another one overrides.

`devherd check-config` prints them, an instance logs and shows them. What has none on this host alone is found by
`offers/unused.py`.
"""

from collections.abc import Collection, Iterator
from fnmatch import fnmatchcase

from devherd.config import unknown_names
from devherd.config.errors import place
from devherd.config.model import Config, ResourceRule, Sharing
from devherd.config.problem import Location, Problem, key_path
from devherd.config.selectors import Match

_MOST_COMPARED = 500
"""Rules that are compared with each other."""
_WILD = frozenset("*?[")


def warnings_of(config: Config) -> Iterator[Problem]:
    """What has no effect, and what to do."""
    yield from _of_strategies(config.vendors.nvidia.device_list_strategy)
    yield from _of_generic(config)
    for number, health_rule in enumerate(config.health.rules):
        yield from unknown_names.doubts(("health", "rules", number, "match"), health_rule.match)
    for number, rule in enumerate(config.resources):
        yield from _of_rule(("resources", number), rule)
        yield from _of_order(number, config.resources)
        yield from unknown_names.doubts(("resources", number, "match"), rule.match)
    for number, external in enumerate(config.health.external):
        yield from unknown_names.doubts(("health", "external", number, "match"), external.match)


def placed(config: Config, problem: Problem) -> str:
    """A warning as a line: file, line and column, key path, what has no effect — what to do."""
    return f"{place_of(config, problem.location)}: {problem.what} — {problem.cure}"


def place_of(config: Config, location: Location) -> str:
    """File, line, column and key path; the path alone where there is no file."""
    where = f"{place(str(config.source), config.positions, location)}: " if config.source else ""
    return f"{where}{key_path(location)}"


def _of_strategies(strategies: Collection[str]) -> Iterator[Problem]:
    if {"envvar", "volume-mounts"} <= set(strategies):
        yield Problem(
            ("vendors", "nvidia", "device_list_strategy"),
            "`envvar` has no effect together with `volume-mounts`, which sets NVIDIA_VISIBLE_DEVICES to the directory"
            " of the mounts",
            "remove one of them",
        )


def _of_generic(config: Config) -> Iterator[Problem]:
    """A group is known to the kubelet by its paths: the same ones under the same name make the same device ids."""
    first: dict[str, Location] = {}
    for number, resource in enumerate(config.generic):
        for index, group in enumerate(resource.groups):
            location: Location = ("generic", number, "groups", index)
            members = group.model_dump_json(exclude={"count"})
            earlier = first.setdefault(f"{resource.name} {members}", location)
            if earlier != location:
                what = f"the same devices as {key_path(earlier)} under the same name"
                yield Problem(location, what, "remove it, and raise `count` there")


def _of_rule(location: Location, rule: ResourceRule) -> Iterator[Problem]:
    """Parts of a rule that another part makes idle."""
    sharing = (*location, "sharing")
    if not rule.advertise:
        idle = [("name", rule.name), ("sharing", rule.sharing != Sharing()), ("preferred", rule.preferred)]
        for key in (key for key, given in idle if given):
            yield Problem((*location, key), "no effect: `advertise: false` leaves the devices out", "remove it")
        return
    shared = rule.sharing
    if rule.name and shared.rename and shared.replicas > 1 and shared.strategy == "time_slicing":
        yield Problem((*location, "name"), "no effect: `sharing.rename` is the name of what is shared", "remove one")
    if shared.replicas == 1:
        for key, given in (("rename", shared.rename), ("strategy", shared.strategy != "time_slicing")):
            if given:
                yield Problem((*sharing, key), "no effect: `replicas` is 1, so nothing is shared", "give `replicas`")


def _of_order(number: int, rules: list[ResourceRule]) -> Iterator[Problem]:
    """The first rule that matches a device decides."""
    for earlier in range(number if number < _MOST_COMPARED else 0):
        if _covers(rules[earlier].match, rules[number].match):
            what = f"never reached: resources[{earlier}] matches every device that it matches"
            yield Problem(("resources", number), what, "move it before that rule, or remove it")
            return


def _covers(first: Match, later: Match) -> bool:
    """Whether the first matches every device that the later one matches, as far as their text tells."""
    if first.exclude:
        return False
    wanted = later.patterns()
    return all(
        fact in wanted and all(any(_is_within(glob, wider) for wider in globs) for glob in wanted[fact])
        for fact, globs in first.patterns().items()
    )


def _is_within(glob: str, wider: str) -> bool:
    """Whether each text that fits a glob fits the other one as well, where that is plain to see."""
    if glob == wider or not _WILD & set(glob):
        return glob == wider or fnmatchcase(glob, wider)
    return wider.endswith("*") and not _WILD & set(wider[:-1]) and glob.startswith(wider[:-1])
