"""The way of being found, before a kubelet that asks wrongly, late or never."""

import asyncio
from contextlib import asynccontextmanager, suppress

import grpc.aio
import pytest
from plugin_host import KEY, RESOURCE, device, eventually

from devherd import spool
from devherd.plugin import plugins_registry
from devherd.plugin.endpoint import target
from devherd.plugin.keeper import Keeper
from devherd.plugin.plugins_registry import FindingKubelet, Found
from devherd.plugin.registration import NotFoundError, RegistrationError
from devherd.plugin.resource_file import ResourceFile
from devherd.plugin.state import State
from devherd.proto import deviceplugin_v1beta1_pb2 as v1beta1
from devherd.proto import pluginregistration_v1_pb2 as api
from devherd.proto.deviceplugin_v1beta1_pb2_grpc import DevicePluginStub
from devherd.proto.pluginregistration_v1_pb2_grpc import RegistrationStub
from devherd.settings import Settings


@asynccontextmanager
async def found(directory):
    """A Found on a socket of its own, and a kubelet's stub for it."""
    waiting, server = Found(RESOURCE, "/registry"), grpc.aio.server()
    waiting.serve(server)
    server.add_insecure_port(target(directory / "p.sock"))
    await server.start()
    async with grpc.aio.insecure_channel(target(directory / "p.sock")) as channel:
        yield waiting, RegistrationStub(channel)
    await server.stop(None)


def told(error=""):
    """What a kubelet tells at last."""
    return api.RegistrationStatus(plugin_registered=not error, error=error)


async def test_the_kubelet_is_told_who_waits_and_tells_how_it_went(tmp_path):
    """The device plugin is on the same socket, so there is no endpoint."""
    async with found(tmp_path) as (waiting, kubelet):
        assert await kubelet.GetInfo(api.InfoRequest()) == api.PluginInfo(
            type="DevicePlugin", name=RESOURCE, supported_versions=["v1beta1"]
        )
        await kubelet.NotifyRegistrationStatus(told())
        await waiting.done()


async def test_a_refusal_is_an_error_in_the_kubelets_words(tmp_path):
    """What it tells afterwards belongs to an attempt that nobody waits for."""
    async with found(tmp_path) as (waiting, kubelet):
        await kubelet.GetInfo(api.InfoRequest())
        await kubelet.NotifyRegistrationStatus(told("no such luck"))
        await kubelet.NotifyRegistrationStatus(told())
        with pytest.raises(RegistrationError, match="the kubelet refused: no such luck"):
            await waiting.done()


async def test_a_kubelet_that_asks_and_falls_silent_is_given_up(tmp_path, monkeypatch):
    """It may have been restarted in between."""
    monkeypatch.setattr(plugins_registry, "DEADLINE_SECONDS", 0.2)
    async with found(tmp_path) as (waiting, kubelet):
        await kubelet.GetInfo(api.InfoRequest())
        with pytest.raises(RegistrationError, match="asked, and did not say for 0 s how it went") as raised:
            await waiting.done()
    assert not isinstance(raised.value, NotFoundError)


async def test_a_kubelet_that_does_not_come_has_not_failed(tmp_path, monkeypatch):
    """It may not run."""
    monkeypatch.setattr(plugins_registry, "FIND_SECONDS", 0.1)
    async with found(tmp_path) as (waiting, _):
        with pytest.raises(NotFoundError, match="has not looked into /registry"):
            await waiting.done()


@asynccontextmanager
async def keeping(host):
    """A keeper at work on a resource of one device: its directory, and what it says of itself."""
    settings = Settings(kubelet_dir=host.kubelet_dir, run_dir=host.run_dir, registration="plugins_registry")
    settings.plugins_registry.mkdir()
    host.write(device("0"))
    file = ResourceFile(host.resources, KEY)
    file.look()
    state = State(spool.path_of(settings.state_directory, KEY), RESOURCE)
    keeper = asyncio.create_task(Keeper(file, FindingKubelet(settings), state).run())
    try:
        yield settings.plugins_registry, host.state
    finally:
        keeper.cancel()
        with suppress(asyncio.CancelledError):
            await keeper
        assert list(settings.plugins_registry.iterdir()) == []


async def until(condition):
    """The first true value of `condition`, looked for on another thread."""
    return await asyncio.to_thread(eventually, condition)


async def test_a_socket_that_was_overlooked_is_made_anew_without_a_pause(host, monkeypatch):
    """A kubelet that has missed the file's creation sees another file. Whether there is one at all cannot be seen."""
    monkeypatch.setattr(plugins_registry, "FIND_SECONDS", 0.05)
    async with keeping(host) as (registry, state):
        first = await until(lambda: [path.name for path in registry.iterdir()])
        generation = state().generation
        await until(lambda: state().generation > generation + 6)  # doubling pauses would take seconds by now
        await until(lambda: [path.name for path in registry.iterdir()] not in ([], first))
        assert "waiting for the kubelet to look into" in state().detail


async def test_a_stream_without_a_word_is_no_registration(host, monkeypatch):
    """Somebody looks at the socket; the kubelet has not said that it was registered."""
    monkeypatch.setattr(plugins_registry, "DEADLINE_SECONDS", 0.3)
    async with keeping(host) as (registry, state):
        (socket,) = await until(lambda: list(registry.glob("*.sock")))
        async with grpc.aio.insecure_channel(target(socket)) as channel:
            await RegistrationStub(channel).GetInfo(api.InfoRequest(), wait_for_ready=True)
            stream = DevicePluginStub(channel).ListAndWatch(v1beta1.Empty())
            assert [device.ID for device in (await stream.read()).devices] == ["0"]
            assert not state().registered
            await until(lambda: "did not say" in state().detail)
