"""The PodResources service (v1): which container holds which device."""

from collections.abc import Callable, Iterable
from itertools import groupby
from typing import Any

import grpc

from devherd.proto import podresources_v1_pb2 as api
from devherd.proto.podresources_v1_pb2_grpc import PodResourcesListerServicer
from devherd.sim.kubelet.allocation import Allocation
from devherd.sim.kubelet.inventory import Devices


class PodResources(PodResourcesListerServicer):
    """Answers from the kubelet's memory. Devices come one by one, a device of several NUMA nodes once for each."""

    def __init__(self, allocations: Callable[[], Iterable[Allocation]], devices: dict[str, Devices]) -> None:
        self._allocations = allocations
        self._devices = devices

    async def List(  # noqa: N802 - the service's own name
        self,
        request: api.ListPodResourcesRequest,  # noqa: ARG002
        context: "grpc.aio.ServicerContext[Any, Any]",  # noqa: ARG002
    ) -> api.ListPodResourcesResponse:
        """Every pod that holds a device."""
        return api.ListPodResourcesResponse(pod_resources=self._pods())

    async def Get(  # noqa: N802 - the service's own name
        self, request: api.GetPodResourcesRequest, context: "grpc.aio.ServicerContext[Any, Any]"
    ) -> api.GetPodResourcesResponse:
        """One pod."""
        for pod in self._pods():
            if (pod.namespace, pod.name) == (request.pod_namespace, request.pod_name):
                return api.GetPodResourcesResponse(pod_resources=pod)
        await context.abort(
            grpc.StatusCode.UNKNOWN, f"pod {request.pod_name} in namespace {request.pod_namespace} not found"
        )
        raise AssertionError("abort has raised")

    async def GetAllocatableResources(  # noqa: N802 - the service's own name
        self,
        request: api.AllocatableResourcesRequest,  # noqa: ARG002
        context: "grpc.aio.ServicerContext[Any, Any]",  # noqa: ARG002
    ) -> api.AllocatableResourcesResponse:
        """Every healthy device that a plugin advertises now."""
        return api.AllocatableResourcesResponse(
            devices=[
                entry
                for resource, devices in self._devices.items()
                for device_id in sorted(devices.healthy)
                for entry in self._entries(resource, device_id)
            ]
        )

    def _pods(self) -> list[api.PodResources]:
        def pod_of(held: Allocation) -> tuple[str, str]:
            return held.container.namespace, held.container.pod

        by_pod = groupby(sorted(self._allocations(), key=pod_of), key=pod_of)
        return [
            api.PodResources(name=name, namespace=namespace, containers=self._containers(list(held)))
            for (namespace, name), held in by_pod
        ]

    def _containers(self, held: list[Allocation]) -> list[api.ContainerResources]:
        names = dict.fromkeys(allocation.container.name for allocation in held)
        return [
            api.ContainerResources(
                name=name,
                devices=[
                    entry
                    for allocation in held
                    if allocation.container.name == name
                    for device_id in allocation.device_ids
                    for entry in self._entries(allocation.resource, device_id)
                ],
            )
            for name in names
        ]

    def _entries(self, resource: str, device_id: str) -> list[api.ContainerDevices]:
        known = self._devices.get(resource)
        nodes = known.numa_nodes(device_id) if known else []
        if not nodes:
            return [api.ContainerDevices(resource_name=resource, device_ids=[device_id])]
        return [
            api.ContainerDevices(
                resource_name=resource,
                device_ids=[device_id],
                topology=api.TopologyInfo(nodes=[api.NUMANode(ID=node)]),
            )
            for node in nodes
        ]
