"""What a kubelet's PodResources shows, in an order of its own: to be compared between kubelets."""

import time
from pathlib import Path
from typing import Any

import grpc

from devherd.proto import podresources_v1_pb2 as api
from devherd.proto.podresources_v1_pb2_grpc import PodResourcesListerStub

_DEADLINE_SECONDS = 10.0
_PASSING = {grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.UNAVAILABLE}


def seen_pod_resources(socket: Path) -> dict[str, Any]:
    """`list`: pods by name; `get`: the same, asked for one by one, and one that is not there; `allocatable`."""
    with grpc.insecure_channel(f"unix:{socket}") as channel:
        lister = PodResourcesListerStub(channel)
        pods = _ask(lister.List, api.ListPodResourcesRequest()).pod_resources
        names = [*((pod.namespace, pod.name) for pod in pods), ("default", "nobody")]
        return {
            "list": sorted(map(_pod, pods)),
            "get": sorted(_get(lister, *name) for name in names),
            "allocatable": _devices(_ask(lister.GetAllocatableResources, api.AllocatableResourcesRequest()).devices),
        }


def _get(lister: PodResourcesListerStub, namespace: str, name: str) -> list[Any]:
    request = api.GetPodResourcesRequest(pod_namespace=namespace, pod_name=name)
    try:
        return _pod(_ask(lister.Get, request).pod_resources)
    except grpc.RpcError as error:
        return [namespace, name, error.code().name, error.details()]


def _ask(method: Any, request: Any) -> Any:
    """Ask again when the kubelet has been asked too often, or was restarted this moment."""
    until = time.monotonic() + _DEADLINE_SECONDS
    while True:
        try:
            return method(request, timeout=_DEADLINE_SECONDS)
        except grpc.RpcError as error:
            if error.code() not in _PASSING or time.monotonic() > until:
                raise
            time.sleep(0.05)


def _pod(pod: api.PodResources) -> list[Any]:
    others = [bool(pod.containers[0].cpu_ids), bool(pod.containers[0].memory)]
    return [pod.namespace, pod.name, [[each.name, _devices(each.devices)] for each in pod.containers], others]


def _devices(entries: Any) -> list[list[Any]]:
    """Kubelets list them in no order."""
    told = [
        [
            entry.resource_name,
            list(entry.device_ids),
            [node.ID for node in entry.topology.nodes] if entry.HasField("topology") else None,
        ]
        for entry in entries
    ]
    return sorted(told, key=repr)
