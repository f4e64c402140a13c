"""Who holds which devices, and which are not free. The two differ where an empty answer has leaked devices."""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace

from devherd_sim.kubelet.allocation import Allocation
from devherd_sim.kubelet.pod import Container, Pod


class Ledger:
    """What the kubelet keeps in its checkpoint."""

    def __init__(self) -> None:
        self._held: dict[tuple[str, str, str], Allocation] = {}
        self._in_use: dict[str, set[str]] = {}

    def __iter__(self) -> Iterator[Allocation]:
        """Every allocation, in the order it was made."""
        return iter(self._held.values())

    def load(self, allocations: Iterable[Allocation]) -> None:
        """Begin again with what a checkpoint had."""
        self._held = {_key(allocation.container, allocation.resource): allocation for allocation in allocations}
        self.settle()

    def keep(self, allocation: Allocation) -> None:
        """Note what a container has been given."""
        self._held[_key(allocation.container, allocation.resource)] = allocation

    def held(self, container: Container, resource: str) -> Allocation | None:
        """What a container holds of a resource."""
        return self._held.get(_key(container, resource))

    def of(self, container: Container) -> list[Allocation]:
        """What a container holds of every resource."""
        return [held for held in self if (held.container.uid, held.container.name) == (container.uid, container.name)]

    def of_pod(self, uid: str) -> list[Allocation]:
        """What a pod holds."""
        return [held for held in self if held.container.uid == uid]

    def in_use(self, resource: str) -> set[str]:
        """The devices that are not free."""
        return set(self._in_use.get(resource, ()))

    def knows(self, resource: str) -> bool:
        """Whether some device of a resource has ever been given and not been collected since."""
        return resource in self._in_use

    def take(self, resource: str, device_ids: Collection[str]) -> None:
        """Mark devices as not free before anybody holds them."""
        self._in_use.setdefault(resource, set()).update(device_ids)

    def settle(self) -> None:
        """In use is what somebody holds, and nothing else."""
        self._in_use = {}
        for held in self:
            self.take(held.resource, held.device_ids)

    def collect(self, active: Collection[str]) -> list[Allocation]:
        """Forget what pods hold that are over; returns it. Leaks end only when there was such a pod."""
        gone = [held for held in self if held.container.uid not in active]
        for held in gone:
            del self._held[_key(held.container, held.resource)]
        if gone:
            self.settle()
        return gone

    def name(self, pod: Pod) -> None:
        """Record the name of a pod known by its UID alone."""
        for held in self.of_pod(pod.uid):
            self.keep(replace(held, container=pod.container(held.container.name)))


def _key(container: Container, resource: str) -> tuple[str, str, str]:
    return container.uid, container.name, resource
