"""The life of one gRPC server, ended at a moment that no process can be made to meet from outside."""

import asyncio
import itertools

import pytest
from plugin_host import KEY, RESOURCE, device

from devherd.device_plugin import hand_over
from devherd.device_plugin.generation import Generation
from devherd.device_plugin.resource_file import ResourceFile
from devherd.device_plugin.state import State
from devherd.history import History
from devherd.kubelet.endpoint import Endpoint
from devherd.kubelet.registration import KubeletSocket
from devherd.settings import Settings


class Older:
    """The server of before, which the kubelet watches."""

    is_released = False

    def lives(self, met):
        return not self.is_released

    async def release(self):
        self.is_released = True
        return False

    async def stop(self):
        pass


def parts_of(host):
    """What a generation is made of, beside its sockets."""
    resource = ResourceFile(host.resources, KEY)
    resource.look()
    kubelet = KubeletSocket(Settings(kubelet_dir=host.kubelet_dir, run_dir=host.run_dir))
    state = State(host.run_dir / "state/x.pb", RESOURCE, History(host.run_dir / "history", "resource"))
    return resource, kubelet, kubelet.identity(), state


@pytest.mark.parametrize("late", [3600.0, 0.01])
async def test_the_server_of_before_serves_on_for_calls_that_were_begun_when_another_took_its_place(
    host, monkeypatch, late
):
    """Defect: on a busy machine a pod was refused, because a call met a connection that was being closed."""
    monkeypatch.setattr(hand_over, "LATE_SECONDS", late)
    host.write(device("0"))
    host.kubelet.start()
    numbers = itertools.count(1)
    generation = Generation(lambda: Endpoint(host.plugins, RESOURCE, next(numbers)), *parts_of(host))
    older = Older()
    running = asyncio.create_task(generation.run(older))
    while not (generation.is_registered or (late > 1 and generation.is_taking_over)):
        assert not running.done()
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.3)

    assert older.is_released == (late < 1)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert host.sockets() == []


async def test_a_server_that_is_stopped_while_it_starts_or_stops_leaves_no_socket(host):
    """A reload that removes a resource some milliseconds after another made it must not leave a file to the kubelet.

    Nor may SIGTERM do so while a server stops because its registration failed, as it does here after some 15 turns.
    """
    host.write(device("0"))
    host.plugins.mkdir()
    parts = parts_of(host)
    problems = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: problems.append(context))
    for turns in range(60):
        socket = Endpoint(host.plugins, RESOURCE, turns + 1)
        generation = Generation(lambda: socket, *parts)  # noqa: B023 - called at once
        running = asyncio.create_task(generation.run())
        for _ in range(turns):
            await asyncio.sleep(0)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert host.sockets() == []
    assert problems == []
