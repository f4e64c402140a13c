"""Which pod holds which device, asked of the kubelet's PodResources API.

Asked when somebody wants to know, and at most once in CACHE_SECONDS: the kubelet limits callers, and a scrape, the page
and the API all ask. A kubelet that is away or slow leaves the answer unknown, never old.
"""

import logging
import threading
import time
from pathlib import Path

import grpc

from devherd.proto.podresources_v1_pb2 import ListPodResourcesRequest, ListPodResourcesResponse
from devherd.proto.podresources_v1_pb2_grpc import PodResourcesListerStub
from devherd.run_directory import Allocations, Holder

log = logging.getLogger(__name__)

DEADLINE_SECONDS = 2.0
CACHE_SECONDS = 3.0

_CHANNEL_OPTIONS = (
    ("grpc.max_receive_message_length", 64 << 20),  # every pod of the node in one message
    ("grpc.use_local_subchannel_pool", 1),  # no back-off inherited from the last attempt
    ("grpc.enable_http_proxy", 0),
)


class PodResources:
    """The kubelet's answer, remembered for a moment. Thread-safe."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket
        self._lock = threading.Lock()
        self._answer: Allocations | None = None
        self._asked_at = float("-inf")
        self._complaint = ""

    def allocations(self) -> Allocations | None:
        """Holders of every allocated device; None while the kubelet cannot be asked. Takes DEADLINE_SECONDS at most."""
        with self._lock:
            if time.monotonic() - self._asked_at >= CACHE_SECONDS:
                self._answer = self._ask()
                self._asked_at = time.monotonic()
            return self._answer

    def _ask(self) -> Allocations | None:
        if not self._socket.exists():
            self._complain(f"{self._socket} is not there: which pod holds which device stays unknown")
            return None
        try:
            answer = parse(list_pods(self._socket))
        except grpc.RpcError as error:
            reason = f"{error.code().name}: {error.details()}" if isinstance(error, grpc.Call) else str(error)
            self._complain(f"{self._socket} does not tell which pod holds which device: {reason}")
            return None
        self._complaint = ""
        return answer

    def _complain(self, complaint: str) -> None:
        if complaint != self._complaint:
            log.warning("%s", complaint)
        self._complaint = complaint


def list_pods(socket: Path) -> ListPodResourcesResponse:
    """The kubelet's List answer. Raises grpc.RpcError."""
    with grpc.insecure_channel(f"unix:{socket}", options=_CHANNEL_OPTIONS) as channel:
        answer: ListPodResourcesResponse = PodResourcesListerStub(channel).List(
            ListPodResourcesRequest(), timeout=DEADLINE_SECONDS
        )
    return answer


def parse(answer: ListPodResourcesResponse) -> Allocations:
    """Holders by resource name and device id; the kubelet repeats a device for each of its NUMA nodes, we do not."""
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
