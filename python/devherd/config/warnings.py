"""Valid settings that have no effect: rules that match nothing, options that another one overrides.

`devherd check-config` prints them, an instance logs and shows them.
"""

from collections.abc import Collection, Iterator

from devherd.config import unknown_names
from devherd.config.model import Config, ResourceRule


def warnings_of(config: Config) -> Iterator[str]:
    """One line each: key path, what has no effect — what to do."""
    yield from _of_strategies(config.vendors.nvidia.device_list_strategy)
    yield from _of_generic(config)
    for number, health_rule in enumerate(config.health.rules):
        yield from unknown_names.doubts(f"health.rules[{number}].match", health_rule.match)
    catch_all = None
    for number, rule in enumerate(config.resources):
        place = f"resources[{number}]"
        if catch_all is not None:
            yield f"{place}: unreachable: {catch_all} already matches every device — move the narrower rule first"
        elif _matches_everything(rule):
            catch_all = place
        yield from unknown_names.doubts(f"{place}.match", rule.match)
    for number, external in enumerate(config.health.external):
        yield from unknown_names.doubts(f"health.external[{number}].match", external.match)


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
