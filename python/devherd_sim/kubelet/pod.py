"""Pods as a device manager sees them: containers, requests, allocations and admission errors."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from devherd.errors import UsageError
from devherd.proto import deviceplugin_v1beta1_pb2 as api


@dataclass(frozen=True, slots=True)
class Container:
    """A container as the holder of devices. A checkpoint has the pod's UID only, by default `<namespace>/<pod>`."""

    pod: str
    name: str = "main"
    namespace: str = "default"
    uid: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "uid", self.uid or f"{self.namespace}/{self.pod}")

    def labels(self) -> dict[str, str]:
        """Namespace, pod and container name, for the event log."""
        return {"namespace": self.namespace, "pod": self.pod, "container": self.name}

    @classmethod
    def of_uid(cls, uid: str, name: str) -> "Container":
        """The container of a checkpoint's entry. A UID that is not `<namespace>/<pod>` also becomes the pod's name."""
        namespace, slash, pod = uid.partition("/")
        return cls(pod, name, namespace, uid) if slash else cls(uid, name, "", uid)


@dataclass(frozen=True, slots=True)
class ContainerSpec:
    """A container's name and limits. A restartable init container is a sidecar and keeps its devices."""

    name: str = "main"
    limits: Mapping[str, int] = field(default_factory=dict)
    restartable: bool = False


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod to admit."""

    name: str
    containers: tuple[ContainerSpec, ...] = ()
    init_containers: tuple[ContainerSpec, ...] = ()
    namespace: str = "default"
    uid: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "uid", self.uid or f"{self.namespace}/{self.name}")

    def in_order(self) -> tuple[ContainerSpec, ...]:
        """All containers in the order of admission: init containers first."""
        return *self.init_containers, *self.containers

    def spec(self, name: str) -> ContainerSpec | None:
        """The container with a name; None if there is none."""
        return next((spec for spec in self.in_order() if spec.name == name), None)

    def container(self, name: str) -> Container:
        """The container with a name, as the holder of devices."""
        return Container(self.name, name, self.namespace, self.uid)

    def with_limits(self, name: str, limits: Mapping[str, int]) -> tuple["Pod", ContainerSpec]:
        """A copy of the pod with added limits of a container, and that container, which is created if needed."""
        before = next((spec for spec in self.containers if spec.name == name), ContainerSpec(name))
        after = replace(before, limits={**before.limits, **limits})
        if before in self.containers:
            containers = tuple(after if spec is before else spec for spec in self.containers)
        else:
            containers = (*self.containers, after)
        return replace(self, containers=containers), after


def load(path: Path) -> Any:
    """The parsed YAML file. Raises UsageError when it cannot be read or is not valid YAML."""
    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise UsageError(
            f"cannot read {path}", " ".join(str(error).split()), "give a pod's manifest in YAML"
        ) from error


def parse(content: Any, source: str = "the manifest") -> Pod:
    """The pod in a parsed manifest. Raises UsageError for anything else."""
    try:
        if content["kind"] != "Pod":
            raise _no_pod(source, f"its kind is {content['kind']}")
        metadata, spec = content["metadata"], content["spec"]
        return Pod(
            name=str(metadata["name"]),
            namespace=str(metadata.get("namespace", "default")),
            uid=str(metadata.get("uid", "")),
            init_containers=tuple(_container(each) for each in spec.get("initContainers") or ()),
            containers=tuple(_container(each) for each in spec["containers"]),
        )
    except KeyError as error:
        raise _no_pod(source, f"it lacks {error.args[0]}") from error
    except (TypeError, AttributeError, ValueError) as error:
        raise _no_pod(source, str(error)) from error


def _container(content: Any) -> ContainerSpec:
    limits = (content.get("resources") or {}).get("limits") or {}
    return ContainerSpec(
        name=str(content["name"]),
        # Only names with a slash can be extended resources; the device manager ignores `cpu` and `memory`.
        limits={name: int(amount) for name, amount in limits.items() if "/" in name},
        restartable=content.get("restartPolicy") == "Always",
    )


def _no_pod(source: str, why: str) -> UsageError:
    return UsageError(f"{source} is not a pod", why, "give a manifest with kind, metadata.name and spec.containers")


WITHOUT_NUMA = -1
"""The checkpoint's key for devices without a NUMA node."""


class AdmissionError(Exception):
    """A pod is rejected; the message is the device manager's."""

    reason = "UnexpectedAdmissionError"

    @property
    def message(self) -> str:
        """The reason that admission returns."""
        return f"Allocate failed due to {self}, which is unexpected"

    @property
    def pod_message(self) -> str:
        """The message that the pod's status would show."""
        return f"Pod was rejected: {self.message}"


class TopologyAffinityError(AdmissionError):
    """The topology manager's policy admits no possible allocation."""

    reason = "TopologyAffinityError"

    def __init__(self) -> None:
        super().__init__("Resources cannot be allocated with Topology locality")

    @property
    def message(self) -> str:
        """The reason that admission returns."""
        return str(self)


class StartError(Exception):
    """A container could not be started; a kubelet retries."""


@dataclass(frozen=True, slots=True)
class Allocation:
    """A container's devices of one resource, and the plugin's answer for them."""

    container: Container
    resource: str
    device_ids: tuple[str, ...]
    response: api.ContainerAllocateResponse
    by_numa_node: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    """The devices by their NUMA nodes at the time of the allocation; a device of two nodes is listed twice."""

    def numa_nodes(self, device_id: str) -> list[int]:
        """The NUMA nodes of one device; empty when its plugin listed none."""
        return [node for node, ids in sorted(self.by_numa_node.items()) if device_id in ids and node != WITHOUT_NUMA]

    def answer(self) -> dict[str, Any]:
        """The plugin's answer as plain data."""
        return answer([self])


def answer(allocations: Iterable[Allocation]) -> dict[str, Any]:
    """The plugins' answers for a container, merged. The first to set a name or a path wins, as in the kubelet."""
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
