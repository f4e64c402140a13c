"""Pods as a device manager sees them: containers, and the number of devices of each resource they request."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace


@dataclass(frozen=True, slots=True)
class Container:
    """The holder of devices. The kubelet's checkpoint has the pod's UID only; ours adds namespace and name."""

    pod: str
    name: str = "main"
    namespace: str = "default"
    uid: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "uid", self.uid or f"{self.namespace}/{self.pod}")

    def labels(self) -> dict[str, str]:
        """Its names, for the event log."""
        return {"namespace": self.namespace, "pod": self.pod, "container": self.name}

    @classmethod
    def of_uid(cls, uid: str, name: str) -> "Container":
        """A container as a checkpoint has it. A UID of somebody else's making is all there is to name the pod."""
        namespace, slash, pod = uid.partition("/")
        return cls(pod, name, namespace, uid) if slash else cls(uid, name, "", uid)


@dataclass(frozen=True, slots=True)
class ContainerSpec:
    """A container's name and limits. An init container that is restartable is a sidecar and keeps its devices."""

    name: str = "main"
    limits: Mapping[str, int] = field(default_factory=dict)
    restartable: bool = False


@dataclass(frozen=True, slots=True)
class Pod:
    """What is admitted."""

    name: str
    containers: tuple[ContainerSpec, ...] = ()
    init_containers: tuple[ContainerSpec, ...] = ()
    namespace: str = "default"
    uid: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "uid", self.uid or f"{self.namespace}/{self.name}")

    def in_order(self) -> tuple[ContainerSpec, ...]:
        """Every container as it is admitted: the init containers first."""
        return *self.init_containers, *self.containers

    def spec(self, name: str) -> ContainerSpec | None:
        """One of its containers."""
        return next((spec for spec in self.in_order() if spec.name == name), None)

    def container(self, name: str) -> Container:
        """One of its containers as the holder of devices."""
        return Container(self.name, name, self.namespace, self.uid)

    def with_limits(self, name: str, limits: Mapping[str, int]) -> tuple["Pod", ContainerSpec]:
        """The same pod, and its container that asks for more. It is made if it is not there."""
        before = next((spec for spec in self.containers if spec.name == name), ContainerSpec(name))
        after = replace(before, limits={**before.limits, **limits})
        if before in self.containers:
            containers = tuple(after if spec is before else spec for spec in self.containers)
        else:
            containers = (*self.containers, after)
        return replace(self, containers=containers), after
