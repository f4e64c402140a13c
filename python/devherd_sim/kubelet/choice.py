"""Which devices a container gets: those to be used again, then those of the right NUMA nodes, then any.

The order, the calls of GetPreferredAllocation and the texts are those of `devicesToAllocate` in
pkg/kubelet/cm/devicemanager, Kubernetes 1.36. Where the kubelet takes any of a set, so does this, at random.
"""

import random
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from devherd_sim.kubelet.allocation import AdmissionError
from devherd_sim.kubelet.endpoint import Endpoint
from devherd_sim.kubelet.inventory import Devices
from devherd_sim.kubelet.ledger import Ledger
from devherd_sim.kubelet.numa_hints import mask_of


@dataclass(frozen=True, slots=True)
class Wish:
    """What a container asks for of one resource."""

    resource: str
    count: int
    reusable: AbstractSet[str] = frozenset()
    """What earlier init containers of the pod have left."""
    nodes: int | None = None
    """The NUMA nodes to take from, as the topology manager has it; None for any."""


class Choice:
    """One choice. What is chosen is marked as in use at once, also if the choice fails later."""

    def __init__(self, wish: Wish, devices: Devices, endpoint: Endpoint | None, ledger: Ledger) -> None:
        self._wish = wish
        self._devices = devices
        self._endpoint = endpoint
        self._ledger = ledger
        self._chosen: set[str] = set()

    async def make(self) -> set[str]:
        """As many devices as requested. Raises AdmissionError, and PluginError for the plugin."""
        if self._take(self._wish.reusable):
            return self._chosen
        free = self._devices.healthy - self._ledger.in_use(self._wish.resource)
        if len(free) < self._missing:
            raise AdmissionError(
                f"requested number of devices unavailable for {self._wish.resource}. "
                f"Requested: {self._missing}, Available: {len(free)}"
            )
        aligned, elsewhere, nowhere = self._by_affinity(free)
        if self._missing < len(aligned):
            pools = [await self._preferred(aligned) & aligned, aligned]
        elif self._take(aligned):
            return self._chosen
        else:
            pools = [await self._preferred(free) & free, elsewhere, nowhere]
        if any(self._take(pool) for pool in pools):
            return self._chosen
        raise AdmissionError(
            "unexpectedly allocated less resources than required. "
            f"Requested: {self._wish.count}, Got: {len(self._chosen)}"
        )

    @property
    def _missing(self) -> int:
        return self._wish.count - len(self._chosen)

    def _take(self, pool: AbstractSet[str]) -> bool:
        """Take from a set what is missing, as far as it goes; whether nothing is missing any more."""
        left = sorted(pool - self._chosen)
        taken = random.sample(left, min(self._missing, len(left)))
        self._chosen.update(taken)
        self._ledger.take(self._wish.resource, taken)
        return not self._missing

    def _by_affinity(self, free: set[str]) -> tuple[set[str], set[str], set[str]]:
        """On the wished nodes, on others, and on no node; all on none when there is nothing to align."""
        if self._wish.nodes is None or not self._devices.aligned:
            return set(), set(), free
        aligned = {each for each in free if mask_of(self._devices.numa_nodes(each)) & self._wish.nodes}
        nowhere = {each for each in free if not self._devices.numa_nodes(each)}
        return aligned, free - aligned - nowhere, nowhere

    async def _preferred(self, offered: set[str]) -> set[str]:
        """What the plugin would take: a hint that may be too short, too long or off the mark."""
        if self._endpoint is None:
            raise AdmissionError(f"endpoint not found in cache for a registered resource: {self._wish.resource}")
        if not self._endpoint.options.get_preferred_allocation_available:
            return set()
        return await self._endpoint.preferred(offered | self._chosen, self._chosen, self._wish.count)
