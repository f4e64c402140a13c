"""The devices of each resource, the pods of the node, and the allocations.

A device may be neither held nor free: an empty answer of a plugin leaks the chosen devices.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace

from devherd.proto import deviceplugin_v1beta1_pb2 as api
from devherd_sim.kubelet.pod import Allocation, Container, ContainerSpec, Pod


class AllocationLedger:
    """The allocations that the kubelet keeps in its checkpoint."""

    def __init__(self) -> None:
        self._held: dict[tuple[str, str, str], Allocation] = {}
        self._in_use: dict[str, set[str]] = {}

    def __iter__(self) -> Iterator[Allocation]:
        """Every allocation, in the order it was made."""
        return iter(self._held.values())

    def load(self, allocations: Iterable[Allocation]) -> None:
        """Replace all allocations by those of a checkpoint."""
        self._held = {_key(allocation.container, allocation.resource): allocation for allocation in allocations}
        self.settle()

    def keep(self, allocation: Allocation) -> None:
        """Record the devices of a container."""
        self._held[_key(allocation.container, allocation.resource)] = allocation

    def held(self, container: Container, resource: str) -> Allocation | None:
        """A container's allocation of a resource; None if there is none."""
        return self._held.get(_key(container, resource))

    def of(self, container: Container) -> list[Allocation]:
        """All allocations of a container."""
        return [held for held in self if (held.container.uid, held.container.name) == (container.uid, container.name)]

    def of_pod(self, uid: str) -> list[Allocation]:
        """All allocations of a pod."""
        return [held for held in self if held.container.uid == uid]

    def in_use(self, resource: str) -> set[str]:
        """The devices of a resource that are not free."""
        return set(self._in_use.get(resource, ()))

    def knows(self, resource: str) -> bool:
        """True if containers hold devices of a resource, or devices were taken since the last `settle`."""
        return resource in self._in_use

    def take(self, resource: str, device_ids: Collection[str]) -> None:
        """Mark devices as in use before a container holds them."""
        self._in_use.setdefault(resource, set()).update(device_ids)

    def settle(self) -> None:
        """Reset the devices in use to those that containers hold."""
        self._in_use = {}
        for held in self:
            self.take(held.resource, held.device_ids)

    def collect(self, active: Collection[str]) -> list[Allocation]:
        """Remove and return the allocations of ended pods. If there are any, leaked devices are freed too."""
        gone = [held for held in self if held.container.uid not in active]
        for held in gone:
            del self._held[_key(held.container, held.resource)]
        if gone:
            self.settle()
        return gone

    def name(self, pod: Pod) -> None:
        """Set a pod's name and namespace in its allocations; those from a checkpoint may have the UID only."""
        for held in self.of_pod(pod.uid):
            self.keep(replace(held, container=pod.container(held.container.name)))


def _key(container: Container, resource: str) -> tuple[str, str, str]:
    return container.uid, container.name, resource


HEALTHY = "Healthy"


@dataclass(slots=True)
class Devices:
    """The devices of one resource. Any health other than `Healthy` is unhealthy."""

    by_id: dict[str, api.Device] = field(default_factory=dict)
    healthy: set[str] = field(default_factory=set)
    unhealthy: set[str] = field(default_factory=set)
    listed: bool = True
    """False if the plugin ended before its first list: the node reports 0 devices, and pods start without devices."""

    def replace(self, devices: Iterable[api.Device]) -> None:
        """Replace all devices by a list. A repeated id is one device; if its healths differ, it is in both sets."""
        listed = list(devices)
        self.listed = True
        self.by_id = {device.ID: device for device in listed}
        self.healthy = {device.ID for device in listed if device.health == HEALTHY}
        self.unhealthy = {device.ID for device in listed if device.health != HEALTHY}

    def lose(self) -> None:
        """Mark all devices as unhealthy, because the plugin is gone."""
        self.unhealthy |= self.healthy
        self.healthy = set()

    @property
    def capacity(self) -> int:
        """The number of devices."""
        return len(self.healthy) + len(self.unhealthy)

    @property
    def allocatable(self) -> int:
        """The number of healthy devices."""
        return len(self.healthy)

    @property
    def aligned(self) -> bool:
        """True if any device has a NUMA node; only then is the resource aligned."""
        return any(device.topology.nodes for device in self.by_id.values())

    def has_topology(self, device_id: str) -> bool:
        """True if a device was listed with a topology, perhaps one without nodes."""
        return device_id in self.by_id and self.by_id[device_id].HasField("topology")

    def numa_nodes(self, device_id: str) -> list[int]:
        """The NUMA nodes of a device; empty when its plugin listed none."""
        device = self.by_id.get(device_id)
        return [node.ID for node in device.topology.nodes] if device is not None else []


class Pods:
    """The pods of the node. They outlive a restart of the kubelet, because the container runtime keeps them."""

    def __init__(self) -> None:
        self.pending: Pod | None = None
        """The pod that is being admitted."""
        self.sources_ready = True
        """False while a starting kubelet does not know all pods yet; it then leaves running containers alone."""
        self._active: dict[str, Pod] = {}
        self._running: set[Container] = set()

    def __iter__(self) -> Iterator[Pod]:
        return iter(self._active.values())

    def get(self, uid: str) -> Pod | None:
        """The active pod with a UID; None if there is none."""
        return self._active.get(uid)

    def uid(self, name: str, namespace: str) -> str:
        """The UID of the active pod with a name, or the default UID if there is none."""
        named = (pod.uid for pod in self if (pod.name, pod.namespace) == (name, namespace))
        return next(named, Pod(name, namespace=namespace).uid)

    def admitted(self) -> set[str]:
        """The UIDs of the pods whose devices must not be collected."""
        return set(self._active) | ({self.pending.uid} if self.pending else set())

    def add(self, pod: Pod) -> None:
        """Add an active pod."""
        self._active[pod.uid] = pod

    def remove(self, uid: str) -> None:
        """Remove a pod and its containers."""
        self._active.pop(uid, None)
        self._running = {container for container in self._running if container.uid != uid}

    def started(self, container: Container) -> None:
        """Mark a container as running."""
        self._running.add(container)

    def is_running(self, container: Container) -> bool:
        """True if a container is running."""
        return container in self._running

    def stop_all(self) -> None:
        """Mark all containers as stopped, as after a reboot of the node."""
        self._running = set()

    def adopt(self, allocations: Iterable[Allocation]) -> None:
        """Add holders of devices that are known only from a checkpoint as active pods."""
        for held in allocations:
            whose = held.container
            pod = self._active.get(whose.uid) or Pod(whose.pod, namespace=whose.namespace, uid=whose.uid)
            pod, _ = pod.with_limits(whose.name, {held.resource: len(held.device_ids)})
            self.add(pod)


class Reuse:
    """Devices that init containers of the current pod leave to later containers; reset with the next pod."""

    def __init__(self, ledger: AllocationLedger) -> None:
        self._ledger = ledger
        self._uid = ""
        self._offered: dict[str, set[str]] = {}

    def of(self, pod: Pod) -> dict[str, set[str]]:
        """The devices that may be reused, by resource."""
        if self._uid != pod.uid:
            return {}
        return {resource: set(ids) for resource, ids in self._offered.items()}

    def begin(self, pod: Pod) -> None:
        """Start the allocation to a pod: resets the devices if it is another pod than before."""
        if self._uid != pod.uid:
            self._uid, self._offered = pod.uid, {}

    def after(self, pod: Pod, spec: ContainerSpec) -> None:
        """Record a container's allocation: an init container leaves its devices, any other keeps them."""
        leaves = spec in pod.init_containers and not spec.restartable
        for held in self._ledger.of(pod.container(spec.name)):
            offered = self._offered.setdefault(held.resource, set())
            if leaves:
                offered.update(held.device_ids)
            else:
                offered.difference_update(held.device_ids)
