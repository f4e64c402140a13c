"""A kubelet's device manager without the kubelet, for demos, tests and plugin authors.

    kubelet = EmbeddedKubelet(Path("/tmp/kubelet"))
    await kubelet.start()
    await kubelet.until_allocatable("example.com/gpu", 4)
    allocation = await kubelet.allocate("example.com/gpu", 2, pod="train")
    await kubelet.restart()

Its behaviour and messages follow Kubernetes 1.37, or 1.36 and earlier. Its checkpoint passes its state to the next
process.
"""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

import grpc

from devherd.proto.deviceplugin_v1beta1_pb2_grpc import add_RegistrationServicer_to_server
from devherd.proto.podresources_v1_pb2_grpc import add_PodResourcesListerServicer_to_server
from devherd.settings import Settings
from devherd_sim.kubelet import admission, registration
from devherd_sim.kubelet.admission import Admission
from devherd_sim.kubelet.clients import NEWEST, Release
from devherd_sim.kubelet.connections import GRACE_SECONDS, ConnectedPlugins, PluginEndpoint
from devherd_sim.kubelet.dra_plugins import DraPlugins
from devherd_sim.kubelet.events import PATIENCE_SECONDS, KubeletEvent
from devherd_sim.kubelet.ledger import Devices
from devherd_sim.kubelet.node import KubeletNode
from devherd_sim.kubelet.plugin_watcher import DevicePlugins, PluginHandler, PluginWatcher
from devherd_sim.kubelet.pod import Allocation, Container, Pod
from devherd_sim.kubelet.pod_resources import CallLimit, PodResourcesServer
from devherd_sim.kubelet.registration import Disturbance, GrpcListener, RegistrationService, refuse_second
from devherd_sim.kubelet.topology import Policy, Topology


class EmbeddedKubelet:
    """A kubelet's device manager on a directory of its own.

    `root_dir`: where all but the directory of device plugins is, as with a kubelet's `--root-dir`.

    Raises UsageError for more NUMA nodes than the policy allows.
    """

    def __init__(
        self,
        kubelet_dir: Path,
        *,
        root_dir: Path | None = None,
        topology_policy: Policy = "none",
        numa_nodes: int = 1,
        grace_seconds: float = GRACE_SECONDS,
        kubernetes: Release = NEWEST,
    ) -> None:
        self.paths = Settings(kubelet_dir=kubelet_dir, kubelet_root_dir=root_dir)
        self.kubernetes = kubernetes
        """The release whose rules of registration it has."""
        topology = Topology(topology_policy, numa_nodes)
        self._node = KubeletNode(self.paths.plugin_directory, topology, grace_seconds, kubernetes)
        self._admission = Admission(self._node)
        self._registration: RegistrationService | None = None
        self._watcher: PluginWatcher | None = None
        self._listeners: list[GrpcListener] = []
        self.disturbances: dict[str, Disturbance] = {}
        """What the next Register calls meet, by resource; also after a restart."""
        self.events = self._node.events
        self.dra = DraPlugins(self.events)
        """The plugins of DRA drivers."""

    @property
    def running(self) -> bool:
        """True while it accepts registrations."""
        return bool(self._listeners)

    async def start(self, *, sources_ready: bool = True) -> None:
        """Read the checkpoint, remove old sockets and listen, like a starting kubelet.

        Without `sources_ready` it leaves running containers alone and collects nothing. Raises AlreadyRunningError when
        a kubelet listens there, UsageError when the path is too long for a socket, OSError when the directory cannot be
        used.
        """
        refuse_second(self.paths.kubelet_socket)
        self.paths.kubelet_dir.mkdir(parents=True, exist_ok=True)
        self._node.begin()
        self._node.pods.sources_ready = sources_ready
        removed = registration.clean(self.paths.plugin_directory)
        await self._listen(self.paths.kubelet_socket, self._serve_registration)
        await self._listen(self.paths.pod_resources_socket, self._serve_pod_resources, [CallLimit()])
        self.paths.plugins_directory.mkdir(mode=0o750, parents=True, exist_ok=True)
        self._watch_registry()
        self.events.record("started", removed=removed)

    async def stop(self, *, clean: bool = False) -> None:
        """Stop at once. The socket files stay, as with a real kubelet, unless `clean`. Idempotent."""
        if not self._listeners:
            return
        if self._watcher is not None:
            await self._watcher.stop()
        for listener in self._listeners:
            await listener.close(leave_file=not clean)
        self._listeners = []
        await self.dra.close()
        await self._node.end()
        self.events.record("stopped")

    async def restart(self, *, sources_ready: bool = True, down: float = 0.0) -> None:
        """Stop, and start `down` seconds later: it then knows the allocations and the resources, but no devices.

        Meanwhile its sockets stay and refuse connections, as while a real kubelet restarts, which takes seconds.
        """
        await self.stop()
        await asyncio.sleep(down)
        await self.start(sources_ready=sources_ready)

    async def reboot(self) -> None:
        """Stop all containers and restart, as after a reboot of the node."""
        self._node.pods.stop_all()
        await self.restart()

    def now_ready(self) -> None:
        """Set `sources_ready`: the kubelet knows all pods now."""
        self._node.pods.sources_ready = True

    def resources(self) -> list[str]:
        """The registered resources, sorted."""
        return sorted(self._node.devices)

    def devices(self, resource: str) -> dict[str, str]:
        """The health of each device of the last list, by id; empty for an unknown resource."""
        known = self._of(resource)
        ids = known.healthy | known.unhealthy
        return {device_id: "Healthy" if device_id in known.healthy else "Unhealthy" for device_id in sorted(ids)}

    def plugin(self, resource: str) -> PluginEndpoint | None:
        """The plugin that Allocate goes to, even if the kubelet has dropped it; None without one since the start."""
        return self._node.endpoint(resource)

    def live_plugins(self, resource: str) -> list[PluginEndpoint]:
        """The plugins of a resource whose ListAndWatch is open, oldest first."""
        return [each for each in self._connections.live if each.resource == resource] if self.running else []

    def connecting(self, resource: str) -> PluginEndpoint | None:
        """The plugin of a resource that is being dialled or asked for its options; None without one."""
        return next((each for each in self._connections.connecting if each.resource == resource), None)

    def unanswered_since(self, resource: str) -> float | None:
        """Time of the Register call that is not answered yet, in monotonic seconds; None without such a call."""
        return self._registration.unanswered.get(resource) if self._registration and self.running else None

    @property
    def numa_node_count(self) -> int:
        """The number of NUMA nodes of the machine."""
        return self._node.topology.numa_nodes

    def numa_nodes(self, resource: str, device_id: str) -> list[int]:
        """The NUMA nodes that the plugin listed for a device."""
        return self._of(resource).numa_nodes(device_id)

    def capacity(self, resource: str) -> int:
        """The capacity that the node reports for a resource."""
        return self._of(resource).capacity

    def allocatable(self, resource: str) -> int:
        """The allocatable devices that the node reports for a resource."""
        return self._of(resource).allocatable

    def in_use(self, resource: str) -> set[str]:
        """The devices of a resource that are not free."""
        return self._node.ledger.in_use(resource)

    def allocations(self) -> list[Allocation]:
        """The allocations, oldest first."""
        return list(self._node.ledger)

    def pods(self) -> list[Pod]:
        """The active pods."""
        return list(self._node.pods)

    def registrations(self, resource: str) -> int:
        """The number of Register calls for a resource since the last start."""
        return self._registration.calls[resource] if self._registration else 0

    async def admit(self, pod: Pod) -> list[Allocation]:
        """Admit a pod and return its allocations by container, init containers first.

        Skips resources that the kubelet does not know. Raises AdmissionError, with the kubelet's message, when the pod
        is rejected; the pod has ended then.
        """
        return await self._admission.admit(pod)

    async def allocate(
        self, resource: str, count: int, *, pod: str = "pod", container: str = "main", namespace: str = "default"
    ) -> Allocation | None:
        """Admit a container that requests devices, into a new or an active pod, and return its allocation.

        Returns None when the kubelet does not know the resource. Raises AdmissionError when the container is rejected;
        the pod keeps its earlier allocations.
        """
        whose = Container(pod, container, namespace)
        before = self._node.pods.get(whose.uid) or Pod(pod, namespace=namespace)
        asked, spec = before.with_limits(container, {resource: count})
        await self._admission.admit_container(asked, spec)
        self._node.pods.add(asked)
        return self._node.ledger.held(whose, resource)

    async def start_container(
        self, *, pod: str = "pod", container: str = "main", namespace: str = "default", uid: str = ""
    ) -> admission.Answer:
        """Start or restart a container of an active pod and return the merged answers of its plugins.

        Raises StartError, for example when PreStartContainer fails or takes 30 s.
        """
        return await admission.start(self._node, self._admission, Container(pod, container, namespace, uid))

    def free(self, pod: str, namespace: str = "default", uid: str = "") -> list[Allocation]:
        """End a pod. Returns the devices that it held."""
        over = uid or self._node.pods.uid(pod, namespace)
        held = self._node.ledger.of_pod(over)
        self._node.pods.remove(over)
        self._node.collect()
        if held:
            # A real kubelet writes the file at its next allocation only. Here a new process reads its pods from it.
            self._node.try_to_save()
            self.events.record("freed", namespace=namespace, pod=pod)
        return held

    async def until_registered(
        self, resource: str, *, since: int = 0, within: float = PATIENCE_SECONDS
    ) -> KubeletEvent:
        """Wait for a registration of a resource since a mark of `events` and return it. Raises TimeoutError."""
        return await self.events.wait("registered", resource, since=since, within=within)

    async def until_allocatable(self, resource: str, count: int, *, within: float = PATIENCE_SECONDS) -> None:
        """Wait until exactly `count` devices of a resource are allocatable. Raises TimeoutError."""
        await self.events.until(
            lambda: self.allocatable(resource) == count, within=within, what=f"{count} allocatable {resource}"
        )

    @property
    def _connections(self) -> ConnectedPlugins:
        assert self._node.connections is not None  # since the first start
        return self._node.connections

    def _of(self, resource: str) -> Devices:
        return self._node.devices.get(resource, Devices())

    async def _listen(
        self,
        socket: Path,
        serve: Callable[[grpc.aio.Server], None],
        interceptors: Sequence[grpc.aio.ServerInterceptor] = (),
    ) -> None:
        socket.parent.mkdir(parents=True, exist_ok=True)
        listener = GrpcListener(socket, serve, interceptors)
        await listener.open()
        self._listeners.append(listener)

    def _watch_registry(self) -> None:
        handlers: dict[str, PluginHandler] = {"DevicePlugin": DevicePlugins(self._connections), "DRAPlugin": self.dra}
        self._watcher = PluginWatcher(self.paths.plugins_registry, handlers, self.events)
        self._watcher.start()

    def _serve_registration(self, server: grpc.aio.Server) -> None:
        self._registration = RegistrationService(
            self.paths.plugin_directory, self._connections, self.events, self.disturbances
        )
        add_RegistrationServicer_to_server(self._registration, server)

    def _serve_pod_resources(self, server: grpc.aio.Server) -> None:
        add_PodResourcesListerServicer_to_server(PodResourcesServer(self._node), server)
