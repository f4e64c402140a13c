"""The embedded kubelet finds plugins in plugins_registry, and says why it does not take one."""

import asyncio
from contextlib import asynccontextmanager

import grpc
import pytest
from small_plugin import RESOURCE, SmallPlugin, running

from devherd.proto import pluginregistration_v1_pb2 as api
from devherd.proto.deviceplugin_v1beta1_pb2_grpc import add_DevicePluginServicer_to_server
from devherd.proto.pluginregistration_v1_pb2_grpc import RegistrationServicer, add_RegistrationServicer_to_server
from devherd_sim.kubelet import plugin_watcher


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    """The kubelet's seconds are tenths here."""
    for name in ("PERIOD_SECONDS", "FIRST_BACKOFF_SECONDS"):
        monkeypatch.setattr(plugin_watcher, name, 0.05)


class Waiting(RegistrationServicer):
    """A plugin that waits below plugins_registry."""

    def __init__(self, **info) -> None:
        self.info = {"type": "DevicePlugin", "name": RESOURCE, "supported_versions": ["v1beta1"]} | info
        self.told: list[tuple[bool, str]] = []
        self.deaf = False

    async def GetInfo(self, _request, _context):
        if self.deaf:
            await asyncio.sleep(3600)
        return api.PluginInfo(**self.info)

    async def NotifyRegistrationStatus(self, request, context):
        if "unkind" in self.info["name"]:
            await context.abort(grpc.StatusCode.INTERNAL, "no thanks")
        self.told.append((request.plugin_registered, request.error))
        return api.RegistrationStatusResponse()


@asynccontextmanager
async def waiting(kubelet, socket="p.sock", **info):
    """A plugin's registration service and device plugin on one socket."""
    directory = kubelet.paths.kubelet_dir / "plugins_registry" / socket
    directory.parent.mkdir(parents=True, exist_ok=True)
    plugin, service = Waiting(**info), SmallPlugin(kubelet, "a", "b")
    server = grpc.aio.server()
    add_RegistrationServicer_to_server(plugin, server)
    add_DevicePluginServicer_to_server(service, server)
    server.add_insecure_port(f"unix:{directory}")
    await server.start()
    try:
        yield plugin, service
    finally:
        await server.stop(grace=None)


async def test_a_plugin_is_found_told_and_let_go_with_its_socket(kubelet_dir):
    """Also in a directory below; Register is not called, the restarted kubelet finds it again by itself."""
    async with running(kubelet_dir) as kubelet, waiting(kubelet, "sub/p.sock") as (plugin, _):
        await kubelet.until_allocatable(RESOURCE, 2)
        await kubelet.events.until(lambda: plugin.told)  # it is told when it is listed, not before
        assert (plugin.told, kubelet.registrations(RESOURCE)) == ([(True, "")], 0)
        await kubelet.restart()
        await kubelet.until_allocatable(RESOURCE, 2)
        (kubelet_dir / "plugins_registry/sub/p.sock").unlink()
        await kubelet.events.wait("disconnected", RESOURCE)
        assert (kubelet.capacity(RESOURCE), kubelet.allocatable(RESOURCE)) == (2, 0)


async def test_a_socket_made_again_is_another_plugin(kubelet_dir):
    """The old one is let go first."""
    async with running(kubelet_dir) as kubelet:
        for _ in range(2):
            mark = kubelet.events.mark()
            async with waiting(kubelet):
                await kubelet.events.wait("registered", RESOURCE, since=mark)
                await kubelet.until_allocatable(RESOURCE, 2)
        await kubelet.events.wait("plugin-gone", since=mark)


async def test_the_end_of_a_stream_is_not_made_good(kubelet_dir):
    """A plugin that crashes and leaves its file stays away until the file is made again."""
    async with running(kubelet_dir) as kubelet, waiting(kubelet) as (plugin, service):
        await kubelet.until_allocatable(RESOURCE, 2)
        await kubelet.events.until(lambda: plugin.told)
        service.end_stream()
        await kubelet.events.wait("disconnected", RESOURCE)
        await asyncio.sleep(0.3)
        assert (plugin.told, kubelet.allocatable(RESOURCE)) == ([(True, "")], 0)


@pytest.mark.parametrize(
    ("info", "words"),
    [
        (
            {"supported_versions": ["v1"]},
            "validation failed with err: manager version, v1beta1, is not among plugin supported versions [v1]",
        ),
        (
            {"name": "foo"},
            'validation failed with err: invalid name of device plugin socket: the ResourceName "foo" is invalid',
        ),
        (
            {"endpoint": "/nowhere.sock"},
            "registration failed with err: failed to dial device plugin: context deadline exceeded",
        ),
    ],
)
async def test_a_refused_plugin_is_told_why_again_and_again(kubelet_dir, info, words, monkeypatch):
    """With growing pauses."""
    monkeypatch.setattr("devherd_sim.kubelet.connections.DIAL_SECONDS", 0.1)
    async with running(kubelet_dir) as kubelet, waiting(kubelet, **info) as (plugin, _):
        await kubelet.events.until(lambda: len(plugin.told) > 2)
        assert set(plugin.told) == {(False, f"RegisterPlugin error -- plugin {words}")}
        assert kubelet.resources() == []


async def test_a_plugin_that_does_not_take_its_good_news_is_not_registered(kubelet_dir):
    """What was begun is undone, and tried again."""
    async with running(kubelet_dir) as kubelet, waiting(kubelet, name="example.com/unkind"):
        refused = await kubelet.events.wait("plugin-refused")
        assert "failed to send registration status" in refused.detail["error"]
        await kubelet.events.wait("disconnected", "example.com/unkind")
        assert kubelet.events.since(0, "registered") == []


async def test_a_plugin_that_does_not_answer_in_time_is_tried_again(kubelet_dir, monkeypatch):
    """GetInfo has a second; a tenth here."""
    monkeypatch.setattr(plugin_watcher, "GET_INFO_SECONDS", 0.1)
    async with running(kubelet_dir) as kubelet, waiting(kubelet) as (plugin, _):
        plugin.deaf = True
        refused = await kubelet.events.wait("plugin-refused")
        assert "failed to get plugin info using RPC GetInfo" in refused.detail["error"]
        plugin.deaf = False
        await kubelet.until_allocatable(RESOURCE, 2)


async def test_hidden_sockets_and_other_files_are_no_plugins(kubelet_dir):
    """Names with a dot in front, regular files."""
    async with running(kubelet_dir) as kubelet, waiting(kubelet, ".hidden.sock"):
        (kubelet_dir / "plugins_registry/readme").write_text("x")
        with pytest.raises(TimeoutError):
            await kubelet.events.wait("plugin-found", within=0.3)


async def test_a_socket_that_nobody_serves_is_dialled(kubelet_dir, monkeypatch):
    """Ten seconds; a tenth here."""
    monkeypatch.setattr(plugin_watcher, "DIAL_SECONDS", 0.1)
    async with running(kubelet_dir) as kubelet:
        async with waiting(kubelet):
            (kubelet_dir / "plugins_registry/dead.sock").hardlink_to(kubelet_dir / "plugins_registry/p.sock")
        refused = await kubelet.events.wait("plugin-refused")
        assert "dead.sock, err: context deadline exceeded" in refused.detail["error"]
