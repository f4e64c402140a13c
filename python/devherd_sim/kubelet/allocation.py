"""Devices in the hands of a container, what a plugin answered for them, and why a pod is turned away."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from devherd.proto import deviceplugin_v1beta1_pb2 as api
from devherd_sim.kubelet.pod import Container

WITHOUT_NUMA = -1
"""The checkpoint's key for devices without a NUMA node."""


class AdmissionError(Exception):
    """Why a pod is rejected: the device manager's words."""

    reason = "UnexpectedAdmissionError"

    @property
    def message(self) -> str:
        """What admission answers."""
        return f"Allocate failed due to {self}, which is unexpected"

    @property
    def pod_message(self) -> str:
        """The message that the pod's status would show."""
        return f"Pod was rejected: {self.message}"


class TopologyAffinityError(AdmissionError):
    """The topology manager's policy does not admit what could be given."""

    reason = "TopologyAffinityError"

    def __init__(self) -> None:
        super().__init__("Resources cannot be allocated with Topology locality")

    @property
    def message(self) -> str:
        """What admission answers."""
        return str(self)


class StartError(Exception):
    """Why a container is not started; the kubelet tries again."""


@dataclass(frozen=True, slots=True)
class Allocation:
    """Devices of one resource in one container, and what the plugin answered for them."""

    container: Container
    resource: str
    device_ids: tuple[str, ...]
    response: api.ContainerAllocateResponse
    by_numa_node: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    """The same devices by the nodes they were on when they were given; a device of two nodes is listed twice."""

    def numa_nodes(self, device_id: str) -> list[int]:
        """The nodes of one device; empty when its plugin listed none."""
        return [node for node, ids in sorted(self.by_numa_node.items()) if device_id in ids and node != WITHOUT_NUMA]

    def answer(self) -> dict[str, Any]:
        """The plugin's answer as plain data."""
        return answer([self])


def answer(allocations: Iterable[Allocation]) -> dict[str, Any]:
    """What a container gets of all its resources. The first to set a name or a path wins, as in the kubelet."""
    devices: dict[str, dict[str, Any]] = {}
    mounts: dict[str, dict[str, Any]] = {}
    envs: dict[str, str] = {}
    annotations: dict[str, str] = {}
    cdi_devices: dict[str, None] = {}
    for response in (allocation.response for allocation in allocations):
        for node in response.devices:
            devices.setdefault(node.container_path, _plain(node, "host_path", "container_path", "permissions"))
        for mount in response.mounts:
            mounts.setdefault(mount.container_path, _plain(mount, "host_path", "container_path", "read_only"))
        envs = dict(response.envs) | envs
        annotations = dict(response.annotations) | annotations
        cdi_devices |= dict.fromkeys(device.name for device in response.cdi_devices)
    return {
        "devices": list(devices.values()),
        "mounts": list(mounts.values()),
        "envs": dict(sorted(envs.items())),
        "annotations": dict(sorted(annotations.items())),
        "cdi_devices": list(cdi_devices),
    }


def _plain(message: api.DeviceSpec | api.Mount, *names: str) -> dict[str, Any]:
    return {name: getattr(message, name) for name in names}
