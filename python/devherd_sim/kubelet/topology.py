"""The topology manager: merges the hints of a container's resources and admits it or not, by policy (scope container).

Source of the rules: pkg/kubelet/cm/topologymanager in Kubernetes 1.36, without policy options.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from itertools import product
from operator import and_
from typing import Literal, get_args

from devherd.errors import UsageError
from devherd_sim.kubelet.allocation import TopologyAffinityError
from devherd_sim.kubelet.numa_hints import Hint, mask_of

Policy = Literal["none", "best-effort", "restricted", "single-numa-node"]
POLICIES: tuple[Policy, ...] = get_args(Policy)
MOST_NODES = 8  # with more, a kubelet with a policy refuses to start unless max-allowable-numa-nodes is raised

Wishes = Mapping[str, Sequence[Hint] | None]
"""The hints for each resource of a container; None for one whose devices have no node."""


class Topology:
    """A machine with NUMA nodes 0 to N-1, and a policy."""

    def __init__(self, policy: Policy = "none", numa_nodes: int = 1) -> None:
        if policy != "none" and numa_nodes > MOST_NODES:
            raise UsageError(
                f"{numa_nodes} NUMA nodes are too many for the policy {policy}",
                f"a kubelet refuses more than {MOST_NODES}",
                "give fewer nodes or the policy none",
            )
        self.policy = policy
        self.machine = mask_of(range(numa_nodes))
        self.numa_nodes = numa_nodes

    def affinity(self, wishes: Wishes) -> int | None:
        """The nodes that a container's devices should come from, None for any. Raises TopologyAffinityError."""
        if self.policy == "none":
            return None
        choices = [_choices(hints) for hints in wishes.values()] or [[Hint(None, preferred=True)]]
        if self.policy == "single-numa-node":
            choices = [[hint for hint in hints if _is_of_one_node(hint)] for hints in choices]
        best = self._best(choices)
        if self.policy != "best-effort" and not best.preferred:
            raise TopologyAffinityError
        return None if self.policy == "single-numa-node" and best.nodes == self.machine else best.nodes

    def _best(self, choices: Sequence[Sequence[Hint]]) -> Hint:
        """The best of all ways to take one hint of each resource."""
        widest = max((_narrowest(hints) for hints in choices), default=0)
        merged = (self._merged(way) for way in product(*choices))
        possible = [hint for hint in merged if hint.nodes]
        if not possible:
            return Hint(self.machine, preferred=False)
        return min(possible, key=lambda hint: _rank(hint, widest))

    def _merged(self, hints: Iterable[Hint]) -> Hint:
        """The nodes that all share. Preferred only where each is and all are the same."""
        taken = list(hints)
        masks = [hint.nodes for hint in taken if hint.nodes is not None]
        return Hint(
            reduce(and_, masks, self.machine), preferred=all(hint.preferred for hint in taken) and len(set(masks)) <= 1
        )


def _choices(hints: Sequence[Hint] | None) -> Sequence[Hint]:
    """Any node suits a resource without nodes; a resource that cannot be served is served badly by any."""
    if hints is None:
        return [Hint(None, preferred=True)]
    return hints or [Hint(None, preferred=False)]


def _is_of_one_node(hint: Hint) -> bool:
    return hint.preferred and (hint.nodes is None or hint.nodes.bit_count() == 1)


def _narrowest(hints: Iterable[Hint]) -> int:
    return min((hint.nodes.bit_count() for hint in hints if hint.nodes), default=0)


def _rank(hint: Hint, widest: int) -> tuple[bool, bool, int, int]:
    """The less, the better: preferred first and narrow; of the others those next below the widest need, then above.

    Of two sets of one size the one with the lower nodes is the narrower.
    """
    nodes = hint.nodes or 0
    size = nodes.bit_count()
    if hint.preferred or size > widest:
        return not hint.preferred, not hint.preferred, size, nodes
    return True, False, widest - size, nodes
