"""Deadlines that a process keeps itself, because gRPC without threads keeps none."""

import asyncio

import grpc
import grpc.aio
import pytest

from devherd.kubelet import cures, deadline, pod_resources
from devherd.kubelet.deadline import MuteError, in_time
from devherd.process import Child, Heartbeats
from devherd.settings import Settings


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    """Nothing is waited for in vain, and no other test is told of what was mute here."""
    monkeypatch.setattr(deadline, "LATE_SECONDS", 0.1)
    monkeypatch.setattr(pod_resources, "_mute", [])


async def never():
    """A call of a gRPC without threads."""
    await asyncio.Event().wait()


async def test_what_ends_in_time_is_answered_and_what_fails_fails():
    """As if nobody watched it."""

    async def answer():
        return 7

    async def fail():
        raise OSError("refused")

    assert await in_time(answer(), 1.0, "a call") == 7
    with pytest.raises(OSError, match="refused"):
        await in_time(fail(), 1.0, "a call")


async def test_a_call_whose_own_deadline_is_not_kept_is_ended_with_the_reason():
    """Defect: Register never returned, although it had a deadline: that is gRPC's, whose threads were missing."""
    with pytest.raises(MuteError, match=r"has not ended a call — not after 0.15 s: .* short — .* the pod's pids limit"):
        await in_time(never(), 0.05, "a call")


async def test_a_late_answer_is_one(monkeypatch):
    """A busy node keeps deadlines late; only silence beyond that is the end of a process."""
    monkeypatch.setattr(deadline, "LATE_SECONDS", 5.0)

    async def late():
        await asyncio.sleep(0.2)
        return "late"

    assert await in_time(late(), 0.05, "a call") == "late"


async def test_what_waits_for_a_call_can_be_cancelled():
    """As at SIGTERM while the kubelet answers no Register."""
    waiting = asyncio.create_task(in_time(never(), 60.0, "a call"))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


class NoThreads:
    """A stub of PodResources, and a server, whose calls gRPC does not end."""

    def List(self, request, timeout):
        return never()

    async def stop(self, grace):
        await never()


async def test_a_server_that_does_not_stop_is_not_waited_for():
    """Defect: after a failed registration the next one waited for ever for the end of the server before."""
    with pytest.raises(MuteError):
        await deadline.stop(NoThreads(), 0.05)
    with pytest.raises(MuteError):
        await deadline.over(asyncio.create_task(never()))


async def test_a_question_that_cannot_be_asked_for_lack_of_threads_is_no_answer(monkeypatch, tmp_path):
    """Defect: while process ids were short, /metrics was answered with 500, because of the holders alone."""

    def refuse(*_, **__):
        raise RuntimeError("can't start new thread")

    socket = tmp_path / "kubelet.sock"
    socket.touch()
    monkeypatch.setattr(grpc.aio, "insecure_channel", refuse)
    assert await pod_resources.PodResources(socket).allocations() is None
    with pytest.raises(grpc.aio.AioRpcError, match="no thread: can't start new thread") as refused:
        await pod_resources.list_pods(socket)
    assert cures.of_answer(refused.value.code().name).startswith("raise the pod's pids limit")
    pod_resources.check()


async def test_a_question_to_the_kubelet_that_does_not_come_back_is_no_answer_and_stops_the_heart(
    monkeypatch, tmp_path
):
    """Defect: the process that keeps holders beat beside its question, and was mute for ever.

    Whoever asks for pods is told that there is no answer; the next answer makes all well again.
    """
    monkeypatch.setattr(pod_resources, "PodResourcesListerStub", lambda _: NoThreads())
    monkeypatch.setattr(pod_resources, "DEADLINE_SECONDS", 0.05)
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await pod_resources.list_pods(tmp_path / "kubelet.sock")
    assert refused.value.code() is grpc.StatusCode.ABORTED
    child = Child("holders", Settings(run_dir=tmp_path), heartbeats := Heartbeats(2), heartbeats.claim())
    with pytest.raises(MuteError):
        await pod_resources.ask_beside_the_heartbeat(child, never())
    assert heartbeats.last_beat(child.slot) == 0.0

    monkeypatch.undo()
    monkeypatch.setattr(pod_resources, "_mute", [])
    with pytest.raises(grpc.aio.AioRpcError):
        await pod_resources.list_pods(tmp_path / "kubelet.sock")  # nobody listens: an answer in time
    pod_resources.check()
