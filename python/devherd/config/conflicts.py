"""Keys of a configuration that cannot go together, each of them valid by itself. Pure."""

import difflib
from collections.abc import Iterator
from fnmatch import fnmatchcase

from devherd.config.model import Config, ResourceRule
from devherd.health.registry import MEANINGS

MOST_MPS_REPLICAS = 48
"""MPS clients of one GPU, <https://docs.nvidia.com/deploy/mps/>."""


def conflicts(config: Config) -> list[str]:
    """One line each: key path and what is wrong."""
    return [*_sharing(config), *_repeated_names(config), *_health_rules(config)]


def _health_rules(config: Config) -> Iterator[str]:
    """A rule for a source or a reason that there is not would never be heard of."""
    for number, rule in enumerate(config.health.rules):
        place = f"health.rules[{number}]"
        meant = [source for source in dict.fromkeys(source for source, _ in MEANINGS) if _fits(source, rule.source)]
        for glob in rule.source:
            known = sorted({source for source, _ in MEANINGS})
            if not any(fnmatchcase(source, glob) for source in known):
                yield f"{place}.source: no source is called `{glob}`{_suggestion(glob, known)}"
        for glob in rule.reason if meant else ():
            known = sorted({reason for source, reason in MEANINGS if source in meant})
            if not any(fnmatchcase(reason, glob) for reason in known):
                whose = f"source `{meant[0]}`" if len(meant) == 1 else "any source"
                yield f"{place}.reason: `{glob}` is no reason of {whose}{_suggestion(glob, known)}"


def _fits(word: str, globs: list[str]) -> bool:
    return not globs or any(fnmatchcase(word, glob) for glob in globs)


def _suggestion(word: str, known: list[str]) -> str:
    close = difflib.get_close_matches(word, known, n=1)
    return f"; did you mean `{close[0]}`?" if close else f"; known: {', '.join(f'`{name}`' for name in known)}"


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
