"""What is wrong with a configuration of valid keys: some cannot go together, some name what does not exist. Pure."""

from collections.abc import Iterator, Sequence

from devherd.config import unknown_names, unknown_reasons
from devherd.config.external import External
from devherd.config.model import Config, ResourceRule, SimulatedDevice
from devherd.config.problem import Location, Problem, key_path

MOST_MPS_REPLICAS = 48
"""MPS clients of one GPU, <https://docs.nvidia.com/deploy/mps/>."""


def conflicts(config: Config) -> list[Problem]:
    """All that are found."""
    return [
        *_unknown_names(config),
        *_sharing(config),
        *_repeated(("simulated",), config.simulated, "merge the two entries or rename one"),
        *_repeated(("health", "external"), config.health.external, "rename one"),
    ]


def _unknown_names(config: Config) -> Iterator[Problem]:
    for number, rule in enumerate(config.resources):
        yield from unknown_names.errors(("resources", number, "match"), rule.match)
    for number, external in enumerate(config.health.external):
        yield from unknown_names.errors(("health", "external", number, "match"), external.match)
    for number, health_rule in enumerate(config.health.rules):
        yield from unknown_names.errors(("health", "rules", number, "match"), health_rule.match)
    yield from unknown_reasons.errors(config.health)


def _sharing(config: Config) -> Iterator[Problem]:
    for number, rule in enumerate(config.resources):
        if rule.sharing.strategy == "mps" and rule.sharing.replicas > 1:
            yield from _mps_errors(("resources", number, "sharing"), config, rule)


def _mps_errors(location: Location, config: Config, rule: ResourceRule) -> Iterator[Problem]:
    nvidia, strategy = config.vendors.nvidia, (*location, "strategy")
    if not unknown_names.is_about("nvidia", rule.match):
        yield Problem(strategy, "MPS is NVIDIA's, and this rule is about others", "remove it, or use `time_slicing`")
        return
    if nvidia.mps_root is None:
        cure = "give `vendors.nvidia.mps_root`, the directory of MPS's control daemon"
        yield Problem(strategy, "where MPS's control daemon is, is not known", cure)
    if nvidia.mig_strategy == "mixed":
        yield Problem(
            strategy, "MPS cannot share MIG devices, but `vendors.nvidia.mig_strategy` is `mixed`", "change one of them"
        )
    if rule.sharing.replicas > MOST_MPS_REPLICAS:
        yield Problem(
            (*location, "replicas"),
            f"`{rule.sharing.replicas}` is too large: MPS serves at most {MOST_MPS_REPLICAS} clients per GPU",
            f"give at most `{MOST_MPS_REPLICAS}`",
        )


def _repeated(location: Location, entries: Sequence[SimulatedDevice | External], cure: str) -> Iterator[Problem]:
    """Of two entries of one name only one would be there: its devices have the same ids, its source the same file."""
    first: dict[str, int] = {}
    for number, entry in enumerate(entries):
        earlier = first.setdefault(entry.name, number)
        if earlier != number:
            place = key_path((*location, earlier))
            yield Problem((*location, number, "name"), f"`{entry.name}` is already the name of {place}", cure)
