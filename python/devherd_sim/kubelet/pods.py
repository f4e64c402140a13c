"""The pods of the node, as far as the kubelet knows: which are active, which wait, which containers run."""

from collections.abc import Iterable, Iterator

from devherd_sim.kubelet.allocation import Allocation
from devherd_sim.kubelet.pod import Container, Pod


class Pods:
    """They live on while the kubelet is away: the runtime has them."""

    def __init__(self) -> None:
        self.pending: Pod | None = None
        """The one that is being admitted."""
        self.sources_ready = True
        """False while a starting kubelet does not yet know all pods; containers that run are then left alone."""
        self._active: dict[str, Pod] = {}
        self._running: set[Container] = set()

    def __iter__(self) -> Iterator[Pod]:
        return iter(self._active.values())

    def get(self, uid: str) -> Pod | None:
        """An active pod."""
        return self._active.get(uid)

    def uid(self, name: str, namespace: str) -> str:
        """The UID of a pod by its name, active or not."""
        named = (pod.uid for pod in self if (pod.name, pod.namespace) == (name, namespace))
        return next(named, Pod(name, namespace=namespace).uid)

    def admitted(self) -> set[str]:
        """The UIDs of the pods whose devices must not be collected."""
        return set(self._active) | ({self.pending.uid} if self.pending else set())

    def add(self, pod: Pod) -> None:
        """A pod is active."""
        self._active[pod.uid] = pod

    def remove(self, uid: str) -> None:
        """A pod is over, and its containers."""
        self._active.pop(uid, None)
        self._running = {container for container in self._running if container.uid != uid}

    def started(self, container: Container) -> None:
        """A container runs."""
        self._running.add(container)

    def is_running(self, container: Container) -> bool:
        """Whether the runtime has a container running."""
        return container in self._running

    def stop_all(self) -> None:
        """No container runs any more: the node has been booted."""
        self._running = set()

    def adopt(self, allocations: Iterable[Allocation]) -> None:
        """Take the holders of devices for active pods, where a checkpoint is all there is to know them by."""
        for held in allocations:
            whose = held.container
            pod = self._active.get(whose.uid) or Pod(whose.pod, namespace=whose.namespace, uid=whose.uid)
            pod, _ = pod.with_limits(whose.name, {held.resource: len(held.device_ids)})
            self.add(pod)
