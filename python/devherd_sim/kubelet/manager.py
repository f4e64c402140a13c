"""A kubelet's device manager without the kubelet, for demos, tests and plugin authors.

    kubelet = EmbeddedKubelet(Path("/tmp/kubelet"))
    await kubelet.start()
    await kubelet.until_allocatable("example.com/gpu", 4)
    allocation = await kubelet.allocate("example.com/gpu", 2, pod="train")
    await kubelet.restart()

What it does and says follows Kubernetes 1.36. What it remembers is in its checkpoint, also for the next process.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

import grpc

from devherd.proto.deviceplugin_v1beta1_pb2_grpc import add_RegistrationServicer_to_server
from devherd.proto.podresources_v1_pb2_grpc import add_PodResourcesListerServicer_to_server
from devherd.settings import Settings
from devherd_sim.kubelet import container_start, plugin_directory
from devherd_sim.kubelet.admission import Admission
from devherd_sim.kubelet.allocation import Allocation
from devherd_sim.kubelet.connections import GRACE_SECONDS
from devherd_sim.kubelet.endpoint import Endpoint
from devherd_sim.kubelet.events import Event
from devherd_sim.kubelet.inventory import Devices
from devherd_sim.kubelet.listener import Listener, refuse_second, remove_leftovers
from devherd_sim.kubelet.node import Node
from devherd_sim.kubelet.plugin_watcher import PluginWatcher
from devherd_sim.kubelet.pod import Container, Pod
from devherd_sim.kubelet.pod_resources import PodResources
from devherd_sim.kubelet.rate_limit import RateLimit
from devherd_sim.kubelet.registration import Registration
from devherd_sim.kubelet.topology import Policy, Topology


class EmbeddedKubelet:
    """A kubelet's device manager on a directory of its own.

    Raises UsageError for more NUMA nodes than the policy allows.
    """

    def __init__(
        self,
        kubelet_dir: Path,
        *,
        topology_policy: Policy = "none",
        numa_nodes: int = 1,
        grace_seconds: float = GRACE_SECONDS,
    ) -> None:
        self.paths = Settings(kubelet_dir=kubelet_dir)
        self._node = Node(self.paths.plugin_directory, Topology(topology_policy, numa_nodes), grace_seconds)
        self._admission = Admission(self._node)
        self._registration: Registration | None = None
        self._watcher: PluginWatcher | None = None
        self._listeners: list[Listener] = []
        self.events = self._node.events

    @property
    def running(self) -> bool:
        """Whether it takes registrations."""
        return bool(self._listeners)

    async def start(self, *, sources_ready: bool = True) -> None:
        """Read the checkpoint, clean the directory and listen, as a kubelet that starts.

        Until `sources_ready`, a kubelet leaves alone what runs and collects nothing. Raises AlreadyRunningError when a
        kubelet is there, UsageError when the path is too long for a socket, OSError when the directory cannot be used.
        """
        refuse_second(self.paths.kubelet_socket)
        self.paths.kubelet_dir.mkdir(parents=True, exist_ok=True)
        remove_leftovers(self.paths.kubelet_dir)
        self._node.begin()
        self._node.pods.sources_ready = sources_ready
        removed = plugin_directory.clean(self.paths.plugin_directory)
        await self._listen(self.paths.kubelet_socket, self._serve_registration)
        await self._listen(self.paths.pod_resources_socket, self._serve_pod_resources, [RateLimit()])
        self._watch_registry()
        self.events.record("started", removed=removed)

    async def stop(self, *, clean: bool = False) -> None:
        """Be gone at once. The socket files stay behind, as a real kubelet's do, unless `clean`."""
        if self._watcher is not None:
            await self._watcher.stop()
        for listener in self._listeners:
            await listener.close(leave_file=not clean)
        self._listeners = []
        await self._node.end()
        self.events.record("stopped")

    async def restart(self, *, sources_ready: bool = True) -> None:
        """Stop and start. Known are then the resources, without devices, and the allocations."""
        await self.stop()
        await self.start(sources_ready=sources_ready)

    async def reboot(self) -> None:
        """Restart after which no container runs any more."""
        self._node.pods.stop_all()
        await self.restart()

    def now_ready(self) -> None:
        """The kubelet knows all pods now."""
        self._node.pods.sources_ready = True

    def resources(self) -> list[str]:
        """Every resource that is registered, sorted."""
        return sorted(self._node.devices)

    def devices(self, resource: str) -> dict[str, str]:
        """Id and health of every device of the last list; empty for an unknown resource."""
        known = self._of(resource)
        ids = known.healthy | known.unhealthy
        return {device_id: "Healthy" if device_id in known.healthy else "Unhealthy" for device_id in sorted(ids)}

    def plugin(self, resource: str) -> Endpoint | None:
        """The newest plugin of a resource since the start, also when the kubelet has dropped it."""
        return self._node.endpoint(resource)

    @property
    def numa_node_count(self) -> int:
        """Of the machine."""
        return self._node.topology.numa_nodes

    def numa_nodes(self, resource: str, device_id: str) -> list[int]:
        """The NUMA nodes in a plugin's list for a device."""
        return self._of(resource).numa_nodes(device_id)

    def capacity(self, resource: str) -> int:
        """What the node would report as its capacity."""
        return self._of(resource).capacity

    def allocatable(self, resource: str) -> int:
        """What the node would report as allocatable."""
        return self._of(resource).allocatable

    def in_use(self, resource: str) -> set[str]:
        """The devices that are not free."""
        return self._node.ledger.in_use(resource)

    def allocations(self) -> list[Allocation]:
        """Who holds what, in the order it was given."""
        return list(self._node.ledger)

    def pods(self) -> list[Pod]:
        """The active pods."""
        return list(self._node.pods)

    def registrations(self, resource: str) -> int:
        """How often Register was called for a resource since the last start."""
        return self._registration.calls[resource] if self._registration else 0

    async def admit(self, pod: Pod) -> list[Allocation]:
        """Admit a pod; what it then holds, container by container, the init containers first.

        A container starts without the resources that the kubelet does not know. Raises AdmissionError, with the
        kubelet's words, when the pod is rejected; it is over then.
        """
        return await self._admission.admit(pod)

    async def allocate(
        self, resource: str, count: int, *, pod: str = "pod", container: str = "main", namespace: str = "default"
    ) -> Allocation | None:
        """Admit one container that asks for devices, into a pod that may have others.

        None when the kubelet does not know the resource: the container starts without. Raises AdmissionError when it is
        rejected; what the pod held before it keeps.
        """
        whose = Container(pod, container, namespace)
        before = self._node.pods.get(whose.uid) or Pod(pod, namespace=namespace)
        asked, spec = before.with_limits(container, {resource: count})
        await self._admission.admit_container(asked, spec)
        self._node.pods.add(asked)
        return self._node.ledger.held(whose, resource)

    async def start_container(
        self, *, pod: str = "pod", container: str = "main", namespace: str = "default", uid: str = ""
    ) -> container_start.Answer:
        """Start, or restart, a container of an active pod; what it gets.

        Raises StartError, as when PreStartContainer fails or takes 30 s.
        """
        return await container_start.start(self._node, self._admission, Container(pod, container, namespace, uid))

    def free(self, pod: str, namespace: str = "default", uid: str = "") -> list[Allocation]:
        """A pod is over. Returns what it held."""
        over = uid or self._node.pods.uid(pod, namespace)
        held = self._node.ledger.of_pod(over)
        self._node.pods.remove(over)
        self._node.collect()
        if held:
            # A kubelet leaves them in the file until its next allocation; it hears from elsewhere which pods there are.
            self._node.try_to_save()
            self.events.record("freed", namespace=namespace, pod=pod)
        return held

    async def until_registered(self, resource: str, *, since: int = 0, within: float = 10.0) -> Event:
        """The answered registration of a resource since a mark of `events`. Raises TimeoutError."""
        return await self.events.wait("registered", resource, since=since, within=within)

    async def until_allocatable(self, resource: str, count: int, *, within: float = 10.0) -> None:
        """Wait until a number of devices of a resource is allocatable. Raises TimeoutError."""
        await self.events.until(
            lambda: self.allocatable(resource) == count, within=within, what=f"{count} allocatable {resource}"
        )

    def _of(self, resource: str) -> Devices:
        return self._node.devices.get(resource, Devices())

    async def _listen(
        self,
        socket: Path,
        serve: Callable[[grpc.aio.Server], None],
        interceptors: Sequence[grpc.aio.ServerInterceptor] = (),
    ) -> None:
        socket.parent.mkdir(parents=True, exist_ok=True)
        listener = Listener(socket, self.paths.kubelet_dir, serve, interceptors)
        await listener.open()
        self._listeners.append(listener)

    def _watch_registry(self) -> None:
        assert self._node.connections is not None
        directory = self.paths.kubelet_dir / "plugins_registry"
        self._watcher = PluginWatcher(directory, self._node.connections, self.events)
        self._watcher.start()

    def _serve_registration(self, server: grpc.aio.Server) -> None:
        assert self._node.connections is not None
        self._registration = Registration(self.paths.plugin_directory, self._node.connections, self.events)
        add_RegistrationServicer_to_server(self._registration, server)

    def _serve_pod_resources(self, server: grpc.aio.Server) -> None:
        add_PodResourcesListerServicer_to_server(PodResources(self._node), server)
