"""What the parts of one kubelet share: its devices, its pods, who holds what, its plugins; and the checkpoint of it."""

from pathlib import Path

from devherd_sim.kubelet import checkpoint, checkpoint_file
from devherd_sim.kubelet.connections import Connections
from devherd_sim.kubelet.endpoint import Endpoint
from devherd_sim.kubelet.events import Events
from devherd_sim.kubelet.inventory import Devices
from devherd_sim.kubelet.ledger import Ledger
from devherd_sim.kubelet.pods import Pods
from devherd_sim.kubelet.topology import Topology


class Node:
    """Lives over restarts; `begin` is what a new kubelet process knows."""

    def __init__(self, directory: Path, topology: Topology, grace_seconds: float) -> None:
        self.events = Events()
        self.devices: dict[str, Devices] = {}
        """By resource; a resource is registered when it is here."""
        self.ledger = Ledger()
        self.pods = Pods()
        self.topology = topology
        self.connections: Connections | None = None
        self._directory = directory
        self._grace_seconds = grace_seconds
        self._pods_known = False

    def begin(self) -> None:
        """Restore the checkpoint: holders, and resources without devices. Raises OSError."""
        known = self._checkpoint()
        self.ledger.load(known.allocations)
        for pod in self.pods:
            self.ledger.name(pod)
        if not self._pods_known:
            self.pods.adopt(self.ledger)
            self._pods_known = True
        self.devices.clear()
        self.devices.update({resource: Devices() for resource in known.registered})
        self.connections = Connections(
            self.devices, self.events, self._grace_seconds, self.try_to_save, self.topology.numa_nodes
        )

    async def end(self) -> None:
        """Let go of every plugin at once."""
        if self.connections is not None:
            await self.connections.close()

    def endpoint(self, resource: str) -> Endpoint | None:
        """The newest plugin of a resource."""
        return self.connections.endpoints.get(resource) if self.connections else None

    def is_known(self, resource: str) -> bool:
        """Whether a resource is registered, or has been given to somebody."""
        return resource in self.devices or self.ledger.knows(resource)

    def collect(self) -> None:
        """Forget what pods held that are over. Not while the kubelet still learns which pods there are."""
        if self.pods.sources_ready:
            self.ledger.collect(self.pods.admitted())

    def save(self) -> None:
        """Write the checkpoint. Raises OSError."""
        registered = {resource: devices.healthy for resource, devices in self.devices.items()}
        checkpoint_file.write(self._directory, checkpoint.encode(self.ledger, registered))

    def try_to_save(self) -> None:
        """Write the checkpoint; a failure is logged and the kubelet goes on."""
        try:
            self.save()
        except OSError as error:
            self.events.record("checkpoint-failed", error=str(error))

    def _checkpoint(self) -> checkpoint.Checkpoint:
        content = checkpoint_file.read(self._directory)
        try:
            return checkpoint.decode(content) if content is not None else checkpoint.Checkpoint()
        except checkpoint.CheckpointError as error:
            self.events.record("checkpoint-ignored", error=str(error))
            return checkpoint.Checkpoint()
