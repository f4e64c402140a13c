"""The five RPCs of the device plugin API. They answer from memory and never wait."""

import logging
import time
from collections.abc import Sequence

import grpc
import grpc.aio

from devherd import counted
from devherd.counters import Counters
from devherd.device_plugin.allocation import RefusedError, container_response
from devherd.device_plugin.snapshot import Offered
from devherd.device_plugin.stream import Streams
from devherd.history.record import History
from devherd.proto import deviceplugin_v1beta1_pb2 as v1beta1
from devherd.proto.deviceplugin_v1beta1_pb2_grpc import DevicePluginServicer

log = logging.getLogger(__name__)

Context = grpc.aio.ServicerContext


class DevicePlugin(DevicePluginServicer):
    """What the kubelet calls. The names of the methods are the protocol's."""

    def __init__(self, resource: Offered, streams: Streams, counters: Counters, history: History) -> None:
        self._resource = resource
        self._counters = counters
        self._history = history
        self._streams = streams

    async def GetDevicePluginOptions(  # noqa: N802
        self, request: v1beta1.Empty, context: Context[v1beta1.Empty, v1beta1.DevicePluginOptions]
    ) -> v1beta1.DevicePluginOptions:
        """The kubelet calls this before it answers Register."""
        del request, context
        return self._resource.latest.options

    async def ListAndWatch(  # type: ignore[override]  # noqa: N802 - writes to the stream, so that its end is seen here
        self, request: v1beta1.Empty, context: Context[v1beta1.Empty, v1beta1.ListAndWatchResponse]
    ) -> None:
        """The complete list at once, then every list that differs."""
        del request
        await self._streams.serve(context.write)

    async def GetPreferredAllocation(  # noqa: N802
        self,
        request: v1beta1.PreferredAllocationRequest,
        context: Context[v1beta1.PreferredAllocationRequest, v1beta1.PreferredAllocationResponse],
    ) -> v1beta1.PreferredAllocationResponse:
        """Which of the available devices fit together best."""
        del context
        began = time.perf_counter()
        snapshot = self._resource.latest
        response = v1beta1.PreferredAllocationResponse()
        for container in request.container_requests:
            chosen = snapshot.preference.choose(
                container.available_deviceIDs, container.must_include_deviceIDs, max(0, container.allocation_size)
            )
            response.container_responses.add(deviceIDs=chosen)
            log.debug(
                "GetPreferredAllocation: %d of %d%s: %s",
                container.allocation_size,
                len(container.available_deviceIDs),
                _including(container.must_include_deviceIDs),
                ", ".join(chosen),
            )
        self._counters.observe(counted.PREFERRED_ALLOCATION_DURATION, time.perf_counter() - began, snapshot.name)
        return response

    async def Allocate(  # noqa: N802
        self, request: v1beta1.AllocateRequest, context: Context[v1beta1.AllocateRequest, v1beta1.AllocateResponse]
    ) -> v1beta1.AllocateResponse:
        """What each container gets. The kubelet may ask again for the same ids, and never reports free ones."""
        began = time.perf_counter()
        snapshot = self._resource.latest
        try:
            responses = [container_response(snapshot, list(one.devices_ids)) for one in request.container_requests]
        except RefusedError as refusal:
            self._counters.add(counted.ALLOCATION_FAILURES, snapshot.name)
            self._history.note("allocation", f"refused: {refusal}", resource_name=snapshot.name)
            log.debug("Allocate: refused: %s", refusal)
            await context.abort(refusal.status, str(refusal))
        else:
            self._counters.add(counted.ALLOCATIONS, snapshot.name, amount=len(responses))
            for one in request.container_requests:
                self._note_allocation(snapshot.name, sorted(one.devices_ids))
            return v1beta1.AllocateResponse(container_responses=responses)
        finally:
            self._counters.observe(counted.ALLOCATION_DURATION, time.perf_counter() - began, snapshot.name)

    def _note_allocation(self, resource_name: str, device_ids: list[str]) -> None:
        alone = device_ids[0] if len(device_ids) == 1 else ""
        log.debug("Allocate: %s", ", ".join(device_ids))
        message = f"allocated {', '.join(device_ids)}" if not alone else "allocated"
        self._history.note("allocation", message, resource_name=resource_name, device_id=alone)

    async def PreStartContainer(  # noqa: N802
        self,
        request: v1beta1.PreStartContainerRequest,
        context: Context[v1beta1.PreStartContainerRequest, v1beta1.PreStartContainerResponse],
    ) -> v1beta1.PreStartContainerResponse:
        """Nothing to do before a container starts."""
        del request, context
        return v1beta1.PreStartContainerResponse()


def _including(ids: Sequence[str]) -> str:
    return f" with {', '.join(ids)}" if ids else ""
