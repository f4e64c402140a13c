"""What a resource's streams say of the list that the kubelet has."""

import asyncio
from pathlib import Path

import pytest

from devherd import spool
from devherd.counters import BY_RESOURCE_CHILDREN, Counters
from devherd.device_plugin.resource_file import ResourceFile
from devherd.device_plugin.service import Streams
from devherd.proto import spool_pb2

NAME = "example.com/gpu"


class File:
    """A spool file and the streams of its resource; `shown` is what they have said last."""

    def __init__(self, directory: Path) -> None:
        self._path = spool.path_of(directory, spool.key_of(NAME))
        self._resource = ResourceFile(directory, spool.key_of(NAME))
        self.shown: int | None = None
        self.changed = asyncio.Event()
        self.write(1, "0")
        counters = Counters(BY_RESOURCE_CHILDREN)
        self.streams = Streams(self._resource, counters, lambda _: None, self._show)

    def write(self, version: int, *ids: str) -> None:
        devices = [spool_pb2.ListedDevice(id=one) for one in ids]
        spool.write(self._path, spool_pb2.Resource(name=NAME, version=version, devices=devices))
        self._resource.look()

    def _show(self, version: int | None) -> None:
        self.shown = version
        self.changed.set()


@pytest.fixture
def file(tmp_path):
    return File(tmp_path)


async def settle():
    """Let every task do what it can do at once."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_a_list_that_a_hanging_kubelet_does_not_take_is_not_said_to_be_sent(file):
    """However long it hangs: a device that has left this list must not be listed elsewhere."""
    flows, sent = asyncio.Event(), []

    async def send(message):
        await flows.wait()
        sent.append([device.ID for device in message.devices])

    stream = asyncio.create_task(file.streams.serve(send))
    await settle()
    file.write(2, "1")
    await asyncio.sleep(0.5)
    assert (sent, file.shown) == ([], 1)

    file.changed.clear()
    flows.set()
    async with asyncio.timeout(5):
        await file.changed.wait()
    assert file.shown == 2
    assert sent == [["0"], ["1"]]
    stream.cancel()
    await asyncio.gather(stream, return_exceptions=True)
    assert file.shown is None


async def test_a_stream_of_somebody_who_looks_says_nothing(file):
    """Only what the kubelet was sent counts; its stream is the first."""

    async def hang(_):
        await asyncio.Event().wait()

    async def take(_):
        pass

    kubelet, other = (asyncio.create_task(file.streams.serve(send)) for send in (hang, take))
    await settle()
    file.write(2, "1")
    await asyncio.sleep(0.5)
    assert file.shown == 1
    other.cancel()
    await asyncio.gather(other, return_exceptions=True)
    assert file.shown == 1
    kubelet.cancel()
    await asyncio.gather(kubelet, return_exceptions=True)
    assert file.shown is None
