"""Keys of a configuration that cannot go together, each of them right by itself. Pure."""

from collections.abc import Iterator

from devherd.config.model import Config, ResourceRule

MOST_MPS_REPLICAS = 48
"""MPS clients of one GPU, <https://docs.nvidia.com/deploy/mps/>."""


def contradictions(config: Config) -> list[str]:
    """One line each: key path and what is wrong."""
    return [
        f"resources[{number}].sharing.{error}"
        for number, rule in enumerate(config.resources)
        for error in _mps_errors(config, rule)
    ]


def _mps_errors(config: Config, rule: ResourceRule) -> Iterator[str]:
    if rule.sharing.strategy != "mps" or rule.sharing.replicas == 1:
        return
    nvidia = config.vendors.nvidia
    if nvidia.mps_root is None:
        yield "strategy: MPS needs `vendors.nvidia.mps_root`, where its control daemon is"
    if nvidia.mig_strategy == "mixed":
        yield "strategy: MPS shares no MIG devices, and `vendors.nvidia.mig_strategy` is `mixed`"
    if rule.sharing.replicas > MOST_MPS_REPLICAS:
        yield f"replicas: MPS serves at most {MOST_MPS_REPLICAS} clients of a GPU"
