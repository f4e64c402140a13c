"""When a resource child concludes that the kubelet has lost its devices, from what the exporter has left."""

import asyncio
import time

import pytest

from devherd import spool
from devherd.device_plugin.generation import until_forgotten
from devherd.device_plugin.resource_file import ResourceFile
from devherd.proto.spool_pb2 import Allocatable, ListedDevice, Resource

PERIOD = 0.02


class Check:
    """One running check; `answer` plays the exporter."""

    def __init__(self, directory, *devices):
        spool.write(spool.path_of(directory, "a.b_c"), Resource(name="a.b/c", devices=devices))
        resource = ResourceFile(directory, "a.b_c")
        resource.look()
        self.path = directory / "answer.pb"
        self.task = asyncio.create_task(until_forgotten(self.path, resource, PERIOD))

    async def answer(self, *device_ids, age=0.0):
        """What the kubelet listed; returns when the check has had time to look."""
        asked = time.monotonic() - age
        spool.write(self.path, Allocatable(asked_monotonic_seconds=asked, device_ids=device_ids))
        await asyncio.sleep(10 * PERIOD)

    async def is_forgotten(self):
        """Whether it has ended after several more looks."""
        await asyncio.wait([self.task], timeout=10 * PERIOD)
        return self.task.done()


@pytest.fixture
async def check(tmp_path):
    """A check of two healthy devices and one that is not."""
    made = Check(tmp_path, ListedDevice(id="0"), ListedDevice(id="1"), ListedDevice(id="2", reasons=["gone"]))
    await asyncio.sleep(0.001)
    yield made
    made.task.cancel()
    await asyncio.gather(made.task, return_exceptions=True)


async def test_two_answers_without_any_healthy_device_are_the_end(check):
    """One may be a list that is still under way."""
    await check.answer("2", "theirs")
    assert not await check.is_forgotten()
    await check.answer("theirs")
    assert (
        await asyncio.wait_for(check.task, 20) == "the kubelet has lost our devices, although the stream is still open"
    )


async def test_one_answer_counts_once_however_often_it_is_looked_at(check):
    """An exporter that has died leaves its last answer behind."""
    await check.answer("theirs")
    for _ in range(5):
        assert not await check.is_forgotten()


async def test_one_healthy_device_in_the_list_begins_the_count_anew(check):
    """A kubelet that has some of them has not lost the resource."""
    for _ in range(3):
        await check.answer("theirs")
        await check.answer("1")
    assert not await check.is_forgotten()


async def test_what_was_asked_before_the_registration_does_not_count(check):
    """The list of that time said nothing about this registration; nor does one from a boot with another clock."""
    for age in (60.0, 50.0, -3600.0, -7200.0):
        await check.answer("theirs", age=age)
    assert not await check.is_forgotten()


async def test_a_file_that_cannot_be_read_says_nothing(check):
    """Torn, empty or absent."""
    for content in (b"", b"\xff\xff"):
        check.path.write_bytes(content)
        assert not await check.is_forgotten()


async def test_a_resource_without_healthy_devices_cannot_be_lost(tmp_path):
    """The kubelet lists healthy ones only."""
    check = Check(tmp_path, ListedDevice(id="2", reasons=["gone"]))
    await asyncio.sleep(0.001)
    for _ in range(3):
        await check.answer()
    assert not await check.is_forgotten()
    check.task.cancel()
