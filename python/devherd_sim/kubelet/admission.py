"""Admits pods: chooses devices for each container, with the kubelet's order of steps and its error messages.

`start` runs at every start of a container: it calls PreStartContainer and allocates devices missed at admission.
"""

import asyncio
import random
from collections.abc import Collection, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from devherd.proto import deviceplugin_v1beta1_pb2 as api
from devherd_sim.kubelet.connections import PluginEndpoint, PluginError
from devherd_sim.kubelet.ledger import AllocationLedger, Devices, Reuse
from devherd_sim.kubelet.node import KubeletNode
from devherd_sim.kubelet.pod import (
    WITHOUT_NUMA,
    AdmissionError,
    Allocation,
    Container,
    ContainerSpec,
    Pod,
    StartError,
    answer,
)
from devherd_sim.kubelet.topology import Hint, hints, mask_of


@dataclass(frozen=True, slots=True)
class Wish:
    """A container's request for one resource."""

    resource: str
    count: int
    reusable: AbstractSet[str] = frozenset()
    """Devices left by earlier init containers of the pod."""
    nodes: int | None = None
    """Bit mask of the NUMA nodes to take devices from, set by the topology manager; None for any."""


class Choice:
    """One choice of devices. Chosen devices are marked as in use at once, even if the choice fails later."""

    def __init__(self, wish: Wish, devices: Devices, endpoint: PluginEndpoint | None, ledger: AllocationLedger) -> None:
        self._wish = wish
        self._devices = devices
        self._endpoint = endpoint
        self._ledger = ledger
        self._chosen: set[str] = set()

    async def make(self) -> set[str]:
        """Choose the requested number of devices. Raises AdmissionError if that fails, PluginError if a call fails."""
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
        """Take missing devices from a set. Returns True if enough devices are chosen."""
        left = sorted(pool - self._chosen)
        taken = random.sample(left, min(self._missing, len(left)))
        self._chosen.update(taken)
        self._ledger.take(self._wish.resource, taken)
        return not self._missing

    def _by_affinity(self, free: set[str]) -> tuple[set[str], set[str], set[str]]:
        """Split devices by NUMA node: wanted, other and none. Without alignment all devices are in the last set."""
        if self._wish.nodes is None or not self._devices.aligned:
            return set(), set(), free
        aligned = {each for each in free if mask_of(self._devices.numa_nodes(each)) & self._wish.nodes}
        nowhere = {each for each in free if set(self._devices.numa_nodes(each)) <= {WITHOUT_NUMA}}
        return aligned, free - aligned - nowhere, nowhere

    async def _preferred(self, offered: set[str]) -> set[str]:
        """The devices that the plugin prefers; there may be too few, too many or unavailable ones."""
        if self._endpoint is None:
            raise AdmissionError(f"endpoint not found in cache for a registered resource: {self._wish.resource}")
        if not self._endpoint.options.get_preferred_allocation_available:
            return set()
        return await self._endpoint.preferred(offered | self._chosen, self._chosen, self._wish.count)


class Admission:
    """Allocates devices to pods, one at a time."""

    def __init__(self, node: KubeletNode) -> None:
        self._node = node
        self._reuse = Reuse(node.ledger)
        self._one_at_a_time = asyncio.Lock()

    async def admit(self, pod: Pod) -> list[Allocation]:
        """Allocate devices to every container of a pod. Returns its allocations in the order of the containers.

        Skips unknown resources. Raises AdmissionError when the pod is rejected; devices that it got before that are
        freed when the next pod is admitted.
        """
        self._node.ledger.name(pod)
        async with self._one_at_a_time:
            try:
                for spec in pod.in_order():
                    await self._admit(pod, spec)
            except AdmissionError:
                self._node.pods.remove(pod.uid)
                raise
            self._node.pods.add(pod)
        return [held for spec in pod.in_order() for held in self._node.ledger.of(pod.container(spec.name))]

    async def admit_container(self, pod: Pod, spec: ContainerSpec) -> None:
        """Allocate devices to one container. Raises AdmissionError when it is rejected."""
        async with self._one_at_a_time:
            await self._admit(pod, spec)

    async def _admit(self, pod: Pod, spec: ContainerSpec) -> None:
        self._node.pods.pending = pod
        try:
            await self._serve(pod, spec, pod.container(spec.name))
        except (AdmissionError, PluginError) as error:
            self._node.events.record("allocation-refused", **pod.container(spec.name).labels(), error=str(error))
            if isinstance(error, AdmissionError):
                raise
            raise AdmissionError(str(error)) from error
        finally:
            self._node.pods.pending = None

    async def _serve(self, pod: Pod, spec: ContainerSpec, container: Container) -> None:
        reusable = self._reuse.of(pod)
        nodes = self._affinity(spec, container, reusable)
        self._reuse.begin(pod)
        given = False
        for resource, count in spec.limits.items():
            if self._node.is_known(resource):
                self._node.collect()
                given |= await self._give(container, Wish(resource, count, reusable.get(resource, frozenset()), nodes))
        if given:
            self._save()
        self._reuse.after(pod, spec)

    def _affinity(
        self, spec: ContainerSpec, container: Container, reusable: Mapping[str, Collection[str]]
    ) -> int | None:
        if self._node.topology.policy == "none":
            return None
        self._node.collect()
        wishes = {
            resource: self._hints(container, resource, count, frozenset(reusable.get(resource, ())))
            for resource, count in spec.limits.items()
            if self._node.is_known(resource)
        }
        return self._node.topology.affinity(wishes)

    def _hints(self, container: Container, resource: str, count: int, reusable: frozenset[str]) -> list[Hint] | None:
        devices = self._node.devices.get(resource, Devices())
        if not devices.aligned:
            return None
        held = self._node.ledger.held(container, resource)
        free = devices.healthy - self._node.ledger.in_use(resource)
        if held is not None:
            if len(held.device_ids) != count:
                return []
            free, reusable = set(held.device_ids), frozenset()
        elif len(free | reusable) < count:
            return []
        return hints(devices, free, reusable, count, self._node.topology.machine)

    async def _give(self, container: Container, wish: Wish) -> bool:
        """Allocate devices of one resource. Returns True if the container got devices that it did not hold before."""
        held = self._node.ledger.held(container, wish.resource)
        if held is not None and len(held.device_ids) != wish.count:
            raise AdmissionError(
                f'pod "{container.uid}" container "{container.name}" changed request for resource "{wish.resource}"'
                f" from {len(held.device_ids)} to {wish.count}"
            )
        if not self._node.pods.sources_ready and self._node.pods.is_running(container):
            return False
        devices = self._healthy(wish.resource, held)
        if held is not None or not wish.count:
            return False
        endpoint = self._node.endpoint(wish.resource)
        chosen = await Choice(wish, devices, endpoint, self._node.ledger).make()
        response = await self._ask(wish.resource, chosen)
        given = _allocation(container, wish.resource, chosen, devices, response)
        self._node.ledger.keep(given)
        self._node.events.record("allocated", wish.resource, **container.labels(), devices=list(given.device_ids))
        return True

    def _healthy(self, resource: str, held: Allocation | None) -> Devices:
        devices = self._node.listed(resource)
        if devices is None:
            raise AdmissionError(f"cannot allocate unregistered device {resource}")
        if not devices.healthy:
            raise AdmissionError(f"no healthy devices present; cannot allocate unhealthy devices {resource}")
        if held is not None and not devices.healthy.issuperset(held.device_ids):
            raise AdmissionError(
                f"previously allocated devices are no longer healthy; cannot allocate unhealthy devices {resource}"
            )
        return devices

    async def _ask(self, resource: str, chosen: set[str]) -> api.ContainerAllocateResponse:
        endpoint = self._node.endpoint(resource)  # may be newer than the one asked for a preference
        if endpoint is None:
            self._node.ledger.settle()
            raise AdmissionError(f"unknown Device Plugin {resource}")
        try:
            response = await endpoint.allocate(chosen)
        except PluginError:
            self._node.ledger.settle()
            raise
        if response is None:
            # The kubelet leaves the chosen devices marked as in use here, until it next collects a finished pod.
            raise AdmissionError("no containers return in allocation response ")
        return response

    def _save(self) -> None:
        try:
            self._node.save()
        except OSError as error:
            raise AdmissionError(f'failed to write checkpoint file "kubelet_internal_checkpoint": {error}') from error


def _allocation(
    container: Container, resource: str, chosen: set[str], devices: Devices, response: api.ContainerAllocateResponse
) -> Allocation:
    by_node: dict[int, list[str]] = {}
    for device_id in sorted(chosen):
        for node in devices.numa_nodes(device_id) or (WITHOUT_NUMA,):
            by_node.setdefault(node, []).append(device_id)
    per_node = {node: tuple(ids) for node, ids in sorted(by_node.items())}
    return Allocation(container, resource, tuple(sorted(chosen)), response, per_node)


Answer = dict[str, object]


async def start(node: KubeletNode, admission: Admission, container: Container) -> Answer:
    """Start a container of an active pod and return the merged answers of its plugins.

    Allocates devices of resources that were unknown at admission and are known now. Raises StartError: kubelets retry.
    """
    pod = node.pods.get(container.uid)
    spec = pod.spec(container.name) if pod else None
    if pod is None or spec is None:
        raise StartError(f"no pod of the UID {container.uid} has a container {container.name}")
    resources = [resource for resource, count in spec.limits.items() if count and node.is_known(resource)]
    try:
        for resource in resources:
            await _prepare(node, container, resource)
        if any(node.ledger.held(container, resource) is None for resource in resources):
            await admission.admit_container(pod, spec)
    except (PluginError, AdmissionError) as error:
        raise StartError(str(error)) from error
    node.pods.started(container)
    return answer(node.ledger.of(container))


async def _prepare(node: KubeletNode, container: Container, resource: str) -> None:
    """Call PreStartContainer if the plugin requires it. Raises StartError or PluginError."""
    endpoint = node.endpoint(resource)
    if endpoint is None and resource not in node.devices:
        raise StartError(f"endpoint not found in cache for a registered resource: {resource}")
    if endpoint is None or not endpoint.options.pre_start_required:
        return
    held = node.ledger.held(container, resource)
    if held is None:
        raise StartError(
            f"no devices found allocated in local cache for pod {container.uid}, container {container.name}, "
            f"resource {resource}"
        )
    await endpoint.pre_start(held.device_ids)
    node.events.record("pre-started", resource, **container.labels())
