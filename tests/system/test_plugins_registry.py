"""devherd whole with `registration: plugins_registry`: the embedded kubelet finds it, and finds it again."""

import os
import shutil
import signal

import pytest

from devherd.sim.kubelet import plugin_watcher

GPU, NIC = "example.com/gpu", "example.com/nic"
CONFIG = {
    "registration": "plugins_registry",
    "simulated": [{"name": GPU, "count": 2}, {"name": NIC, "count": 1}],
}

pytestmark = pytest.mark.on("generic", CONFIG)


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    """The kubelet's seconds are twentieths here."""
    for name in ("PERIOD_SECONDS", "FIRST_BACKOFF_SECONDS"):
        monkeypatch.setattr(plugin_watcher, name, 0.05)


async def both_found(stage, since=0):
    """Both resources are there, by no call of Register, each on one socket where the kubelet looks."""
    for name, count in ((GPU, 2), (NIC, 1)):
        await stage.kubelet.until_registered(name, since=since, within=30)
        await stage.kubelet.until_allocatable(name, count, within=30)
        assert stage.kubelet.registrations(name) == 0
    await stage.until(lambda: all(child.pid for child in stage.children().values()), "every child runs")
    await stage.until(lambda: len(sockets(stage)) == 2, "one socket a resource")


def sockets(stage):
    """Our sockets, wherever they are."""
    return sorted(path.name for path in stage.settings.kubelet_dir.glob("*/devherd-*.sock"))


async def test_every_resource_is_found_and_its_devices_are_allocated(stage):
    """And nothing is left when devherd ends."""
    await both_found(stage)
    assert (await stage.kubelet.allocate(GPU, 2, pod="train")).device_ids == ("gpu-0", "gpu-1")
    assert await stage.stop_herd() == 0
    assert sockets(stage) == []


async def test_a_kubelet_restart_is_survived_with_allocations(stage):
    """Also one that takes its time."""
    await both_found(stage)
    await stage.kubelet.allocate(GPU, 1)
    for _ in range(3):
        mark = stage.kubelet.events.mark()
        await stage.kubelet.restart()
        await both_found(stage, mark)
    await stage.kubelet.stop()
    await stage.until(lambda: stage.log.count("the kubelet closed the stream") >= 8, "both have noticed")
    mark = stage.kubelet.events.mark()
    await stage.kubelet.start()
    await both_found(stage, mark)
    assert stage.kubelet.in_use(GPU) == {"gpu-0"}
    assert not any(child.restarts for child in stage.children().values())


async def test_a_killed_child_is_found_again_and_the_other_is_not_disturbed(stage):
    """What it has left behind is taken away."""
    await both_found(stage)
    mark = stage.kubelet.events.mark()
    os.kill(stage.child_of(GPU).pid, signal.SIGKILL)
    await stage.kubelet.until_registered(GPU, since=mark)
    await stage.kubelet.until_allocatable(GPU, 2)
    assert stage.kubelet.events.since(mark, resource=NIC) == []
    await stage.until(lambda: len(sockets(stage)) == 2, "one socket a resource")


async def test_removed_sockets_are_replaced(stage):
    """And a directory removed with all in it."""
    await both_found(stage)
    mark = stage.kubelet.events.mark()
    for path in stage.settings.plugins_registry.iterdir():
        path.unlink()
    await both_found(stage, mark)

    await stage.kubelet.stop()
    while stage.settings.plugins_registry.exists():  # children make and remove sockets in it meanwhile
        shutil.rmtree(stage.settings.plugins_registry, ignore_errors=True)
    await stage.until(lambda: "plugins_registry is not there" in stage.log, "it says what it waits for")
    mark = stage.kubelet.events.mark()
    await stage.kubelet.start()
    await both_found(stage, mark)


async def test_another_devherd_is_found_in_the_place_of_the_first(stage):
    """As when it is updated, or killed."""
    await both_found(stage)
    for number in (signal.SIGTERM, signal.SIGKILL):
        mark = stage.kubelet.events.mark()
        await stage.stop_herd(number)
        await stage.start_herd()
        await both_found(stage, mark)


async def test_a_refused_resource_is_found_once_the_kubelet_takes_it(stage, monkeypatch):
    """What the kubelet says is said, and a fresh socket is tried."""
    await both_found(stage)
    monkeypatch.setattr("devherd.sim.kubelet.plugin_socket.VERSION", "v2")
    await stage.kubelet.restart()
    await stage.until(
        lambda: "the kubelet refused: RegisterPlugin error -- plugin validation failed" in stage.log, "the refusal"
    )
    mark = stage.kubelet.events.mark()
    monkeypatch.setattr("devherd.sim.kubelet.plugin_socket.VERSION", "v1beta1")
    await both_found(stage, mark)


async def test_a_reload_that_changes_the_way_says_that_it_takes_a_restart(stage):
    """And a restart takes the other way, leaving nothing where the first one put it."""
    await both_found(stage)
    stage.configure(CONFIG | {"registration": "kubelet_socket"})
    stage.herd.send_signal(signal.SIGHUP)
    await stage.until(lambda: "registration" in stage.log, "it says so")
    mark = stage.kubelet.events.mark()
    await stage.stop_herd(signal.SIGKILL)
    await stage.start_herd()
    for name in (GPU, NIC):
        await stage.kubelet.until_registered(name, since=mark, within=30)
        await stage.until(lambda name=name: stage.kubelet.registrations(name) >= 1, "it has called")
    await stage.until(lambda: list(stage.settings.plugins_registry.iterdir()) == [], "nothing is left")
