"""The embedded kubelet lets plugins in, or says why not, as a kubelet does."""

import asyncio
import time

import grpc
import pytest
from small_plugin import RESOURCE, SmallPlugin, device, registered, running

from devherd.proto import deviceplugin_v1beta1_pb2 as api
from devherd_sim.kubelet import connections


async def refusal(plugin: SmallPlugin, **options) -> str:
    """The error of a refused registration."""
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await plugin.register(**options)
    assert refused.value.code() == grpc.StatusCode.UNKNOWN
    return refused.value.details()


def test_a_plugin_that_serves_is_registered_and_its_devices_counted(kubelet_dir):
    """Unhealthy devices count for capacity, not for allocatable; any word but Healthy is unhealthy."""

    async def scenario():
        async with registered(kubelet_dir, "a", "b") as (kubelet, plugin):
            assert (kubelet.capacity(RESOURCE), kubelet.allocatable(RESOURCE)) == (2, 2)
            plugin.send(device("a"), device("a"), device("b"), device("c", "Unhealthy"), device("d", "weird"))
            await kubelet.events.until(lambda: kubelet.capacity(RESOURCE) == 4)
            assert kubelet.allocatable(RESOURCE) == 2
            assert kubelet.devices(RESOURCE) == {"a": "Healthy", "b": "Healthy", "c": "Unhealthy", "d": "Unhealthy"}
            assert kubelet.registrations(RESOURCE) == 1

    asyncio.run(scenario())


def test_an_empty_list_is_a_capacity_of_zero(kubelet_dir):
    """Every message replaces the whole set."""

    async def scenario():
        async with registered(kubelet_dir, "a") as (kubelet, plugin):
            plugin.send()
            await kubelet.events.until(lambda: kubelet.capacity(RESOURCE) == 0)
            assert kubelet.resources() == [RESOURCE]

    asyncio.run(scenario())


def test_the_version_is_checked_before_the_name(kubelet_dir):
    """The kubelet's order and words."""

    async def scenario():
        async with running(kubelet_dir) as kubelet:
            plugin = SmallPlugin(kubelet, "a", resource="bad")
            assert await refusal(plugin, version="v1") == (
                'requested API version "v1" is not supported by kubelet. Supported version is ["v1beta1"]'
            )
            assert await refusal(plugin) == 'the ResourceName "bad" is invalid'
            assert kubelet.registrations("bad") == 2

    asyncio.run(scenario())


def test_a_socket_that_nobody_serves_is_dialled_until_the_deadline(kubelet_dir, monkeypatch):
    """The kubelet dials for ten seconds; two tenths will do here."""
    monkeypatch.setattr(connections, "DIAL_SECONDS", 0.2)

    async def scenario():
        async with running(kubelet_dir) as kubelet:
            assert await refusal(SmallPlugin(kubelet)) == "failed to dial device plugin: context deadline exceeded"
            assert kubelet.resources() == []

    asyncio.run(scenario())


def test_a_plugin_without_options_is_refused_with_its_own_error(kubelet_dir):
    """GetDevicePluginOptions is asked within Register."""

    async def scenario():
        async with running(kubelet_dir) as kubelet:
            plugin = SmallPlugin(kubelet)

            async def options(request, context):
                await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "not now")

            plugin.GetDevicePluginOptions = options
            await plugin.serve()
            assert await refusal(plugin) == (
                "failed to get device plugin options: rpc error: code = ResourceExhausted desc = not now"
            )
            await plugin.stop()

    asyncio.run(scenario())


def test_the_plugins_own_deadline_bounds_the_dialling(kubelet_dir):
    """A plugin that gives up sees its own deadline, long before the kubelet's ten seconds."""

    async def scenario():
        async with running(kubelet_dir) as kubelet:
            started = time.monotonic()
            with pytest.raises(grpc.aio.AioRpcError):
                await SmallPlugin(kubelet).register(deadline=0.3)
            assert time.monotonic() - started < 8

    asyncio.run(scenario())


def test_a_slow_first_list_leaves_the_resource_unknown(kubelet_dir):
    """Until the first list a pod that asks for the resource is started without it."""

    async def scenario():
        async with running(kubelet_dir) as kubelet:
            plugin = SmallPlugin(kubelet, "a")

            async def stream(request, context):
                await asyncio.sleep(3600)
                yield api.ListAndWatchResponse()

            plugin.ListAndWatch = stream
            await plugin.serve()
            await plugin.register()
            assert kubelet.resources() == []
            assert await kubelet.allocate(RESOURCE, 1) is None
            await plugin.stop()

    asyncio.run(scenario())


def test_the_end_of_the_stream_leaves_nothing_allocatable(kubelet_dir):
    """Capacity stays, the stream is not opened again, and Register heals it."""

    async def scenario():
        async with registered(kubelet_dir, "a", "b") as (kubelet, plugin):
            plugin.end_stream()
            await kubelet.events.wait("disconnected", RESOURCE)
            assert (kubelet.capacity(RESOURCE), kubelet.allocatable(RESOURCE)) == (2, 0)
            await plugin.register()
            await kubelet.until_allocatable(RESOURCE, 2)

    asyncio.run(scenario())


def test_a_list_of_more_than_four_mebibytes_ends_the_stream(kubelet_dir):
    """Register itself has succeeded."""

    async def scenario():
        async with running(kubelet_dir) as kubelet:
            plugin = SmallPlugin(kubelet, *(f"{number:040}" for number in range(79_138)))
            await plugin.serve()
            await plugin.register()
            ended = await kubelet.events.wait("stream-ended", RESOURCE)
            assert "vs. 4194304" in ended.detail["error"]
            assert kubelet.capacity(RESOURCE) == 0
            await plugin.stop()

    asyncio.run(scenario())


def test_the_end_of_an_old_stream_kills_a_newer_registration(kubelet_dir):
    """Up to 1.36: a new plugin registers on its own socket while the old one streams; then the old one stops."""

    async def scenario():
        async with running(kubelet_dir, kubernetes="1.36") as kubelet:
            old = await SmallPlugin(kubelet, "a").up()
            new = SmallPlugin(kubelet, "a", "b", endpoint="new.sock")
            await new.up()
            await kubelet.until_allocatable(RESOURCE, 2)
            await old.stop()
            await kubelet.events.wait("disconnected", RESOURCE)
            assert kubelet.allocatable(RESOURCE) == 0
            await new.stop()

    asyncio.run(scenario())


def test_an_old_plugin_stopped_first_does_no_harm(kubelet_dir):
    """The way a plugin should go about it."""

    async def scenario():
        async with registered(kubelet_dir, "a") as (kubelet, old):
            await old.stop()
            await kubelet.events.wait("disconnected", RESOURCE)
            new = SmallPlugin(kubelet, "a", "b", endpoint="new.sock")
            await new.up()
            await kubelet.until_allocatable(RESOURCE, 2)
            await new.stop()

    asyncio.run(scenario())


def test_with_two_streams_the_last_message_counts_and_allocate_goes_to_the_newest(kubelet_dir):
    """Also for devices that only the old one has."""

    async def scenario():
        async with registered(kubelet_dir, "old") as (kubelet, old):
            new = SmallPlugin(kubelet, "new", endpoint="new.sock")
            await new.up()
            assert kubelet.devices(RESOURCE) == {"new": "Healthy"}
            old.send(device("old"))
            await kubelet.events.until(lambda: kubelet.devices(RESOURCE) == {"old": "Healthy"})
            await kubelet.allocate(RESOURCE, 1)
            assert (old.calls, new.calls) == ([], [("allocate", ["old"])])
            await new.stop()

    asyncio.run(scenario())


def test_an_endpoint_may_lead_out_of_the_directory(kubelet_dir):
    """The kubelet joins the paths and asks no questions."""

    async def scenario():
        async with registered(kubelet_dir, "a", endpoint="../p.sock") as (kubelet, _):
            assert kubelet.allocatable(RESOURCE) == 1

    asyncio.run(scenario())
