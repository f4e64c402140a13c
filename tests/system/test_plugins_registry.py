"""devherd whole with `registration: plugins_registry`: the embedded kubelet finds it, and finds it again."""

import os
import shutil
import signal

import pytest

from devherd import spool
from devherd.proto import spool_pb2
from devherd_sim.kubelet import plugin_watcher

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


async def both_found(testbed, since=0):
    """Both resources are there, by no call of Register, each on one socket where the kubelet looks."""
    for name, count in ((GPU, 2), (NIC, 1)):
        await testbed.kubelet.until_registered(name, since=since, within=30)
        await testbed.kubelet.until_allocatable(name, count, within=30)
        assert testbed.kubelet.registrations(name) == 0
    await testbed.until(testbed.runs, "every child runs")
    await testbed.until(lambda: len(sockets(testbed)) == 2, "one socket a resource")


def sockets(testbed):
    """Our sockets, wherever they are."""
    return sorted(path.name for path in testbed.settings.kubelet_dir.glob("*/devherd-*.sock"))


def states(testbed):
    """What the children say of themselves."""
    return [state for _, state in spool.read_all(testbed.settings.state_directory, spool_pb2.ResourceState)]


async def test_every_resource_is_found_and_its_devices_are_allocated(testbed):
    """And nothing is left when devherd ends."""
    await both_found(testbed)
    assert (await testbed.kubelet.allocate(GPU, 2, pod="train")).device_ids == ("gpu-0", "gpu-1")
    assert await testbed.stop_herd() == 0
    assert sockets(testbed) == []


async def test_a_kubelet_restart_is_survived_with_allocations(testbed):
    """Also one that takes its time."""
    await both_found(testbed)
    await testbed.kubelet.allocate(GPU, 1)
    for _ in range(3):
        mark = testbed.kubelet.events.mark()
        await testbed.kubelet.restart()
        await both_found(testbed, mark)
    await testbed.kubelet.stop()
    await testbed.until(lambda: not any(state.registered for state in states(testbed)), "both have noticed")
    mark = testbed.kubelet.events.mark()
    await testbed.kubelet.start()
    await both_found(testbed, mark)
    assert testbed.kubelet.in_use(GPU) == {"gpu-0"}
    assert not any(child.restarts for child in testbed.children().values())


async def test_a_killed_child_is_found_again_and_the_other_is_not_disturbed(testbed):
    """What it has left behind is taken away."""
    await both_found(testbed)
    mark = testbed.kubelet.events.mark()
    os.kill((await testbed.child_of(GPU)).pid, signal.SIGKILL)
    await testbed.kubelet.until_registered(GPU, since=mark)
    await testbed.kubelet.until_allocatable(GPU, 2)
    assert testbed.kubelet.events.since(mark, resource=NIC) == []
    await testbed.until(lambda: len(sockets(testbed)) == 2, "one socket a resource")


async def test_removed_sockets_are_replaced(testbed):
    """And a directory removed with all in it."""
    await both_found(testbed)
    mark = testbed.kubelet.events.mark()
    for path in testbed.settings.plugins_registry.iterdir():
        path.unlink()
    await both_found(testbed, mark)

    await testbed.kubelet.stop()
    while testbed.settings.plugins_registry.exists():  # children make and remove sockets in it meanwhile
        shutil.rmtree(testbed.settings.plugins_registry, ignore_errors=True)
    await testbed.until(lambda: "plugins_registry does not exist" in testbed.log, "it says what it waits for")
    mark = testbed.kubelet.events.mark()
    await testbed.kubelet.start()
    await both_found(testbed, mark)


async def test_another_devherd_is_found_in_the_place_of_the_first(testbed):
    """As when it is updated, or killed."""
    await both_found(testbed)
    for number in (signal.SIGTERM, signal.SIGKILL):
        mark = testbed.kubelet.events.mark()
        await testbed.stop_herd(number)
        await testbed.start_herd()
        await both_found(testbed, mark)


async def test_a_refused_resource_is_found_once_the_kubelet_takes_it(testbed, monkeypatch):
    """What the kubelet says is said, and a fresh socket is tried."""
    await both_found(testbed)
    monkeypatch.setattr("devherd_sim.kubelet.plugin_watcher.VERSION", "v2")
    await testbed.kubelet.restart()
    await testbed.until(
        lambda: "the kubelet refused: RegisterPlugin error -- plugin validation failed" in testbed.log, "the refusal"
    )
    mark = testbed.kubelet.events.mark()
    monkeypatch.setattr("devherd_sim.kubelet.plugin_watcher.VERSION", "v1beta1")
    await both_found(testbed, mark)


async def test_a_reload_that_changes_the_way_says_that_it_takes_a_restart(testbed):
    """And a restart takes the other way, leaving nothing where the first one put it."""
    await both_found(testbed)
    testbed.configure(CONFIG | {"registration": "kubelet_socket"})
    testbed.herd.send_signal(signal.SIGHUP)
    said = "registration has changed in the configuration: restart devherd to apply this"
    await testbed.until(lambda: said in testbed.log, said)
    mark = testbed.kubelet.events.mark()
    await testbed.stop_herd(signal.SIGKILL)
    await testbed.start_herd()
    for name in (GPU, NIC):
        await testbed.kubelet.until_registered(name, since=mark, within=30)
        await testbed.until(lambda name=name: testbed.kubelet.registrations(name) >= 1, "it has called")
    await testbed.until(lambda: list(testbed.settings.plugins_registry.iterdir()) == [], "nothing is left")
