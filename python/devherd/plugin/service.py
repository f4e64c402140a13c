"""The five RPCs of the device plugin API, and nothing else. They answer from memory and never wait for anything."""

import time

import grpc
import grpc.aio
from prometheus_client import Counter, Histogram

from devherd.plugin.allocation import RefusedError, container_response
from devherd.plugin.resource_file import ResourceFile
from devherd.plugin.stream import Streams
from devherd.proto import deviceplugin_v1beta1_pb2 as v1beta1
from devherd.proto.deviceplugin_v1beta1_pb2_grpc import DevicePluginServicer

_BUCKETS = (0.00003, 0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1)

ALLOCATIONS = Counter("devherd_allocations", "Containers given devices.", ["resource_name"])
ALLOCATION_FAILURES = Counter("devherd_allocation_failures", "Allocate requests refused.", ["resource_name"])
ALLOCATION_DURATION = Histogram(
    "devherd_allocation_duration_seconds", "Time of an Allocate.", ["resource_name"], buckets=_BUCKETS
)
PREFERRED_ALLOCATION_DURATION = Histogram(
    "devherd_preferred_allocation_duration_seconds",
    "Time of a GetPreferredAllocation.",
    ["resource_name"],
    buckets=_BUCKETS,
)

Context = grpc.aio.ServicerContext


class DevicePlugin(DevicePluginServicer):
    """What the kubelet calls. The names of the methods are the protocol's."""

    def __init__(self, resource: ResourceFile, streams: Streams) -> None:
        self._resource = resource
        self._streams = streams

    async def GetDevicePluginOptions(  # noqa: N802
        self, request: v1beta1.Empty, context: Context[v1beta1.Empty, v1beta1.DevicePluginOptions]
    ) -> v1beta1.DevicePluginOptions:
        """Asked while this process's own Register is still under way."""
        del request, context
        return self._resource.latest.options

    async def ListAndWatch(  # type: ignore[override]  # noqa: N802 - writes to the stream, so that its end is seen here
        self, request: v1beta1.Empty, context: Context[v1beta1.Empty, v1beta1.ListAndWatchResponse]
    ) -> None:
        """The complete list at once, then each that differs."""
        del request
        await self._streams.serve(context.write)

    async def GetPreferredAllocation(  # noqa: N802
        self,
        request: v1beta1.PreferredAllocationRequest,
        context: Context[v1beta1.PreferredAllocationRequest, v1beta1.PreferredAllocationResponse],
    ) -> v1beta1.PreferredAllocationResponse:
        """A hint which devices fit together."""
        del context
        began = time.perf_counter()
        snapshot = self._resource.latest
        response = v1beta1.PreferredAllocationResponse()
        for container in request.container_requests:
            chosen = snapshot.preference.choose(
                container.available_deviceIDs, container.must_include_deviceIDs, max(0, container.allocation_size)
            )
            response.container_responses.add(deviceIDs=chosen)
        PREFERRED_ALLOCATION_DURATION.labels(snapshot.name).observe(time.perf_counter() - began)
        return response

    async def Allocate(  # noqa: N802
        self, request: v1beta1.AllocateRequest, context: Context[v1beta1.AllocateRequest, v1beta1.AllocateResponse]
    ) -> v1beta1.AllocateResponse:
        """What each container gets. The kubelet asks again for the same ids, and never tells when they are free."""
        began = time.perf_counter()
        snapshot = self._resource.latest
        try:
            responses = [container_response(snapshot, list(one.devices_ids)) for one in request.container_requests]
        except RefusedError as refusal:
            ALLOCATION_FAILURES.labels(snapshot.name).inc()
            await context.abort(refusal.status, str(refusal))
        else:
            ALLOCATIONS.labels(snapshot.name).inc(len(responses))
            return v1beta1.AllocateResponse(container_responses=responses)
        finally:
            ALLOCATION_DURATION.labels(snapshot.name).observe(time.perf_counter() - began)

    async def PreStartContainer(  # noqa: N802
        self,
        request: v1beta1.PreStartContainerRequest,
        context: Context[v1beta1.PreStartContainerRequest, v1beta1.PreStartContainerResponse],
    ) -> v1beta1.PreStartContainerResponse:
        """Nothing has to be done before a start."""
        del request, context
        return v1beta1.PreStartContainerResponse()
