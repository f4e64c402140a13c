"""What is wrong with a configuration of valid keys: some cannot go together, some name what does not exist. Pure."""

from collections.abc import Iterator

from devherd.config import selectors
from devherd.config.model import Config, ResourceRule

MOST_MPS_REPLICAS = 48
"""MPS clients of one GPU, <https://docs.nvidia.com/deploy/mps/>."""


def conflicts(config: Config) -> list[str]:
    """One line each: key path and what is wrong."""
    return [*_unknown_names(config), *_sharing(config), *_repeated_names(config)]


def _unknown_names(config: Config) -> Iterator[str]:
    for number, rule in enumerate(config.resources):
        yield from selectors.errors(f"resources[{number}].match", rule.match)


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
