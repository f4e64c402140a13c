"""The state that the parts of one kubelet share: devices, pods, allocations and plugins; and its checkpoint."""

from pathlib import Path

from devherd_sim.kubelet import checkpoint
from devherd_sim.kubelet.clients import Release, clients_of
from devherd_sim.kubelet.connections import ConnectedPlugins, PluginEndpoint
from devherd_sim.kubelet.events import Events
from devherd_sim.kubelet.ledger import AllocationLedger, Devices, Pods
from devherd_sim.kubelet.topology import Topology


class KubeletNode:
    """State that outlives restarts of the kubelet; `begin` resets it to what a new process knows."""

    def __init__(self, directory: Path, topology: Topology, grace_seconds: float, kubernetes: Release) -> None:
        self.events = Events()
        self.devices: dict[str, Devices] = {}
        """The devices of each registered resource."""
        self.ledger = AllocationLedger()
        self.pods = Pods()
        self.topology = topology
        self.connections: ConnectedPlugins | None = None
        self._directory = directory
        self._grace_seconds = grace_seconds
        self._kubernetes = kubernetes
        self._pods_known = False

    def begin(self) -> None:
        """Restore the checkpoint: allocations, and resources without devices. Raises OSError."""
        known = self._checkpoint()
        self.ledger.load(known.allocations)
        for pod in self.pods:
            self.ledger.name(pod)
        if not self._pods_known:
            self.pods.adopt(self.ledger)
            self._pods_known = True
        self.devices.clear()
        self.devices.update({resource: Devices() for resource in known.registered})
        self.connections = ConnectedPlugins(
            self.devices,
            self.events,
            self._grace_seconds,
            self.try_to_save,
            numa_nodes=self.topology.numa_nodes,
            clients=clients_of(self._kubernetes),
        )

    async def end(self) -> None:
        """Disconnect every plugin at once."""
        if self.connections is not None:
            await self.connections.close()

    def endpoint(self, resource: str) -> PluginEndpoint | None:
        """The plugin that is asked for a resource; None if there is none."""
        return self.connections.endpoint(resource) if self.connections else None

    def is_known(self, resource: str) -> bool:
        """True if a resource is registered or allocated."""
        return self.listed(resource) is not None or self.ledger.knows(resource)

    def listed(self, resource: str) -> Devices | None:
        """The devices of a resource; None if there was no list of them."""
        devices = self.devices.get(resource)
        return devices if devices is not None and devices.listed else None

    def collect(self) -> None:
        """Remove the allocations of ended pods, unless the kubelet does not know all pods yet."""
        if self.pods.sources_ready:
            self.ledger.collect(self.pods.admitted())

    def save(self) -> None:
        """Write the checkpoint. Raises OSError."""
        registered = {resource: devices.healthy for resource, devices in self.devices.items() if devices.listed}
        checkpoint.write(self._directory, checkpoint.encode(self.ledger, registered))

    def try_to_save(self) -> None:
        """Write the checkpoint; a failure is recorded as an event."""
        try:
            self.save()
        except OSError as error:
            self.events.record("checkpoint-failed", error=str(error))

    def _checkpoint(self) -> checkpoint.Checkpoint:
        content = checkpoint.read(self._directory)
        try:
            return checkpoint.decode(content) if content is not None else checkpoint.Checkpoint()
        except checkpoint.CheckpointError as error:
            self.events.record("checkpoint-ignored", error=str(error))
            return checkpoint.Checkpoint()
