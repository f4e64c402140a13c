"""Asks the kubelet now and then whether it still has our devices: it can lose them without a sign on our side.

Up to 1.36 the kubelet knows plugins by resource name alone: when another plugin of the same resource came and went, it
takes our devices for lost, leaves our stream open and repairs nothing (kubernetes#121994).
"""

import asyncio
import random
from pathlib import Path

import grpc
import grpc.aio

from devherd.plugin.endpoint import target
from devherd.plugin.resource_file import ResourceFile
from devherd.proto.podresources_v1_pb2 import AllocatableResourcesRequest
from devherd.proto.podresources_v1_pb2_grpc import PodResourcesListerStub

DEADLINE_SECONDS = 2.0
MISSES = 2
"""In a row: one may be a list that is still under way."""

_OPTIONS = (("grpc.max_receive_message_length", 64 << 20),)  # every device of the node in one message


async def until_forgotten(socket: Path, resource: ResourceFile, period_seconds: float) -> str:
    """Returns why to register anew, once the kubelet lists none of the healthy devices; never when the period is 0.

    A kubelet that cannot be asked (no PodResources API, no rights to its socket, too slow) says nothing either way.
    """
    misses = 0
    while misses < MISSES:
        # Spread out, for the kubelet limits callers, and all children of a node begin together.
        await asyncio.sleep(period_seconds * random.uniform(0.8, 1.2) if period_seconds else float("inf"))  # noqa: S311
        healthy = resource.latest.healthy
        listed = await allocatable_ids(socket, resource.latest.name) if healthy else None
        misses = misses + 1 if listed is not None and not healthy & listed else 0
    return "the kubelet has lost our devices, though it still watches"


async def allocatable_ids(socket: Path, resource_name: str) -> set[str] | None:
    """The ids that the kubelet takes for allocatable; None when it cannot be asked."""
    async with grpc.aio.insecure_channel(target(socket), options=_OPTIONS) as channel:
        try:
            answer = await PodResourcesListerStub(channel).GetAllocatableResources(
                AllocatableResourcesRequest(), timeout=DEADLINE_SECONDS
            )
        except grpc.aio.AioRpcError:
            return None
    return {
        device_id
        for devices in answer.devices
        if devices.resource_name == resource_name
        for device_id in devices.device_ids
    }
