"""When a resource child concludes that the kubelet has lost its devices, from what the kubelet lists."""

import asyncio

import grpc
import grpc.aio
import pytest

from devherd import spool
from devherd.device_plugin import generation
from devherd.device_plugin.generation import until_forgotten
from devherd.device_plugin.resource_file import ResourceFile
from devherd.proto.spool_pb2 import ListedDevice, Resource

PERIOD = 0.02


class Check:
    """One running check; `answer` plays the kubelet."""

    def __init__(self, directory, *devices):
        spool.write(spool.path_of(directory, "a.b_c"), Resource(name="a.b/c", devices=devices))
        resource = ResourceFile(directory, "a.b_c")
        resource.look()
        self.socket = directory / "kubelet.sock"
        self.socket.touch()
        self.answers = []
        self.traces = None
        """Of other plugins in the kubelet's directories: unknown."""
        self.asked = asyncio.Event()
        self.questions = asyncio.Event()
        self.task = asyncio.create_task(until_forgotten(self.socket, resource, PERIOD, lambda: self.traces))

    async def ids(self, socket):
        """What the kubelet lists now, to its only caller; no answer is given twice."""
        assert socket == self.socket
        self.questions.set()
        if not self.answers:
            raise grpc.aio.AioRpcError(grpc.StatusCode.UNAVAILABLE, grpc.aio.Metadata(), grpc.aio.Metadata())
        self.asked.set()
        return {"a.b/c": set(self.answers.pop(0)), "a.b/other": {"0", "1"}}

    async def answer(self, *device_ids):
        """The kubelet's next answer; returns when it was taken."""
        self.answers.append(device_ids)
        self.asked.clear()
        await asyncio.wait_for(self.asked.wait(), 20)

    async def is_left_alone(self):
        """Whether it is not asked in several periods."""
        self.questions.clear()
        await asyncio.sleep(5 * PERIOD)
        return not self.questions.is_set()

    async def does_not_answer(self):
        """The kubelet's next answer is none; returns when it was asked."""
        self.questions.clear()
        await asyncio.wait_for(self.questions.wait(), 20)

    async def is_forgotten(self):
        """Whether it has ended after several more looks."""
        await asyncio.wait([self.task], timeout=10 * PERIOD)
        return self.task.done()


@pytest.fixture
async def check(tmp_path, monkeypatch):
    """A check of two healthy devices and one that is not."""
    made = Check(tmp_path, ListedDevice(id="0"), ListedDevice(id="1"), ListedDevice(id="2", reasons=["gone"]))
    monkeypatch.setattr(generation, "allocatable_ids", made.ids)
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


async def test_a_kubelet_that_does_not_answer_says_nothing(check):
    """It is away, too slow, or has no PodResources API; what it said before still counts."""
    await check.answer("theirs")
    assert not await check.is_forgotten()
    check.socket.unlink()
    check.answers.append(("theirs",))
    assert not await check.is_forgotten()
    check.socket.touch()
    assert await asyncio.wait_for(check.task, 20)


async def test_one_healthy_device_in_the_list_begins_the_count_anew(check):
    """A kubelet that has some of them has not lost the resource."""
    for _ in range(3):
        await check.answer("theirs")
        await check.answer("1")
    assert not await check.is_forgotten()


async def test_a_resource_without_healthy_devices_cannot_be_lost(tmp_path, monkeypatch):
    """The kubelet lists healthy ones only."""
    check = Check(tmp_path, ListedDevice(id="2", reasons=["gone"]))
    monkeypatch.setattr(generation, "allocatable_ids", check.ids)
    for _ in range(3):
        await check.answer()
    assert not await check.is_forgotten()
    check.task.cancel()


@pytest.fixture
def no_quiet_question(monkeypatch):
    """The kubelet is never asked for the sake of time alone."""
    monkeypatch.setattr(generation, "QUIET_PERIODS", float("inf"))


@pytest.mark.usefixtures("no_quiet_question")
async def test_a_kubelet_without_traces_of_other_plugins_is_asked_no_more(check):
    """Nobody can have made it forget the devices since it said that it has them; a new trace is asked about once."""
    check.traces = 1
    await check.answer("0", "1")
    assert await check.is_left_alone()
    check.traces = 2
    await check.answer("0", "1")
    assert await check.is_left_alone()


@pytest.mark.usefixtures("no_quiet_question")
async def test_a_kubelet_is_asked_again_after_a_miss_and_after_no_answer(check):
    """Without any further trace: the loss is found by the next question, not by the next change."""
    check.traces = 1
    await check.does_not_answer()
    await check.does_not_answer()
    await check.answer("theirs")
    await check.answer("theirs")
    assert await asyncio.wait_for(check.task, 20)


async def test_a_quiet_kubelet_is_asked_every_tenth_period(check):
    """Whatever it may have forgotten the devices for."""
    check.traces = 1
    await check.answer("0", "1")
    await check.answer("theirs")
    await check.answer("theirs")
    assert await asyncio.wait_for(check.task, 20)
