"""Keeping a resource registered where the kubelet finds sockets: it asks late, or never reports a result."""

import asyncio
from contextlib import asynccontextmanager, suppress

import grpc.aio
from plugin_host import KEY, RESOURCE, device, eventually

from devherd import spool
from devherd.device_plugin.child import Registrar
from devherd.device_plugin.resource_file import ResourceFile
from devherd.device_plugin.state import State
from devherd.history import History
from devherd.kubelet import plugins_registry
from devherd.kubelet.endpoint import target
from devherd.kubelet.plugins_registry import FindingKubelet
from devherd.proto import deviceplugin_v1beta1_pb2 as v1beta1
from devherd.proto import pluginregistration_v1_pb2 as api
from devherd.proto.deviceplugin_v1beta1_pb2_grpc import DevicePluginStub
from devherd.proto.pluginregistration_v1_pb2_grpc import RegistrationStub
from devherd.settings import Settings


@asynccontextmanager
async def keeping(host):
    """A registrar of a resource with one device: its directory, and its state file."""
    settings = Settings(kubelet_dir=host.kubelet_dir, run_dir=host.run_dir, registration="plugins_registry")
    settings.plugins_registry.mkdir()
    host.write(device("0"))
    file = ResourceFile(host.resources, KEY)
    file.look()
    state = State(spool.path_of(settings.state_directory, KEY), RESOURCE, History(host.run_dir / "history", "resource"))
    registrar = asyncio.create_task(Registrar(file, FindingKubelet(settings), state).run())
    try:
        yield settings.plugins_registry, host.state
    finally:
        registrar.cancel()
        with suppress(asyncio.CancelledError):
            await registrar
        assert list(settings.plugins_registry.iterdir()) == []


async def until(condition):
    """The first true value of `condition`, looked for on another thread."""
    return await asyncio.to_thread(eventually, condition)


async def test_a_socket_that_was_overlooked_is_made_anew_without_a_pause(host, monkeypatch):
    """A kubelet that has missed the file's creation sees another file. Whether one runs cannot be seen."""
    monkeypatch.setattr(plugins_registry, "FIND_SECONDS", 0.05)
    async with keeping(host) as (registry, state):
        first = await until(lambda: [path.name for path in registry.iterdir()])
        generation = state().generation
        await until(lambda: state().generation > generation + 6)  # doubling pauses would take seconds by now
        await until(lambda: [path.name for path in registry.iterdir()] not in ([], first))
        assert "waiting for the kubelet to look into" in state().detail


async def test_a_stream_without_a_reported_result_is_no_registration(host, monkeypatch):
    """Any process may open one; the kubelet has not reported success. No endpoint is named: it is the same socket."""
    monkeypatch.setattr(plugins_registry, "DEADLINE_SECONDS", 0.3)
    async with keeping(host) as (registry, state):
        (socket,) = await until(lambda: list(registry.glob("*.sock")))
        async with grpc.aio.insecure_channel(target(socket)) as channel:
            info = await RegistrationStub(channel).GetInfo(api.InfoRequest(), wait_for_ready=True)
            assert info == api.PluginInfo(type="DevicePlugin", name=RESOURCE, supported_versions=["v1beta1"])
            stream = DevicePluginStub(channel).ListAndWatch(v1beta1.Empty())
            assert [device.ID for device in (await stream.read()).devices] == ["0"]
            assert not state().registered
            await until(lambda: "reported no registration status" in state().detail)
