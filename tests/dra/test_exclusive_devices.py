"""Whatever happens in whatever order, two containers have a device only if both have shares of it."""

import asyncio
import tempfile
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as some
from preparing import DRIVER, NODE, SmallPools, claim, result

from devherd.dra import preparation as module
from devherd.dra.claim import ClaimError, NotYetError
from devherd.dra.preparation import Limits, Preparation
from devherd.settings import Settings

CLAIMS, DEVICES = range(4), ("gpu-0", "gpu-1")
LIMITS = Limits(call=0.02, pause=0.001, longest_pause=0.002)


class Node:
    """The API server and the kubelet in memory, two processes over one file. Claims that share say so."""

    def __init__(self, directory):
        self._settings = Settings(run_dir=directory, state_dir=directory)
        self._config = SimpleNamespace(cdi_directory=directory / "cdi", api_access=lambda: None)
        self._pools = SmallPools(directory / "cdi")
        self._pools.add(*DEVICES, envs={"CARDS": "all"})
        self._processes = [self._process(), self._process()]
        self.boots = 0
        self.allocated = {}
        """By claim: its devices, as the API server has them."""
        self.containers = {}
        """By claim: the devices of its container, which may run although the claim is gone."""
        self.begun = set()
        """Claims for which Prepare was called: the kubelet unprepares them."""

    def _process(self):
        made = Preparation(self._settings, self._config, NODE, self._pools, LIMITS)
        made._claims = SimpleNamespace(get=self._get, close=lambda: None)
        made._left_over = SimpleNamespace(check=self._unknown, forget=lambda _: None)
        return made

    async def _get(self, asked, _, **__):
        number = int(asked.uid[-4:])
        if number not in self.allocated:
            return None
        results = [result(device, shareID=share) for device, share in self.allocated[number]]
        return {"metadata": {"uid": asked.uid}, "status": {"allocation": {"devices": {"results": results}}}}

    async def _unknown(self, record, what, pause, others):
        """PodResources leaves the pod out, and the kubelet may unprepare its claim yet."""
        raise NotYetError(what, pause)

    def allocate(self, number, devices, share):
        """The scheduler gives a device once, but for shares; a claim has devices or not."""
        wanted = [(device, share and f"{share}-{number}") for device in devices]
        taken = {device: by for had in self.allocated.values() for device, by in had}
        if number not in self.allocated and all(device not in taken or (share and taken[device]) for device in devices):
            self.allocated[number] = wanted

    async def start(self, number, process, devices, share, crashes_after):
        """A pod of a new claim, or of one that is there."""
        self.allocate(number, devices, share)
        await self.prepare(number, process, crashes_after)

    async def prepare(self, number, process, crashes_after):
        if number not in self.allocated or number in self.containers:
            return
        self.begun.add(number)
        task = asyncio.create_task(self._processes[process].prepare(DRIVER, claim(number)))
        if crashes_after is not None:
            await asyncio.wait([task], timeout=crashes_after)
            task.cancel()
            self.restart(process)
        try:
            answers = await task
        except (ClaimError, asyncio.CancelledError):
            return
        assert {each.device for each in answers} == {device for device, _ in self.allocated[number]}
        self.containers[number] = self.allocated[number]

    async def end(self, number, process):
        """The pod ends: its container does, then it is unprepared, then its claim is deallocated."""
        self.containers.pop(number, None)
        if number in self.begun:
            await self._processes[process].unprepare(DRIVER, claim(number).uid)
            self.begun.discard(number)
        self.allocated.pop(number, None)

    def delete_by_force(self, number):
        """The container runs on."""
        self.allocated.pop(number, None)

    def restart(self, process):
        self._end(self._processes[process])
        self._processes[process] = self._process()
        self._processes[process].restore()

    def boot(self):
        """No container is left; the kubelet remembers."""
        self.boots += 1
        self.containers.clear()
        for path in (self._settings.run_dir / "cdi").glob("devherd-*"):
            path.unlink()
        for process in (0, 1):
            self.restart(process)

    def check(self):
        had = [one for devices in self.containers.values() for one in devices]
        for device in DEVICES:
            shares = [share for name, share in had if name == device]
            assert len(shares) <= 1 or all(shares), self.containers

    def close(self):
        for process in self._processes:
            self._end(process)

    def _end(self, process):
        """A thread of a process does nothing after its end."""
        process.close()
        process._files.shutdown(wait=True)


NUMBERS, PROCESSES = some.sampled_from(CLAIMS), some.sampled_from((0, 1))
START = some.tuples(
    some.just("start"),
    NUMBERS,
    PROCESSES,
    some.lists(some.sampled_from(DEVICES), min_size=1, max_size=2, unique=True),
    some.sampled_from(["", "", "share"]),
    some.sampled_from([None, None, None, 0.0, 0.001, 0.003]),
)
STEPS = some.one_of(
    START,
    START,
    some.tuples(some.just("delete_by_force"), NUMBERS) | some.tuples(some.just("end"), NUMBERS, PROCESSES),
    some.tuples(some.just("restart"), PROCESSES) | some.just(("boot",)),
)


async def play(steps):
    with tempfile.TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as monkeypatch:
        node = Node(Path(directory))
        for name, *arguments in steps:
            monkeypatch.setattr(module, "BOOT", f"boot-{node.boots}")
            made = getattr(node, name)(*arguments)
            if made is not None:
                await made
            node.check()
        node.close()


@given(steps=some.lists(STEPS, min_size=5, max_size=20))
def test_no_device_is_given_twice_by_two_processes_over_any_restarts_and_deletions_by_force(steps):
    asyncio.run(play(steps))


def test_the_property_notices_a_device_that_is_given_twice(monkeypatch):
    """Without the records it is."""
    monkeypatch.setattr(module, "_stands_against", lambda *_: False)
    monkeypatch.setattr(f"{__name__}.LIMITS", replace(LIMITS, call=60.0))
    steps = [("allocate", 0, ["gpu-0"], ""), ("prepare", 0, 0, None), ("delete_by_force", 0)]
    steps += [("allocate", 1, ["gpu-0"], ""), ("prepare", 1, 1, None)]
    with pytest.raises(AssertionError):
        asyncio.run(play(steps))
