"""Which plugins a kubelet has of a resource: by one rule up to Kubernetes 1.36, by another since 1.37.

Both keep two tables: a plugin is a client from the call of Register on, and an endpoint once its options have come. The
end of a stream looks its client up, and that one is disconnected, whether it is the one whose stream has ended or not.
Sources: `plugin/v1beta1/handler.go`, `PluginConnected` and `PluginDisconnected` of `manager.go`, in
pkg/kubelet/cm/devicemanager of Kubernetes 1.36.3 and 1.37.2.
"""

import random
import time
from typing import Literal, Protocol, get_args

from devherd_sim.kubelet.connections import PluginEndpoint, PluginError

Release = Literal["1.36", "1.37"]
"""A minor release of Kubernetes whose rules there are: 1.36 stands for all before it."""
RELEASES: tuple[Release, ...] = get_args(Release)
NEWEST: Release = RELEASES[-1]


class Clients(Protocol):
    """The two tables."""

    endpoints: dict[str, PluginEndpoint]
    """The endpoint of each resource that Allocate goes to, also one that the kubelet has dropped."""

    def add(self, plugin: PluginEndpoint) -> None:
        """A plugin has called Register."""

    def remove(self, plugin: PluginEndpoint) -> None:
        """Remove it, or whatever the rule takes for it, because it could not be connected or is disconnected."""

    def of(self, resource: str, socket: str) -> PluginEndpoint | None:
        """The client that is disconnected when a stream from this socket ends; None: nobody."""

    def connected(self, plugin: PluginEndpoint) -> None:
        """Its options have come: it is the resource's endpoint. Raises PluginError when it is refused."""

    def disconnected(self, plugin: PluginEndpoint) -> bool:
        """Mark its endpoint as stopped. Returns True if the resource has lost its devices by that."""


class OneForEachResource:
    """Up to 1.36: one client for each resource, the one that called Register last."""

    def __init__(self) -> None:
        self.endpoints: dict[str, PluginEndpoint] = {}
        self._clients: dict[str, PluginEndpoint] = {}

    def add(self, plugin: PluginEndpoint) -> None:
        """Replaces the one before it."""
        self._clients[plugin.resource] = plugin

    def remove(self, plugin: PluginEndpoint) -> None:
        """Removes whoever is the resource's client."""
        self._clients.pop(plugin.resource, None)

    def of(self, resource: str, socket: str) -> PluginEndpoint | None:
        """The resource's client, whatever its socket."""
        del socket
        return self._clients.get(resource)

    def connected(self, plugin: PluginEndpoint) -> None:
        """Replaces the endpoint before it."""
        self.endpoints[plugin.resource] = plugin

    def disconnected(self, plugin: PluginEndpoint) -> bool:
        """Stops the resource's newest endpoint, whoever was disconnected."""
        newest = self.endpoints.get(plugin.resource)
        if newest is None:
            return False
        newest.stopped_at = time.monotonic()
        return True


class OneForEachSocket:
    """Since 1.37: plugins of a resource exist side by side, told apart by their sockets."""

    def __init__(self) -> None:
        self.endpoints: dict[str, PluginEndpoint] = {}
        self._clients: dict[str, list[PluginEndpoint]] = {}
        self._by_socket: dict[str, dict[str, PluginEndpoint]] = {}

    def add(self, plugin: PluginEndpoint) -> None:
        """Beside those that there are, even beside one of the same socket."""
        self._clients.setdefault(plugin.resource, []).append(plugin)

    def remove(self, plugin: PluginEndpoint) -> None:
        """Removes every client of the socket: after a second Register there, also the one that is connected."""
        others = [each for each in self._clients.get(plugin.resource, ()) if each.socket != plugin.socket]
        self._clients[plugin.resource] = others

    def of(self, resource: str, socket: str) -> PluginEndpoint | None:
        """The oldest client of the socket."""
        return next((each for each in self._clients.get(resource, ()) if each.socket == socket), None)

    def connected(self, plugin: PluginEndpoint) -> None:
        """Refuses a socket that has not been disconnected."""
        there = self._by_socket.setdefault(plugin.resource, {})
        if plugin.socket in there:
            raise PluginError(f"device plugin already connected: {plugin.socket}")
        there[plugin.socket] = self.endpoints[plugin.resource] = plugin

    def disconnected(self, plugin: PluginEndpoint) -> bool:
        """Stops the socket's endpoint; any other one of the resource takes over. The last one costs the devices."""
        there = self._by_socket.get(plugin.resource, {})
        stopped = there.pop(plugin.socket, None)
        if stopped is None:
            return False
        stopped.stopped_at = time.monotonic()
        if there:
            (self.endpoints[plugin.resource],) = random.sample(list(there.values()), 1)
        return not there


def clients_of(release: Release) -> Clients:
    """The tables of a kubelet of a release."""
    return OneForEachResource() if release == "1.36" else OneForEachSocket()
