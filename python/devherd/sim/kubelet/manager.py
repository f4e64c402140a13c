"""The embedded kubelet: its life, and what can be asked of it. One event loop owns it.

    kubelet = EmbeddedKubelet(Path("/tmp/kubelet"))
    await kubelet.start()
    await kubelet.until_allocatable("example.com/gpu", 4)
    allocation = await kubelet.allocate("example.com/gpu", 2, pod="train")
    await kubelet.restart()

What it does and says follows Kubernetes 1.36.
"""

from collections.abc import Callable
from pathlib import Path

import grpc

from devherd.proto.deviceplugin_v1beta1_pb2_grpc import add_RegistrationServicer_to_server
from devherd.proto.podresources_v1_pb2_grpc import add_PodResourcesListerServicer_to_server
from devherd.settings import Settings
from devherd.sim.kubelet import plugin_directory
from devherd.sim.kubelet.allocation import Admission, Allocation, Container
from devherd.sim.kubelet.connections import Connections
from devherd.sim.kubelet.events import Event, Events
from devherd.sim.kubelet.inventory import Devices
from devherd.sim.kubelet.listener import Listener, refuse_second, remove_leftovers
from devherd.sim.kubelet.pod_resources import PodResources
from devherd.sim.kubelet.registration import Registration


class EmbeddedKubelet:
    """A kubelet's device manager on a directory of its own."""

    def __init__(self, kubelet_dir: Path) -> None:
        self.paths = Settings(kubelet_dir=kubelet_dir)
        self.events = Events()
        self._devices: dict[str, Devices] = {}
        self._connections = Connections(self._devices, self.events)
        self._admission = Admission(self._devices, lambda: self._connections, self.events)
        self._registration: Registration | None = None
        self._listeners: list[Listener] = []

    @property
    def running(self) -> bool:
        """Whether it takes registrations."""
        return bool(self._listeners)

    async def start(self) -> None:
        """Clean the directory and listen, as a kubelet that starts.

        Raises AlreadyRunningError when a kubelet is there, UsageError when the path is too long for a socket, OSError
        when the directory cannot be used.
        """
        refuse_second(self.paths.kubelet_socket)
        self.paths.kubelet_dir.mkdir(parents=True, exist_ok=True)
        remove_leftovers(self.paths.kubelet_dir)
        removed = plugin_directory.clean(self.paths.plugin_directory)
        self._connections = Connections(self._devices, self.events)
        await self._listen(self.paths.kubelet_socket, self._serve_registration)
        await self._listen(self.paths.pod_resources_socket, self._serve_pod_resources)
        self.events.record("started", removed=removed)

    async def stop(self, *, clean: bool = False) -> None:
        """Be gone at once. The socket files stay behind, as a real kubelet's do, unless `clean`."""
        for listener in self._listeners:
            await listener.close(leave_file=not clean)
        self._listeners = []
        await self._connections.close()
        self.events.record("stopped")

    async def restart(self) -> None:
        """Stop and start. Known are then, as from a checkpoint, the resources without devices, and the allocations."""
        await self.stop()
        for devices in self._devices.values():
            devices.replace([])
        await self.start()

    def resources(self) -> list[str]:
        """Every resource that a plugin has sent a list of, sorted."""
        return sorted(self._devices)

    def devices(self, resource: str) -> dict[str, str]:
        """Id and health of every device, as last told; empty for a resource that is not known."""
        known = self._devices.get(resource, Devices())
        ids = known.healthy | known.unhealthy
        return {device_id: "Healthy" if device_id in known.healthy else "Unhealthy" for device_id in sorted(ids)}

    def numa_nodes(self, resource: str, device_id: str) -> list[int]:
        """The NUMA nodes that a plugin has told for a device."""
        return self._devices.get(resource, Devices()).numa_nodes(device_id)

    def capacity(self, resource: str) -> int:
        """What the node would report as its capacity."""
        return self._devices.get(resource, Devices()).capacity

    def allocatable(self, resource: str) -> int:
        """What the node would report as allocatable."""
        return self._devices.get(resource, Devices()).allocatable

    def in_use(self, resource: str) -> set[str]:
        """The devices that are not free."""
        return self._admission.in_use(resource)

    def allocations(self) -> list[Allocation]:
        """Who holds what, in the order it was given."""
        return list(self._admission)

    def registrations(self, resource: str) -> int:
        """How often Register was called for a resource since the last start."""
        return self._registration.calls[resource] if self._registration else 0

    async def allocate(
        self, resource: str, count: int, *, pod: str = "pod", container: str = "main", namespace: str = "default"
    ) -> Allocation | None:
        """Admit a container that asks for devices.

        None when the kubelet does not know the resource: the pod starts without. Raises AdmissionError, with the
        kubelet's words, when the pod is rejected.
        """
        return await self._admission.admit(Container(pod, container, namespace), resource, count)

    async def start_container(self, *, pod: str = "pod", container: str = "main", namespace: str = "default") -> None:
        """Start, or restart, an admitted container. Raises StartError when PreStartContainer fails or takes 30 s."""
        await self._admission.start(Container(pod, container, namespace))

    def free(self, pod: str, namespace: str = "default") -> list[Allocation]:
        """A pod is over. Returns what it held."""
        return self._admission.free(pod, namespace)

    async def until_registered(self, resource: str, *, since: int = 0, within: float = 10.0) -> Event:
        """The answered registration of a resource since a mark of `events`. Raises TimeoutError."""
        return await self.events.wait("registered", resource, since=since, within=within)

    async def until_allocatable(self, resource: str, count: int, *, within: float = 10.0) -> None:
        """Wait until so many devices of a resource are allocatable. Raises TimeoutError."""
        await self.events.until(
            lambda: self.allocatable(resource) == count, within=within, what=f"{count} allocatable {resource}"
        )

    async def _listen(self, socket: Path, serve: Callable[[grpc.aio.Server], None]) -> None:
        socket.parent.mkdir(parents=True, exist_ok=True)
        listener = Listener(socket, self.paths.kubelet_dir, serve)
        await listener.open()
        self._listeners.append(listener)

    def _serve_registration(self, server: grpc.aio.Server) -> None:
        self._registration = Registration(self.paths.plugin_directory, self._connections, self.events)
        add_RegistrationServicer_to_server(self._registration, server)

    def _serve_pod_resources(self, server: grpc.aio.Server) -> None:
        add_PodResourcesListerServicer_to_server(PodResources(self.allocations, self._devices), server)
