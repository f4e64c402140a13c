"""The way of being found, before a kubelet that asks wrongly, late or never."""

from contextlib import asynccontextmanager

import grpc.aio
import pytest

from devherd.kubelet import plugins_registry
from devherd.kubelet.endpoint import target
from devherd.kubelet.plugins_registry import Found
from devherd.kubelet.registration import NotFoundError, RegistrationError
from devherd.proto import pluginregistration_v1_pb2 as api
from devherd.proto.pluginregistration_v1_pb2_grpc import RegistrationStub

INFO = api.PluginInfo(type="DevicePlugin", name="example.com/gpu", supported_versions=["v1beta1"])


@asynccontextmanager
async def found(directory):
    """A Found on a socket of its own, and a kubelet's stub for it."""
    waiting, server = Found(INFO, "/registry"), grpc.aio.server()
    waiting.serve(server)
    server.add_insecure_port(target(directory / "p.sock"))
    await server.start()
    async with grpc.aio.insecure_channel(target(directory / "p.sock")) as channel:
        yield waiting, RegistrationStub(channel)
    await server.stop(None)


def outcome(error=""):
    """The kubelet's last call of a registration."""
    return api.RegistrationStatus(plugin_registered=not error, error=error)


async def test_the_kubelet_gets_the_plugins_information_and_reports_success(tmp_path):
    """Then the plugin is registered."""
    async with found(tmp_path) as (waiting, kubelet):
        assert await kubelet.GetInfo(api.InfoRequest()) == INFO
        await kubelet.NotifyRegistrationStatus(outcome())
        await waiting.done()


async def test_a_refusal_is_an_error_with_the_kubelets_text(tmp_path):
    """A later report belongs to an attempt that is over."""
    async with found(tmp_path) as (waiting, kubelet):
        await kubelet.GetInfo(api.InfoRequest())
        await kubelet.NotifyRegistrationStatus(outcome("no such luck"))
        await kubelet.NotifyRegistrationStatus(outcome())
        with pytest.raises(RegistrationError, match="the kubelet refused: no such luck"):
            await waiting.done()


async def test_a_kubelet_that_asks_and_then_reports_nothing_is_given_up(tmp_path, monkeypatch):
    """It may have been restarted in between."""
    monkeypatch.setattr(plugins_registry, "DEADLINE_SECONDS", 0.2)
    async with found(tmp_path) as (waiting, kubelet):
        await kubelet.GetInfo(api.InfoRequest())
        with pytest.raises(RegistrationError, match="reported no registration status within 0 s") as raised:
            await waiting.done()
    assert not isinstance(raised.value, NotFoundError)


async def test_a_kubelet_that_does_not_come_has_not_failed(tmp_path, monkeypatch):
    """It may not run."""
    monkeypatch.setattr(plugins_registry, "FIND_SECONDS", 0.1)
    async with found(tmp_path) as (waiting, _):
        with pytest.raises(NotFoundError, match="has not looked into /registry"):
            await waiting.done()
