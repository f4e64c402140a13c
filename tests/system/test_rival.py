"""devherd beside another plugin of the same resource: the kubelet lets one push the other out without a sign."""

import asyncio

import grpc.aio
import pytest

from devherd.kubelet.endpoint import target
from devherd.proto import deviceplugin_v1beta1_pb2 as v1beta1
from devherd.proto.deviceplugin_v1beta1_pb2_grpc import (
    DevicePluginServicer,
    RegistrationStub,
    add_DevicePluginServicer_to_server,
)
from devherd_sim.kubelet.pod_resources import PodResourcesServer

NAME = "example.com/gpu"
CONFIG = {"simulated": [{"name": NAME, "count": 2}], "kubelet_check": "200ms"}


class Rival(DevicePluginServicer):
    """A vendor's own plugin with one device, watched until it ends."""

    def __init__(self) -> None:
        self._ended = asyncio.Event()

    async def GetDevicePluginOptions(self, request, context):
        return v1beta1.DevicePluginOptions()

    async def ListAndWatch(self, request, context):
        yield v1beta1.ListAndWatchResponse(devices=[v1beta1.Device(ID="theirs", health="Healthy")])
        await self._ended.wait()

    async def come_and_go(self, testbed):
        """Serve and register, be watched, end."""
        server = grpc.aio.server()
        add_DevicePluginServicer_to_server(self, server)
        server.add_insecure_port(target(testbed.settings.plugin_directory / "rival.sock"))
        await server.start()
        async with grpc.aio.insecure_channel(target(testbed.settings.kubelet_socket)) as channel:
            request = v1beta1.RegisterRequest(version="v1beta1", endpoint="rival.sock", resource_name=NAME)
            await RegistrationStub(channel).Register(request, timeout=10)
        await testbed.kubelet.until_allocatable(NAME, 1)
        self._ended.set()
        await server.stop(None)


@pytest.mark.on("generic", CONFIG)
async def test_a_resource_comes_back_after_another_plugin_of_it_came_and_went(testbed):
    """The kubelet takes its devices for lost and leaves the stream open; asking it is the only way to know."""
    await testbed.kubelet.until_allocatable(NAME, 2)

    await Rival().come_and_go(testbed)

    await testbed.kubelet.until_allocatable(NAME, 2, within=30)
    assert testbed.kubelet.devices(NAME) == {"gpu-0": "Healthy", "gpu-1": "Healthy"}
    await testbed.until(lambda: "the kubelet has lost our devices" in testbed.log, "it is said")


@pytest.mark.on("generic", CONFIG)
async def test_a_kubelet_that_has_the_devices_is_left_alone(testbed):
    """Asked many times, nothing happens."""
    await testbed.kubelet.until_allocatable(NAME, 2)
    mark = testbed.kubelet.events.mark()

    await asyncio.sleep(2)

    assert testbed.kubelet.events.since(mark) == []


@pytest.mark.on("generic", {**CONFIG, "kubelet_check": "100ms"})
async def test_a_kubelet_to_which_nothing_has_happened_is_asked_each_tenth_time(testbed, monkeypatch):
    """A process in its sandbox sees the kubelet's directories: otherwise it would ask 30 times and more."""
    questions = []
    answer = PodResourcesServer.GetAllocatableResources

    async def counted(*given):
        questions.append(given)
        return await answer(*given)

    monkeypatch.setattr(PodResourcesServer, "GetAllocatableResources", counted)
    await testbed.kubelet.restart()
    await testbed.kubelet.until_allocatable(NAME, 2)
    await testbed.until(lambda: len(questions) >= 2, "the kubelet is asked")
    before = len(questions)

    await asyncio.sleep(3)

    assert len(questions) - before <= 10
