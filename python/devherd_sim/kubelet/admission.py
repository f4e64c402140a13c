"""Admission of pods: container after container, resource after resource, in the kubelet's order and words.

A pod is admitted alone: while a plugin thinks, every other pod of the node waits.
"""

import asyncio
from collections.abc import Collection, Mapping

from devherd.proto import deviceplugin_v1beta1_pb2 as api
from devherd_sim.kubelet.allocation import WITHOUT_NUMA, AdmissionError, Allocation
from devherd_sim.kubelet.choice import Choice, Wish
from devherd_sim.kubelet.endpoint import PluginError
from devherd_sim.kubelet.inventory import Devices
from devherd_sim.kubelet.node import Node
from devherd_sim.kubelet.numa_hints import Hint, hints
from devherd_sim.kubelet.pod import Container, ContainerSpec, Pod
from devherd_sim.kubelet.reuse import Reuse


class Admission:
    """Hands out the devices."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._reuse = Reuse(node.ledger)
        self._one_at_a_time = asyncio.Lock()

    async def admit(self, pod: Pod) -> list[Allocation]:
        """Give every container its devices; what the pod then holds, in the containers' order.

        Resources that nobody knows are skipped. Raises AdmissionError: the pod is over then, and what it had been given
        so far is free again when the next pod comes.
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
        """Give one container its devices. Raises AdmissionError."""
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
        """Whether the container has been given devices that it did not hold before."""
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
        devices = self._node.devices.get(resource)
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
        endpoint = self._node.endpoint(resource)  # not the one that was asked for its preference, should it be replaced
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
