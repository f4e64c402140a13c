"""Which NUMA nodes a request for devices could be served from: the device manager's hints to the topology manager.

A set of nodes is a bit mask. Source of the rules: `GetTopologyHints` of pkg/kubelet/cm/devicemanager, Kubernetes 1.36.
"""

from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import combinations

from devherd_sim.kubelet.inventory import Devices


@dataclass(frozen=True, slots=True)
class Hint:
    """Some nodes, or any (None), and whether they are as few as can be."""

    nodes: int | None
    preferred: bool


def mask_of(nodes: Iterable[int]) -> int:
    """A set of nodes as bits. Numbers that no bit can stand for belong to no set."""
    mask = 0
    for node in nodes:
        mask |= 1 << node if 0 <= node < 64 else 0
    return mask


def hints(devices: Devices, free: AbstractSet[str], reusable: AbstractSet[str], count: int, machine: int) -> list[Hint]:
    """Every set of nodes that has enough free and reusable devices.

    Preferred are the sets of the size that would do if all devices were free. Empty when no set has enough.
    """
    places = {device_id: mask_of(devices.numa_nodes(device_id)) for device_id in devices.by_id}
    candidates = list(
        _subsets(mask_of(node for place in places.values() for node in _nodes(place)) & machine or machine)
    )
    fewest = max(mask.bit_count() for mask in candidates)
    found = []
    for mask in candidates:
        if sum(bool(place & mask) for place in places.values()) >= count:
            fewest = min(fewest, mask.bit_count())
        if _serves(mask, places, free, reusable, count):
            found.append(mask)
    return [Hint(mask, mask.bit_count() == fewest) for mask in found]


def _serves(mask: int, places: dict[str, int], free: AbstractSet[str], reusable: AbstractSet[str], count: int) -> bool:
    """Whether a set has enough devices, with all that are to be used again among them."""
    placed = [device_id for device_id in reusable if places.get(device_id)]
    if not all(places[device_id] & mask for device_id in placed):
        return False
    return len(placed) + sum(bool(places.get(device_id, 0) & mask) for device_id in free) >= count


def _subsets(mask: int) -> Iterator[int]:
    nodes = list(_nodes(mask))
    for size in range(1, len(nodes) + 1):
        for chosen in combinations(nodes, size):
            yield mask_of(chosen)


def _nodes(mask: int) -> Iterator[int]:
    return (node for node in range(mask.bit_length()) if mask >> node & 1)
