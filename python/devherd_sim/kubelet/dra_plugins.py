"""The DRA drivers of a kubelet: registered plugins, which of them it calls, and the health that they stream.

Of a driver's plugins the kubelet calls the one that was registered last, and whose connection stands. Sources:
pkg/kubelet/cm/dra/plugin/dra_plugin_manager.go and pkg/kubelet/cm/dra/manager.go, Kubernetes 1.37.2. Resources of the
API server are not its part here: claims are named by the caller.
"""

import asyncio
import os
from collections.abc import Iterable, Sequence
from typing import Any

import grpc
import grpc.aio

from devherd.kubelet.endpoint import MAX_PATH_BYTES
from devherd.proto import (
    dra_health_v1_pb2,
    dra_health_v1_pb2_grpc,
    dra_health_v1alpha1_pb2,
    dra_health_v1alpha1_pb2_grpc,
    dra_v1_pb2,
    dra_v1_pb2_grpc,
    dra_v1beta1_pb2,
    dra_v1beta1_pb2_grpc,
)
from devherd.proto import pluginregistration_v1_pb2 as registration_api
from devherd_sim.kubelet.connections import PluginError
from devherd_sim.kubelet.events import Events
from devherd_sim.kubelet.go_words import text

CALL_SECONDS = 45.0
HEALTH_AGAIN_SECONDS = 5.0

SERVICES: dict[str, tuple[Any, Any]] = {
    "v1.DRAPlugin": (dra_v1_pb2, dra_v1_pb2_grpc.DRAPluginStub),
    "v1beta1.DRAPlugin": (dra_v1beta1_pb2, dra_v1beta1_pb2_grpc.DRAPluginStub),
}
"""What it knows; it takes the first of a plugin's list."""
HEALTH_SERVICES: dict[str, tuple[Any, Any]] = {
    "v1.DRAResourceHealth": (dra_health_v1_pb2, dra_health_v1_pb2_grpc.DRAResourceHealthStub),
    "v1alpha1.DRAResourceHealth": (dra_health_v1alpha1_pb2, dra_health_v1alpha1_pb2_grpc.DRAResourceHealthStub),
}
"""What it knows, the newest first."""

Health = dict[tuple[str, str], tuple[str, str]]
"""HealthStatus as a word, and message, by pool and device."""


class DraPlugin:
    """One plugin: a connection that is made again when it breaks, and its stream of health."""

    def __init__(self, driver: str, endpoint: str, services: Sequence[str], owner: "DraPlugins") -> None:
        self.driver = driver
        self.endpoint = endpoint
        self.is_connected = False
        self._owner = owner
        self._api, stub = SERVICES[next(each for each in services if each in SERVICES)]
        options = [("grpc.use_local_subchannel_pool", 1), ("grpc.initial_reconnect_backoff_ms", 1000)]
        self._channel = grpc.aio.insecure_channel(f"unix:{endpoint}", options=options)
        self._stub = stub(self._channel)
        self._tasks = [asyncio.create_task(self._follow())]
        chosen = next((each for each in HEALTH_SERVICES if each in services), None)
        if chosen is not None:
            self._tasks.append(asyncio.create_task(self._watch_health(*HEALTH_SERVICES[chosen])))

    async def prepare(self, claims: Iterable[dra_v1_pb2.Claim], seconds: float) -> dict[str, Any]:
        """By uid: the answer for each claim. Raises PluginError as the kubelet says it."""
        return await self._call("NodePrepareResources", claims, seconds)

    async def unprepare(self, claims: Iterable[dra_v1_pb2.Claim], seconds: float) -> dict[str, Any]:
        """The same for claims whose containers have ended."""
        return await self._call("NodeUnprepareResources", claims, seconds)

    async def close(self) -> None:
        """End the connection, and with it all calls."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._channel.close()

    async def _call(self, method: str, claims: Iterable[dra_v1_pb2.Claim], seconds: float) -> dict[str, Any]:
        asked = [self._api.Claim(namespace=each.namespace, name=each.name, uid=each.uid) for each in claims]
        request = getattr(self._api, f"{method}Request")(claims=asked)
        try:
            answer = await getattr(self._stub, method)(request, timeout=seconds)
        except grpc.aio.AioRpcError as error:
            raise PluginError(f"{method} failed: {text(error)}") from error
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise PluginError(f"{method} failed: grpc: the client connection is closing") from error
        wrong = answer.claims.keys() ^ {each.uid for each in asked}
        if wrong:
            raise PluginError(f"{method} returned a claim that was not asked for, or left one out: {sorted(wrong)}")
        return dict(answer.claims)

    async def _follow(self) -> None:
        while True:
            state = self._channel.get_state(try_to_connect=True)
            self.is_connected = state is grpc.ChannelConnectivity.READY
            await self._channel.wait_for_state_change(state)

    async def _watch_health(self, api: Any, stub: Any) -> None:
        while True:
            try:
                async for answer in stub(self._channel).NodeWatchResources(api.NodeWatchResourcesRequest()):
                    self._owner.take_health(self.driver, api, answer.devices)
            except grpc.aio.AioRpcError:
                pass
            finally:
                self._owner.forget_health(self.driver)
            await asyncio.sleep(HEALTH_AGAIN_SECONDS)


class DraPlugins:
    """All plugins of DRA drivers, from the kubelet's start to its stop."""

    def __init__(self, events: Events) -> None:
        self.health: dict[str, Health] = {}
        """By driver; empty when a stream of one of its plugins has ended."""
        self._events = events
        self._plugins: dict[str, list[DraPlugin]] = {}

    def refusal(self, info: registration_api.PluginInfo) -> str | None:
        """Why a plugin's description is refused; None if it is valid."""
        if not SERVICES.keys() & set(info.supported_versions):
            return f"none of services supported by the plugin {list(info.supported_versions)} are supported"
        if not info.endpoint.startswith("/") or len(os.fsencode(info.endpoint)) > MAX_PATH_BYTES:
            return f"invalid endpoint {info.endpoint}"
        return None

    async def register(self, info: registration_api.PluginInfo, socket: str) -> None:
        """Add a plugin; it is called from now on. Raises PluginError for an endpoint that another one has."""
        del socket
        plugins = self._plugins.setdefault(info.name, [])
        if any(each.endpoint == info.endpoint for each in plugins):
            raise PluginError(f"endpoint {info.endpoint} already registered for DRA driver plugin {info.name}")
        plugins.append(DraPlugin(info.name, info.endpoint, list(info.supported_versions), self))

    async def deregister(self, info: registration_api.PluginInfo, socket: str) -> None:
        """Remove a plugin, and cut its calls."""
        del socket
        for plugin in [each for each in self.plugins(info.name) if each.endpoint == info.endpoint]:
            self._plugins[info.name].remove(plugin)
            await plugin.close()

    def plugins(self, driver: str) -> list[DraPlugin]:
        """The plugins of a driver in the order of their registration."""
        return list(self._plugins.get(driver, ()))

    def chosen(self, driver: str) -> DraPlugin:
        """The one that is called. Raises PluginError without any."""
        plugins = self.plugins(driver)
        if not plugins:
            raise PluginError(f"DRA driver {driver} is not registered")
        return next((each for each in reversed(plugins) if each.is_connected), plugins[-1])

    async def prepare(
        self, driver: str, claims: Iterable[dra_v1_pb2.Claim], seconds: float = CALL_SECONDS
    ) -> dict[str, Any]:
        """What the driver answers for claims, by uid. Raises PluginError: a pod then waits for 60 to 90 s."""
        return await self.chosen(driver).prepare(claims, seconds)

    async def unprepare(
        self, driver: str, claims: Iterable[dra_v1_pb2.Claim], seconds: float = CALL_SECONDS
    ) -> dict[str, Any]:
        """The same for claims whose containers have ended."""
        return await self.chosen(driver).unprepare(claims, seconds)

    def take_health(self, driver: str, api: Any, devices: Iterable[Any]) -> None:
        """A list of health has come: it changes what is known of its devices."""
        known = self.health.setdefault(driver, {})
        for each in devices:
            key = each.device.pool_name, each.device.device_name
            known[key] = api.HealthStatus.Name(each.health), each.message
        self._events.record("health", driver, devices=len(known))

    def forget_health(self, driver: str) -> None:
        """A stream of health has ended, whichever of the plugins' it was."""
        self.health[driver] = {}
        self._events.record("health-forgotten", driver)

    async def close(self) -> None:
        """End all connections."""
        plugins = [plugin for of_driver in self._plugins.values() for plugin in of_driver]
        self._plugins = {}
        await asyncio.gather(*(plugin.close() for plugin in plugins))
