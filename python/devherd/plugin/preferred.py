"""Which of the free devices a container had best be given: those on the fewest NUMA nodes. Pure and deterministic.

The kubelet takes the answer as a hint, but fills up at random when it is short: so it always has the exact size.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence

NumaNodes = frozenset[int]


def preferred(
    available: Collection[str], required: Sequence[str], size: int, healthy: Mapping[str, NumaNodes]
) -> list[str]:
    """`size` of the available ids, the required ones among them; all there are when there are fewer.

    `healthy` has the NUMA nodes of every device that can be allocated, in natural order of id. What is available but
    not there (the kubelet's list may be an older one) is taken last.
    """
    if size <= 0:
        return []
    kept = dict.fromkeys(required)
    offered = {device_id for device_id in available if device_id not in kept}
    free = {device_id: nodes for device_id, nodes in healthy.items() if device_id in offered}
    covered = NumaNodes().union(*(healthy.get(device_id, NumaNodes()) for device_id in kept))
    chosen = [*kept, *_packed(free, size - len(kept), covered)]
    chosen += sorted(offered - free.keys())[: max(0, size - len(chosen))]
    return chosen


def _packed(free: Mapping[str, NumaNodes], wanted: int, covered: NumaNodes) -> list[str]:
    """At most `wanted` of the free devices: those on the nodes that are in use already, then node by node."""
    by_nodes: dict[NumaNodes, list[str]] = {}
    for device_id, nodes in free.items():
        by_nodes.setdefault(nodes, []).append(device_id)
    chosen = list(_take(by_nodes, covered))
    while len(chosen) < wanted and by_nodes:
        covered |= _next_nodes(by_nodes, wanted - len(chosen), covered)
        chosen += _take(by_nodes, covered)
    return chosen[: max(0, wanted)]


def _take(by_nodes: dict[NumaNodes, list[str]], covered: NumaNodes) -> Iterator[str]:
    for nodes in [nodes for nodes in by_nodes if nodes <= covered]:
        yield from by_nodes.pop(nodes)


def _next_nodes(by_nodes: Mapping[NumaNodes, list[str]], missing: int, covered: NumaNodes) -> NumaNodes:
    """The nodes to open next: the smallest that suffice, so that large ones stay whole, otherwise the largest."""

    def gain(nodes: NumaNodes) -> int:
        return sum(len(ids) for others, ids in by_nodes.items() if others <= covered | nodes)

    def smallest(nodes: NumaNodes) -> tuple[int, int, list[int]]:
        return len(nodes - covered), gain(nodes), sorted(nodes)

    def largest(nodes: NumaNodes) -> tuple[float, list[int]]:
        return -gain(nodes) / len(nodes - covered), sorted(nodes)

    sufficient = [nodes for nodes in by_nodes if gain(nodes) >= missing]
    return min(sufficient, key=smallest) if sufficient else min(by_nodes, key=largest)
