"""The nodes and herds that are measured, beside an embedded kubelet in the bench's own process or one in a program.

The largest node has 24 resource types, 128 cards, 1 024 PCI functions and 4 096 device ids. Beyond that devherd works,
and is slower.
"""

import asyncio
import contextlib
import functools
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from devherd_sim.kubelet.events import Kind, KubeletEvent
from devherd_sim.node.intel_fpga import AFU_IDS
from devherd_sim.node.presets import preset
from devherd_sim.node.spec import FpgaSpec, NodeSpec
from devherd_sim.testbed import Testbed

SIMULATED = [f"example.com/type-{number}" for number in range(22)]
TYPES = 24
"""The simulated ones and the two accelerator functions of the preset `fpga-8`."""
DEVICES = 4096


@dataclass(frozen=True)
class FpgaNode:
    """A node with FPGA cards, and the number of its devices."""

    title: str
    spec: NodeSpec
    devices: int


EIGHT_CARDS = FpgaNode("8 FPGA cards, one resource", NodeSpec(fpga=[FpgaSpec(cards=8, afu_ids=AFU_IDS[:1])]), 8)
MANY_PORTS = FpgaNode("64 FPGA ports (32 cards)", preset("fpga-dense"), 64)
MOST_CARDS = FpgaNode("128 FPGA cards", NodeSpec(fpga=[FpgaSpec(cards=128)]), 128)
MOST_FUNCTIONS = FpgaNode("1 024 functions (128 FPGA cards)", NodeSpec(fpga=[FpgaSpec(cards=128, vfs=7)]), 896)
"""A port in each of a card's seven virtual functions; the eighth function is the card's own."""

_PATIENCE_SECONDS = 60.0
_ALL_TYPES = {"simulated": [{"name": name, "count": 4} for name in SIMULATED]}


@contextlib.contextmanager
def directory() -> Iterator[Path]:
    """A directory with a path short enough for sockets; on tmpfs, where /run is, if there is one."""
    place = "/dev/shm" if os.access("/dev/shm", os.W_OK) else "/tmp"
    path = Path(tempfile.mkdtemp(prefix="dh", dir=place))
    try:
        yield path
    finally:
        shutil.rmtree(path)


class GoKubelet:
    """The program in `kubelet/`: it has no page of a plugin in Python, and calls it by grpc-go, as the kubelet does."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.devices: dict[str, int] = {}
        """The number of devices in the last list, by resource."""

    async def ready(self) -> None:
        """Wait until it listens."""
        await self._event()

    async def lists(self, resources: int) -> None:
        """Wait until so many resources have sent a list with devices."""
        async with asyncio.timeout(_PATIENCE_SECONDS):
            while sum(1 for count in self.devices.values() if count) < resources:
                await self._event()

    async def next_list(self, devices: int = 0) -> None:
        """Wait for another list, with so many devices at least."""
        async with asyncio.timeout(_PATIENCE_SECONDS):
            while (event := await self._event())["kind"] != "list" or event.get("devices", 0) < devices:
                pass

    async def rest(self, seconds: float) -> None:
        """Wait until nothing has happened for so long."""
        with contextlib.suppress(TimeoutError):
            while True:
                await asyncio.wait_for(self._event(), seconds)

    async def allocate(self) -> list[float]:
        """Call Allocate once for each resource, for its first device; returns what each took, in seconds."""
        return [await self._answer("allocate", "allocated", resource) for resource in list(self.devices)]

    async def prefer(self, size: int) -> float:
        """Call GetPreferredAllocation for so many of all devices of the first resource; 0.0 where none is offered."""
        return await self._answer("prefer", "preferred", next(iter(self.devices)), str(size))

    async def _answer(self, call: str, kind: str, resource: str, *more: str) -> float:
        assert self._process.stdin is not None
        async with asyncio.timeout(_PATIENCE_SECONDS):
            self._process.stdin.write(f"{' '.join((call, resource, *more))}\n".encode())
            while (event := await self._event())["kind"] != kind or event["resource"] != resource:
                pass
            return float(event.get("seconds", 0.0))

    async def _event(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        event: dict[str, Any] = json.loads(await self._process.stdout.readline())
        if event["kind"] == "list":
            self.devices[event["resource"]] = event.get("devices", 0)
        return event


@contextlib.asynccontextmanager
async def beside_go_kubelet(
    spec: str | NodeSpec = "fpga-8", config: dict[str, Any] | None = None
) -> AsyncIterator[tuple[Testbed, GoKubelet]]:
    """A herd that is yet to be started, by default one of 24 types, and a kubelet in a program of its own.

    Raises RuntimeError without Go.
    """
    program = go_program("kubelet")
    with directory() as path:
        node = preset(spec) if isinstance(spec, str) else spec
        made = Testbed(path, node, _ALL_TYPES if config is None else config)
        process = await asyncio.create_subprocess_exec(
            program, made.settings.kubelet_dir, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        try:
            kubelet = GoKubelet(process)
            await kubelet.ready()
            yield made, kubelet
        finally:
            await made.stop_herd()
            process.kill()
            await process.wait()


@functools.cache
def go_program(name: str) -> Path:
    """The program `kubelet` or `plugin` of the folder `kubelet/`, compiled. Raises RuntimeError without Go."""
    go = shutil.which("go")
    if go is None:
        raise RuntimeError("NOT MEASURED: needs Go, for a kubelet, and a plugin, that are other programs")
    program = Path(__file__).parents[1] / ".tools/benches" / name
    command = [go, "build", "-mod=readonly", "-o", str(program), "." if name == "kubelet" else f"./{name}"]
    subprocess.run(command, cwd=Path(__file__).with_name("kubelet"), check=True)
    return program


@contextlib.asynccontextmanager
async def small_testbed(
    spec: str | NodeSpec = "fpga-8", config: dict[str, Any] | None = None
) -> AsyncIterator[Testbed]:
    """A kubelet that runs and a herd that is yet to be started: by default one of 24 types."""
    with directory() as path:
        node = preset(spec) if isinstance(spec, str) else spec
        made = Testbed(path, node, _ALL_TYPES if config is None else config)
        await made.kubelet.start()
        try:
            yield made
        finally:
            await made.__aexit__(None, None, None)


async def all_types(testbed: Testbed, kind: Kind, since: int, types: int = TYPES) -> float:
    """When the last of all types had its first event of a kind since a mark, on the monotonic clock."""
    events = testbed.kubelet.events
    await events.until(lambda: len(_first(events.since(since, kind))) >= types, within=30, what=f"{types} times {kind}")
    return max(_first(events.since(since, kind)).values())


def _first(events: list[KubeletEvent]) -> dict[str, float]:
    return {event.resource: event.at for event in reversed(events)}
