"""The PodResources service (v1): which container holds which device, with the kubelet's rate limit."""

import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import grpc

from devherd.proto import podresources_v1_pb2 as api
from devherd.proto.podresources_v1_pb2_grpc import PodResourcesListerServicer
from devherd_sim.kubelet.node import KubeletNode
from devherd_sim.kubelet.pod import Pod


class PodResourcesServer(PodResourcesListerServicer):
    """Answers from memory. Each device has one entry; a device of several NUMA nodes has one for each node."""

    def __init__(self, node: KubeletNode) -> None:
        self._node = node

    async def List(  # noqa: N802 - the service's own name
        self,
        request: api.ListPodResourcesRequest,  # noqa: ARG002
        context: "grpc.aio.ServicerContext[Any, Any]",  # noqa: ARG002
    ) -> api.ListPodResourcesResponse:
        """All active pods. Frees the devices of ended pods first."""
        self._node.collect()
        return api.ListPodResourcesResponse(pod_resources=[self._pod(pod) for pod in self._node.pods])

    async def Get(  # noqa: N802 - the service's own name
        self, request: api.GetPodResourcesRequest, context: "grpc.aio.ServicerContext[Any, Any]"
    ) -> api.GetPodResourcesResponse:
        """The devices of one pod. Aborts with UNKNOWN when it is not active."""
        for pod in self._node.pods:
            if (pod.namespace, pod.name) == (request.pod_namespace, request.pod_name):
                return api.GetPodResourcesResponse(pod_resources=self._pod(pod))
        await context.abort(
            grpc.StatusCode.UNKNOWN, f"pod {request.pod_name} in namespace {request.pod_namespace} not found"
        )
        raise AssertionError("abort has raised")

    async def GetAllocatableResources(  # noqa: N802 - the service's own name
        self,
        request: api.AllocatableResourcesRequest,  # noqa: ARG002
        context: "grpc.aio.ServicerContext[Any, Any]",  # noqa: ARG002
    ) -> api.AllocatableResourcesResponse:
        """All healthy devices, except those that have a topology without nodes."""
        return api.AllocatableResourcesResponse(
            devices=[
                entry
                for resource, devices in self._node.devices.items()
                for device_id in sorted(devices.healthy)
                if devices.numa_nodes(device_id) or not devices.by_id[device_id].HasField("topology")
                for entry in _entries(resource, device_id, devices.numa_nodes(device_id))
            ]
        )

    def _pod(self, pod: Pod) -> api.PodResources:
        """A pod's containers and sidecars, with or without devices; other init containers are left out."""
        specs = [*(spec for spec in pod.init_containers if spec.restartable), *pod.containers]
        containers = [self._container(pod, spec.name) for spec in specs]
        return api.PodResources(name=pod.name, namespace=pod.namespace, containers=containers)

    def _container(self, pod: Pod, name: str) -> api.ContainerResources:
        return api.ContainerResources(
            name=name,
            devices=[
                entry
                for held in self._node.ledger.of(pod.container(name))
                for device_id in held.device_ids
                for entry in _entries(held.resource, device_id, held.numa_nodes(device_id))
            ],
        )


def _entries(resource: str, device_id: str, nodes: Iterable[int]) -> list[api.ContainerDevices]:
    entries = [
        api.ContainerDevices(
            resource_name=resource,
            device_ids=[device_id],
            topology=api.TopologyInfo(nodes=[api.NUMANode(ID=node)]),
        )
        for node in nodes
    ]
    return entries or [api.ContainerDevices(resource_name=resource, device_ids=[device_id])]


CALLS_PER_SECOND = 100.0
BURST = 10.0


class CallLimit(grpc.aio.ServerInterceptor):
    """A token bucket; calls are refused while it is empty."""

    def __init__(self) -> None:
        self._tokens = BURST
        self._filled_at = time.monotonic()

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        """Take a token, or abort the call with RESOURCE_EXHAUSTED."""
        now = time.monotonic()
        self._tokens = min(BURST, self._tokens + (now - self._filled_at) * CALLS_PER_SECOND)
        self._filled_at = now
        if self._tokens < 1:
            return grpc.unary_unary_rpc_method_handler(_refuse)
        self._tokens -= 1
        return await continuation(handler_call_details)


async def _refuse(_: Any, context: "grpc.aio.ServicerContext[Any, Any]") -> None:
    await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "rejected by rate limit")
