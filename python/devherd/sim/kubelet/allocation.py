"""Admission of pods: choosing devices, asking the plugin, remembering who holds what.

The order of the checks and their texts are the kubelet's (`devicesToAllocate` in pkg/kubelet/cm/devicemanager), with
topology policy `none`. A pod is admitted alone: while a plugin thinks, every other pod of the node waits.
"""

import asyncio
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from devherd.proto import deviceplugin_v1beta1_pb2 as api
from devherd.sim.kubelet.connections import Connections
from devherd.sim.kubelet.endpoint import Endpoint, PluginError
from devherd.sim.kubelet.events import Events
from devherd.sim.kubelet.inventory import Devices


class AdmissionError(Exception):
    """Why a pod is rejected: the device manager's words."""

    @property
    def pod_message(self) -> str:
        """The message that the pod's status would show."""
        return f"Pod was rejected: Allocate failed due to {self}, which is unexpected"


class StartError(Exception):
    """Why a container is not started; the kubelet tries again."""


@dataclass(frozen=True, slots=True)
class Container:
    """Whose devices they are."""

    pod: str
    name: str = "main"
    namespace: str = "default"


@dataclass(frozen=True, slots=True)
class Allocation:
    """Devices of one resource in one container, and what the plugin answered for them."""

    container: Container
    resource: str
    device_ids: tuple[str, ...]
    response: api.ContainerAllocateResponse

    def answer(self) -> dict[str, Any]:
        """The plugin's answer as plain data."""
        response = self.response
        return {
            "devices": [
                {
                    "host_path": device.host_path,
                    "container_path": device.container_path,
                    "permissions": device.permissions,
                }
                for device in response.devices
            ],
            "mounts": [
                {"host_path": mount.host_path, "container_path": mount.container_path, "read_only": mount.read_only}
                for mount in response.mounts
            ],
            "envs": dict(sorted(response.envs.items())),
            "annotations": dict(sorted(response.annotations.items())),
            "cdi_devices": [device.name for device in response.cdi_devices],
        }


class Admission:
    """Hands out the devices. What it remembers, the kubelet keeps in its checkpoint: it outlives a restart."""

    def __init__(self, devices: dict[str, Devices], connections: Callable[[], Connections], events: Events) -> None:
        self._devices = devices
        self._connections = connections
        self._events = events
        self._held: dict[tuple[Container, str], Allocation] = {}
        self._in_use: dict[str, set[str]] = {}
        self._one_at_a_time = asyncio.Lock()

    def __iter__(self) -> Iterator[Allocation]:
        """Every allocation, in the order it was made."""
        return iter(self._held.values())

    def in_use(self, resource: str) -> set[str]:
        """The devices that are not free, also those that an empty answer has leaked."""
        return set(self._in_use.get(resource, ()))

    async def admit(self, container: Container, resource: str, count: int) -> Allocation | None:
        """Give a container `count` devices; None when the kubelet does not know the resource and starts it without.

        Raises AdmissionError when the pod is rejected.
        """
        async with self._one_at_a_time:
            try:
                return await self._admit(container, resource, count)
            except (AdmissionError, PluginError) as error:
                self._events.record("allocation-refused", resource, **_whose(container), error=str(error))
                raise AdmissionError(str(error)) from error

    async def start(self, container: Container) -> None:
        """Call PreStartContainer of each resource that wants it. Raises StartError."""
        for resource, endpoint in self._connections().endpoints.items():
            if not endpoint.options.pre_start_required or not self._wants(container, resource):
                continue
            try:
                await endpoint.pre_start(self._held[container, resource].device_ids)
            except PluginError as error:
                raise StartError(str(error)) from error
            self._events.record("pre-started", resource, **_whose(container))

    def free(self, pod: str, namespace: str = "default") -> list[Allocation]:
        """A pod is over: its devices are free again. Returns what it held; there is no call to the plugin."""
        freed = [held for held in self if (held.container.namespace, held.container.pod) == (namespace, pod)]
        for held in freed:
            del self._held[held.container, held.resource]
        if freed:
            self._forget_leaks()
            self._events.record("freed", namespace=namespace, pod=pod)
        return freed

    async def _admit(self, container: Container, resource: str, count: int) -> Allocation | None:
        if resource not in self._devices and not self._in_use.get(resource):
            return None
        held = self._held.get((container, resource))
        if held is not None and len(held.device_ids) != count:
            raise AdmissionError(
                f'pod "{container.pod}" container "{container.name}" changed request for resource "{resource}"'
                f" from {len(held.device_ids)} to {count}"
            )
        self._check_health(resource, held)
        if held is not None:
            return held
        return await self._allocate(container, resource, count)

    def _check_health(self, resource: str, held: Allocation | None) -> None:
        known = self._devices.get(resource)
        if known is None:
            raise AdmissionError(f"cannot allocate unregistered device {resource}")
        if not known.healthy:
            raise AdmissionError(f"no healthy devices present; cannot allocate unhealthy devices {resource}")
        if held is not None and not known.healthy.issuperset(held.device_ids):
            raise AdmissionError(
                f"previously allocated devices are no longer healthy; cannot allocate unhealthy devices {resource}"
            )

    async def _allocate(self, container: Container, resource: str, count: int) -> Allocation | None:
        if count == 0:
            return None
        available = self._devices[resource].healthy - self.in_use(resource)
        if len(available) < count:
            raise AdmissionError(
                f"requested number of devices unavailable for {resource}. "
                f"Requested: {count}, Available: {len(available)}"
            )
        endpoint = self._connections().endpoints.get(resource)
        if endpoint is None:
            raise AdmissionError(f"unknown Device Plugin {resource}")
        chosen = await self._choose(endpoint, available, count)
        self._in_use.setdefault(resource, set()).update(chosen)
        response = await self._ask(endpoint, chosen)
        return self._keep(Allocation(container, resource, tuple(sorted(chosen)), response))

    async def _choose(self, endpoint: Endpoint, available: set[str], count: int) -> set[str]:
        """The plugin's preference is a hint: a set, cut or filled up at random to the right size."""
        if not endpoint.options.get_preferred_allocation_available:
            return _some(available, count)
        preferred = await endpoint.preferred(available, count) & available
        if len(preferred) >= count:
            return _some(preferred, count)
        return preferred | _some(available - preferred, count - len(preferred))

    async def _ask(self, endpoint: Endpoint, chosen: set[str]) -> api.ContainerAllocateResponse:
        try:
            response = await endpoint.allocate(chosen)
        except PluginError:
            self._forget_leaks()
            raise
        if response is None:
            # The kubelet leaves the chosen devices marked as in use here, until it next looks after finished pods.
            raise AdmissionError("no containers return in allocation response")
        return response

    def _keep(self, allocation: Allocation) -> Allocation:
        self._held[allocation.container, allocation.resource] = allocation
        self._events.record(
            "allocated", allocation.resource, **_whose(allocation.container), devices=list(allocation.device_ids)
        )
        return allocation

    def _forget_leaks(self) -> None:
        """In use is what somebody holds."""
        self._in_use = {}
        for held in self:
            self._in_use.setdefault(held.resource, set()).update(held.device_ids)

    def _wants(self, container: Container, resource: str) -> bool:
        return (container, resource) in self._held


def _whose(container: Container) -> dict[str, str]:
    return {"namespace": container.namespace, "pod": container.pod, "container": container.name}


def _some(devices: set[str], count: int) -> set[str]:
    return set(random.sample(sorted(devices), count))
