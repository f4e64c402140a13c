"""The kubelet's PodResources API: which pod holds which device or claim, and which devices are allocatable.

The kubelet is called when a page needs the answer, at most once in CACHE_SECONDS: it limits its callers, and scrapes,
the page and the API all need it. While it does not answer, holders are unknown, never outdated.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import grpc
import grpc.aio

from devherd import signals
from devherd.inventory import Allocations, Holder
from devherd.kubelet.cures import WITHOUT_THREADS
from devherd.kubelet.deadline import MuteError, in_time
from devherd.kubelet.endpoint import target
from devherd.log import Once
from devherd.process import BEAT_PERIOD_SECONDS, RENEW, Child
from devherd.proto.podresources_v1_pb2 import (
    AllocatableResourcesRequest,
    ListPodResourcesRequest,
    ListPodResourcesResponse,
)
from devherd.proto.podresources_v1_pb2_grpc import PodResourcesListerStub

if TYPE_CHECKING:
    from devherd.proto.podresources_v1_pb2_grpc import PodResourcesListerAsyncStub

log = logging.getLogger(__name__)

_T = TypeVar("_T")
_mute: list[MuteError] = []
"""The error of this process's last call, if gRPC did not end it."""

DEADLINE_SECONDS = 2.0
CACHE_SECONDS = 3.0

_CHANNEL_OPTIONS = (
    ("grpc.max_receive_message_length", 64 << 20),  # every pod of the node in one message
    ("grpc.use_local_subchannel_pool", 1),  # no back-off inherited from the last attempt
    ("grpc.enable_http_proxy", 0),
)


class PodResources:
    """The kubelet's answer, kept for CACHE_SECONDS; concurrent callers wait for the same answer."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket
        self._lock = asyncio.Lock()
        self._answer: Allocations | None = None
        self._asked_at = float("-inf")
        self._complaint = Once(log.warning)

    async def allocations(self) -> Allocations | None:
        """Holders of every allocated device; None while the kubelet does not answer, for DEADLINE_SECONDS at most."""
        async with self._lock:
            if time.monotonic() - self._asked_at >= CACHE_SECONDS:
                self._answer = await self._ask()
                self._asked_at = time.monotonic()
            return self._answer

    async def _ask(self) -> Allocations | None:
        if not self._socket.exists():
            self._complaint.complain("%s does not exist: which pod holds which device is unknown", self._socket)
            return None
        try:
            answer = parse(await list_pods(self._socket))
        except grpc.aio.AioRpcError as error:
            reason = f"{error.code().name}: {error.details()}"
            self._complaint.complain("cannot ask %s which pod holds which device: %s", self._socket, reason)
            return None
        self._complaint.over()
        return answer


async def ask_beside_the_heartbeat(child: Child, asking: Coroutine[None, None, int]) -> int:
    """Run a child that asks the kubelet again and again. Returns its exit code.

    0 after SIGTERM, RENEW once it has outgrown its sandbox, or what `asking` returns. Raises what `asking` raises, and
    MuteError once a call does not come back: the heartbeat beside it would hide that.
    """
    stopped = asyncio.Event()
    signals.on_end(asyncio.get_running_loop(), stopped.set)
    task = asyncio.create_task(asking)
    try:
        while not stopped.is_set():
            check()
            child.beat()
            if task.done():
                return task.result()
            if child.has_outgrown_its_sandbox():
                return RENEW
            with suppress(TimeoutError):
                async with asyncio.timeout(BEAT_PERIOD_SECONDS):
                    await stopped.wait()
    finally:
        task.cancel()
    return 0


async def list_pods(socket: Path) -> ListPodResourcesResponse:
    """The kubelet's answer to List. Raises grpc.aio.AioRpcError."""
    return await _answer(socket, lambda api: api.List(ListPodResourcesRequest(), timeout=DEADLINE_SECONDS))


async def allocatable_ids(socket: Path) -> dict[str, set[str]]:
    """The ids of allocatable devices by resource name. Raises grpc.aio.AioRpcError."""
    return {name: set(devices) for name, devices in (await allocatable_nodes(socket)).items()}


async def allocatable_nodes(socket: Path) -> dict[str, dict[str, frozenset[int]]]:
    """The NUMA nodes of each allocatable device, by resource name and id. Raises grpc.aio.AioRpcError.

    The kubelet repeats a device for each of its nodes.
    """
    request = AllocatableResourcesRequest()
    answer = await _answer(socket, lambda api: api.GetAllocatableResources(request, timeout=DEADLINE_SECONDS))
    found: dict[str, dict[str, frozenset[int]]] = {}
    for devices in answer.devices:
        nodes = frozenset(node.ID for node in devices.topology.nodes)
        known = found.setdefault(devices.resource_name, {})
        for device_id in devices.device_ids:
            known[device_id] = known.get(device_id, frozenset()) | nodes
    return found


async def _answer(
    socket: Path, ask: "Callable[[PodResourcesListerAsyncStub], grpc.aio.UnaryUnaryCall[Any, _T]]"
) -> "_T":
    """The answer of a call. Raises grpc.aio.AioRpcError, also if gRPC does not end the call, or cannot begin it."""

    async def answer() -> _T:
        async with grpc.aio.insecure_channel(target(socket), options=_CHANNEL_OPTIONS) as channel:
            return await ask(PodResourcesListerStub(channel))

    _mute.clear()
    try:
        return await in_time(answer(), DEADLINE_SECONDS, "a call of PodResources")
    except MuteError as error:
        _mute.append(error)
        raise _without_threads(str(error)) from error
    except RuntimeError as error:  # Python's for a thread that cannot be started
        raise _without_threads(f"no thread: {error}") from error


def _without_threads(why: str) -> grpc.aio.AioRpcError:
    nothing = grpc.aio.Metadata()
    return grpc.aio.AioRpcError(grpc.StatusCode[WITHOUT_THREADS], nothing, nothing, details=why)


def check() -> None:
    """Raise MuteError if gRPC did not end the last call: a later one of this process would not come back, either."""
    if _mute:
        raise _mute[0]


def parse(answer: ListPodResourcesResponse) -> Allocations:
    """Holders by resource name and device id, without the kubelet's repetition of a device for each NUMA node."""
    allocations: dict[tuple[str, str], list[Holder]] = {}
    for pod in answer.pod_resources:
        for container in pod.containers:
            holder = {"namespace": pod.namespace, "pod": pod.name, "container": container.name}
            for devices in container.devices:
                for device_id in devices.device_ids:
                    holders = allocations.setdefault((devices.resource_name, device_id), [])
                    if holder not in holders:
                        holders.append(holder)
    return allocations


@dataclass(frozen=True, slots=True)
class ClaimedDevice:
    """A device that a claim of a pod has by Dynamic Resource Allocation."""

    driver: str
    pool: str
    device: str
    """Its name in the pool."""
    namespace: str
    """Of the claim, whose name follows."""
    claim: str
    share_id: str = ""
    """Empty unless several claims may have the device."""


def claimed(answer: ListPodResourcesResponse) -> dict[ClaimedDevice, list[Holder]]:
    """The holders of each claimed device. A claim may be of several pods, and of several containers of one.

    The CDI names are left out: the kubelet repeats those of a driver's whole claim for each of its devices.
    """
    found: dict[ClaimedDevice, list[Holder]] = {}
    for pod in answer.pod_resources:
        for container in pod.containers:
            holder = {"namespace": pod.namespace, "pod": pod.name, "container": container.name}
            for claim in container.dynamic_resources:
                for one in claim.claim_resources:
                    device = ClaimedDevice(
                        one.driver_name,
                        one.pool_name,
                        one.device_name,
                        claim.claim_namespace,
                        claim.claim_name,
                        one.share_id,
                    )
                    holders = found.setdefault(device, [])
                    if holder not in holders:
                        holders.append(holder)
    return found
