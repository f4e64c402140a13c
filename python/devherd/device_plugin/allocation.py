"""Device ids → the device nodes, mounts, environment, annotations and CDI devices of a container. Pure."""

from collections.abc import Iterable, Sequence

import grpc

from devherd.device_plugin.snapshot import Snapshot
from devherd.proto import deviceplugin_v1beta1_pb2 as v1beta1
from devherd.proto import spool_pb2
from devherd.text import joined_variables


class RefusedError(Exception):
    """An allocation that is refused: the kubelet rejects the pod with this text."""

    def __init__(self, status: grpc.StatusCode, text: str) -> None:
        super().__init__(text)
        self.status = status


def container_response(snapshot: Snapshot, device_ids: Sequence[str]) -> v1beta1.ContainerAllocateResponse:
    """The answer to Allocate for a container with these devices. Raises RefusedError if they cannot be allocated.

    The kubelet sends ids in any order; the answer has the order of the spool file.
    """
    _check_amount(snapshot, device_ids)
    for device_id in device_ids:
        _check_device(snapshot, device_id)
    in_order = sorted(set(device_ids), key=snapshot.positions.__getitem__)
    return merge([snapshot.devices[device_id].edits for device_id in in_order])


def merge(edits: Sequence[spool_pb2.Edits]) -> v1beta1.ContainerAllocateResponse:
    """The edits of all these devices, without duplicates."""
    response = v1beta1.ContainerAllocateResponse(
        mounts=_merge_mounts(mount for each in edits for mount in each.mounts),
        devices=_merge_nodes(node for each in edits for node in each.nodes),
        cdi_devices=[
            v1beta1.CDIDevice(name=name) for name in dict.fromkeys(name for each in edits for name in each.cdi_devices)
        ],
    )
    for texts, merged in (
        (response.envs, joined_variables(each.envs for each in edits)),
        (response.annotations, joined_variables(each.annotations for each in edits)),
    ):
        for key, value in merged.items():  # `update`, and the constructor, take five microseconds even for nothing
            texts[key] = value
    return response


def _check_amount(snapshot: Snapshot, device_ids: Sequence[str]) -> None:
    """Refuse several ids if `fail_requests_greater_than_one` is set and a requested device is shared.

    Without replicas in the resource, the ids are shares.
    """
    asked = set(device_ids)
    if not snapshot.resource.fail_requests_greater_than_one or len(asked) < 2:
        return
    devices = snapshot.devices
    has_replicas = any(device.replicas for device in snapshot.resource.devices)
    if not has_replicas or any(devices[device_id].replicas for device_id in asked & devices.keys()):
        raise RefusedError(
            grpc.StatusCode.INVALID_ARGUMENT,
            f"{len(asked)} devices of {snapshot.name} requested, but a container may have one of them only:"
            " request 1, or turn off fail_requests_greater_than_one",
        )


def _check_device(snapshot: Snapshot, device_id: str) -> None:
    device = snapshot.devices.get(device_id)
    if device is None:
        raise RefusedError(grpc.StatusCode.INVALID_ARGUMENT, f"{snapshot.name} has no device {device_id!r}")
    if device.reasons:
        reasons = ", ".join(device.reasons)
        raise RefusedError(grpc.StatusCode.FAILED_PRECONDITION, f"device {device_id!r} is unhealthy: {reasons}")


def _merge_nodes(nodes: Iterable[spool_pb2.Node]) -> list[v1beta1.DeviceSpec]:
    """The nodes; one that several devices share has the permissions of all of them."""
    permissions: dict[tuple[str, str], dict[str, None]] = {}
    for node in nodes:
        permissions.setdefault((node.host_path, node.container_path), {}).update(dict.fromkeys(node.permissions))
    return [
        v1beta1.DeviceSpec(host_path=host_path, container_path=container_path, permissions="".join(permitted))
        for (host_path, container_path), permitted in permissions.items()
    ]


def _merge_mounts(mounts: Iterable[spool_pb2.Mount]) -> list[v1beta1.Mount]:
    """The mounts; one that several devices share is writable if one of them needs it."""
    read_only: dict[tuple[str, str], bool] = {}
    for mount in mounts:
        place = (mount.host_path, mount.container_path)
        read_only[place] = read_only.get(place, True) and mount.read_only
    return [
        v1beta1.Mount(host_path=host_path, container_path=container_path, read_only=only)
        for (host_path, container_path), only in read_only.items()
    ]
