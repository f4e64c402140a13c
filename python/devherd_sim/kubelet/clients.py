"""The plugins that a kubelet keeps for a resource: by one rule up to Kubernetes 1.36, by another since 1.37.

Both rules keep two tables: a plugin becomes a client when it calls Register, and an endpoint when its options come.
When a stream ends, the kubelet looks up a client by the rule and disconnects it, even if another plugin's stream ended.
Sources: `plugin/v1beta1/handler.go`, `PluginConnected` and `PluginDisconnected` of `manager.go`, in
pkg/kubelet/cm/devicemanager of Kubernetes 1.36.3 and 1.37.2.
"""

import random
import time
from typing import Literal, Protocol, get_args

from devherd_sim.kubelet.connections import PluginEndpoint, PluginError

Release = Literal["1.36", "1.37"]
"""A minor release of Kubernetes whose rule is implemented here; 1.36 also stands for all earlier releases."""
RELEASES: tuple[Release, ...] = get_args(Release)
NEWEST: Release = RELEASES[-1]


class Clients(Protocol):
    """The two tables of a rule: clients and endpoints."""

    endpoints: dict[str, PluginEndpoint]
    """The endpoint that Allocate goes to, by resource; it stays when the kubelet has dropped it."""

    def add(self, plugin: PluginEndpoint) -> None:
        """Add a plugin that has called Register as a client."""

    def remove(self, plugin: PluginEndpoint) -> None:
        """Remove a plugin that could not be connected or is disconnected, or the clients that the rule takes for it."""

    def of(self, resource: str, socket: str) -> PluginEndpoint | None:
        """The client to disconnect when a stream from this socket ends; None if there is none."""

    def connected(self, plugin: PluginEndpoint) -> None:
        """Make a plugin the resource's endpoint: its options have come. Raises PluginError when it is refused."""

    def disconnected(self, plugin: PluginEndpoint) -> bool:
        """Mark the plugin's endpoint as stopped. Returns True if the resource thereby loses its devices."""


class OneForEachResource:
    """Up to 1.36: one client for each resource, the one that called Register last."""

    def __init__(self) -> None:
        self.endpoints: dict[str, PluginEndpoint] = {}
        self._clients: dict[str, PluginEndpoint] = {}

    def add(self, plugin: PluginEndpoint) -> None:
        """Replace the resource's client with this plugin."""
        self._clients[plugin.resource] = plugin

    def remove(self, plugin: PluginEndpoint) -> None:
        """Remove the resource's client, even if it is another plugin."""
        self._clients.pop(plugin.resource, None)

    def of(self, resource: str, socket: str) -> PluginEndpoint | None:
        """The resource's client, whatever its socket."""
        del socket
        return self._clients.get(resource)

    def connected(self, plugin: PluginEndpoint) -> None:
        """Replace the resource's endpoint with this plugin."""
        self.endpoints[plugin.resource] = plugin

    def disconnected(self, plugin: PluginEndpoint) -> bool:
        """Stop the resource's newest endpoint, even if another plugin was disconnected."""
        newest = self.endpoints.get(plugin.resource)
        if newest is None:
            return False
        newest.stopped_at = time.monotonic()
        return True


class OneForEachSocket:
    """Since 1.37: a resource may have several plugins at once, distinguished by their sockets."""

    def __init__(self) -> None:
        self.endpoints: dict[str, PluginEndpoint] = {}
        self._clients: dict[str, list[PluginEndpoint]] = {}
        self._by_socket: dict[str, dict[str, PluginEndpoint]] = {}

    def add(self, plugin: PluginEndpoint) -> None:
        """Add the plugin to the resource's clients, even if one of them has the same socket."""
        self._clients.setdefault(plugin.resource, []).append(plugin)

    def remove(self, plugin: PluginEndpoint) -> None:
        """Remove every client of the socket: after a second Register there, the connected one too."""
        others = [each for each in self._clients.get(plugin.resource, ()) if each.socket != plugin.socket]
        self._clients[plugin.resource] = others

    def of(self, resource: str, socket: str) -> PluginEndpoint | None:
        """The oldest client of the socket."""
        return next((each for each in self._clients.get(resource, ()) if each.socket == socket), None)

    def connected(self, plugin: PluginEndpoint) -> None:
        """Make the plugin the endpoint. Raises PluginError if its socket is still connected."""
        there = self._by_socket.setdefault(plugin.resource, {})
        if plugin.socket in there:
            raise PluginError(f"device plugin already connected: {plugin.socket}")
        there[plugin.socket] = self.endpoints[plugin.resource] = plugin

    def disconnected(self, plugin: PluginEndpoint) -> bool:
        """Stop the socket's endpoint; a random other one takes over. With the last one, the devices are lost."""
        there = self._by_socket.get(plugin.resource, {})
        stopped = there.pop(plugin.socket, None)
        if stopped is None:
            return False
        stopped.stopped_at = time.monotonic()
        if there:
            (self.endpoints[plugin.resource],) = random.sample(list(there.values()), 1)
        return not there


def clients_of(release: Release) -> Clients:
    """New tables, by the rule of a release."""
    return OneForEachResource() if release == "1.36" else OneForEachSocket()
