"""What is wrong with a configuration of valid keys: some cannot go together, some name what does not exist. Pure."""

from collections.abc import Iterator

from devherd.config import unknown_names, unknown_reasons
from devherd.config.model import Config, ResourceRule

MOST_MPS_REPLICAS = 48
"""MPS clients of one GPU, <https://docs.nvidia.com/deploy/mps/>."""


def conflicts(config: Config) -> list[str]:
    """One line each: key path and what is wrong."""
    return [*_unknown_names(config), *_sharing(config), *_repeated_names(config), *_repeated_sources(config)]


def _unknown_names(config: Config) -> Iterator[str]:
    for number, rule in enumerate(config.resources):
        yield from unknown_names.errors(f"resources[{number}].match", rule.match)
    for number, external in enumerate(config.health.external):
        yield from unknown_names.errors(f"health.external[{number}].match", external.match)
    for number, health_rule in enumerate(config.health.rules):
        yield from unknown_names.errors(f"health.rules[{number}].match", health_rule.match)
    yield from unknown_reasons.errors(config.health)


def _sharing(config: Config) -> Iterator[str]:
    for number, rule in enumerate(config.resources):
        for error in _mps_errors(config, rule):
            yield f"resources[{number}].sharing.{error}"


def _mps_errors(config: Config, rule: ResourceRule) -> Iterator[str]:
    if rule.sharing.strategy != "mps" or rule.sharing.replicas == 1:
        return
    nvidia = config.vendors.nvidia
    if nvidia.mps_root is None:
        yield "strategy: MPS needs `vendors.nvidia.mps_root`, the directory of its control daemon"
    if nvidia.mig_strategy == "mixed":
        yield "strategy: MPS cannot share MIG devices, but `vendors.nvidia.mig_strategy` is `mixed`"
    if rule.sharing.replicas > MOST_MPS_REPLICAS:
        yield f"replicas: MPS serves at most {MOST_MPS_REPLICAS} clients per GPU"


def _repeated_names(config: Config) -> Iterator[str]:
    """Simulated devices are numbered by resource: a second entry of one name would make the same ids."""
    first: dict[str, int] = {}
    for number, resource in enumerate(config.simulated):
        if first.setdefault(resource.name, number) != number:
            yield (
                f"simulated[{number}].name: `{resource.name}` is already defined in simulated[{first[resource.name]}];"
                " merge the two entries or rename one"
            )


def _repeated_sources(config: Config) -> Iterator[str]:
    """Each is a source, with a process and a findings file of its own."""
    first: dict[str, int] = {}
    for number, external in enumerate(config.health.external):
        if first.setdefault(external.name, number) != number:
            earlier = f"health.external[{first[external.name]}]"
            yield f"health.external[{number}].name: `{external.name}` is already that of {earlier}; rename one"
