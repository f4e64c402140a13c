"""The topology manager: NUMA hints of a container's resources, merged and admitted by policy (scope container)."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import reduce
from itertools import combinations, product
from operator import and_
from typing import Literal, get_args

from devherd.errors import UsageError
from devherd_sim.kubelet.ledger import Devices
from devherd_sim.kubelet.pod import TopologyAffinityError


@dataclass(frozen=True, slots=True)
class Hint:
    """A bit mask of nodes (None: any), and whether it has as few nodes as possible."""

    nodes: int | None
    preferred: bool


def mask_of(nodes: Iterable[int]) -> int:
    """The bit mask of a set of nodes. Ignores numbers outside 0 to 63."""
    mask = 0
    for node in nodes:
        mask |= 1 << node if 0 <= node < 64 else 0
    return mask


def hints(devices: Devices, free: AbstractSet[str], reusable: AbstractSet[str], count: int, machine: int) -> list[Hint]:
    """A hint for every set of nodes that has enough free and reusable devices; empty when there is none.

    A hint is preferred if its set has the smallest size that would suffice if all devices were free.
    """
    places = {device_id: mask_of(devices.numa_nodes(device_id)) for device_id in devices.by_id}
    placed = {device_id for device_id in reusable if devices.has_topology(device_id)}
    candidates = list(
        _subsets(mask_of(node for place in places.values() for node in _nodes(place)) & machine or machine)
    )
    fewest = max(mask.bit_count() for mask in candidates)
    found = []
    for mask in candidates:
        if sum(bool(place & mask) for place in places.values()) >= count:
            fewest = min(fewest, mask.bit_count())
        if _serves(mask, places, free, placed, count):
            found.append(mask)
    return [Hint(mask, mask.bit_count() == fewest) for mask in found]


def _serves(mask: int, places: dict[str, int], free: AbstractSet[str], reusable: AbstractSet[str], count: int) -> bool:
    """True if a set has `count` devices, including all that have to be reused."""
    if not all(places[device_id] & mask for device_id in reusable):
        return False
    return len(reusable) + sum(bool(places.get(device_id, 0) & mask) for device_id in free) >= count


def _subsets(mask: int) -> Iterator[int]:
    nodes = list(_nodes(mask))
    for size in range(1, len(nodes) + 1):
        for chosen in combinations(nodes, size):
            yield mask_of(chosen)


def _nodes(mask: int) -> Iterator[int]:
    return (node for node in range(mask.bit_length()) if mask >> node & 1)


Policy = Literal["none", "best-effort", "restricted", "single-numa-node"]
POLICIES: tuple[Policy, ...] = get_args(Policy)
MOST_NODES = 8  # with more, a kubelet with a policy refuses to start unless max-allowable-numa-nodes is raised

Wishes = Mapping[str, Sequence[Hint] | None]
"""The hints for each resource of a container; None for a resource whose devices have no node."""


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
        """Bit mask of the nodes to take a container's devices from, None for any. Raises TopologyAffinityError."""
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
        """The best merged hint of all combinations of one hint per resource."""
        widest = max((_narrowest(hints) for hints in choices), default=0)
        merged = (self._merged(way) for way in product(*choices))
        possible = [hint for hint in merged if hint.nodes]
        if not possible:
            return Hint(self.machine, preferred=False)
        return min(possible, key=lambda hint: _rank(hint, widest))

    def _merged(self, hints: Iterable[Hint]) -> Hint:
        """The nodes common to all hints; preferred only if each hint is preferred and all are equal."""
        taken = list(hints)
        masks = [hint.nodes for hint in taken if hint.nodes is not None]
        return Hint(
            reduce(and_, masks, self.machine), preferred=all(hint.preferred for hint in taken) and len(set(masks)) <= 1
        )


def _choices(hints: Sequence[Hint] | None) -> Sequence[Hint]:
    """The hints of a resource: any node, preferred, for None; any node, not preferred, for an empty list."""
    if hints is None:
        return [Hint(None, preferred=True)]
    return hints or [Hint(None, preferred=False)]


def _is_of_one_node(hint: Hint) -> bool:
    return hint.preferred and (hint.nodes is None or hint.nodes.bit_count() == 1)


def _narrowest(hints: Iterable[Hint]) -> int:
    return min((hint.nodes.bit_count() for hint in hints if hint.nodes), default=0)


def _rank(hint: Hint, widest: int) -> tuple[bool, bool, int, int]:
    """The sort key of a hint: preferred ones by size, then others from `widest` nodes downwards, then larger ones.

    Of two sets of the same size the one with the lower nodes comes first.
    """
    nodes = hint.nodes or 0
    size = nodes.bit_count()
    if hint.preferred or size > widest:
        return not hint.preferred, not hint.preferred, size, nodes
    return True, False, widest - size, nodes
