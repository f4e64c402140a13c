"""The demo: plays acts on a testbed and prints how long each took.

An act changes the node, the herd or the kubelet and waits until the kubelet sees the effect. The demo fails when an act
exceeds its timeout.
"""

import asyncio
import os
import signal
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from devherd import spool
from devherd.errors import DevherdError
from devherd.proto import spool_pb2
from devherd.text import amount
from devherd_sim.kubelet.pod import Allocation
from devherd_sim.node import faults
from devherd_sim.node.amd import AmdSpec
from devherd_sim.node.intel_fpga import AFU_IDS
from devherd_sim.node.nvidia import NvidiaSpec
from devherd_sim.node.spec import FpgaSpec, NodeSpec
from devherd_sim.testbed import Testbed

NODE = NodeSpec(
    fpga=[FpgaSpec(cards=2, numa_nodes=2, afu_ids=[*AFU_IDS[:2]]), FpgaSpec(driver="opae")],
    amd=[AmdSpec(cards=4, numa_nodes=2)],
    nvidia=NvidiaSpec(gpus=2),
)
CONFIG = {
    "resources": [
        {"match": {"afu_id": AFU_IDS[0], "driver": "dfl"}, "name": "example.com/compression"},
        {"match": {"afu_id": AFU_IDS[1]}, "name": "example.com/crypto"},
    ],
}
RESOURCE = "example.com/compression"
GPU = "amd.com/gpu"
NVIDIA_GPU = "nvidia.com/gpu"
PORT = "dfl-port.0"
WITHIN_SECONDS = 15.0
READING_SECONDS = 1.5
"""Pause after each act on a terminal."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A row of the summary."""

    what: str
    seconds: float


class Demo:
    """Plays the acts on a testbed and prints what happens."""

    def __init__(self, testbed: Testbed, console: Console) -> None:
        self._testbed = testbed
        self._kubelet = testbed.kubelet
        self._console = console
        self._figures: list[Figure] = []
        self._started = time.monotonic()
        self._pause = READING_SECONDS if console.is_terminal else 0.0

    async def play(self) -> None:
        """Play all acts in order and print the summary. Raises DevherdError when an act fails."""
        acts = (
            self._discover,
            self._allocate,
            self._fail,
            self._recover,
            self._lose_a_gpu,
            self._reset_the_gpu,
            self._kill,
            self._restart_kubelet,
        )
        for act in acts:
            try:
                await act()
            except TimeoutError as error:
                raise DevherdError("the demo stopped", str(error), "report this with the lines above") from error
            await asyncio.sleep(self._pause)
        self._summarize()

    async def _discover(self) -> None:
        self._act(
            "Discovery and registration",
            "a simulated node with 3 FPGA cards and 6 GPUs, a kubelet, `devherd run`",
        )
        await self._kubelet.start()
        started = await self._testbed.start_herd()
        await self._testbed.until(lambda: len(self._resources()) == 5, "5 resources in the spool", WITHIN_SECONDS)
        names = [resource.name for resource in self._resources()]
        registered = [await self._kubelet.until_registered(name, within=WITHIN_SECONDS) for name in names]
        await asyncio.gather(*(self._kubelet.events.wait("list", name, within=WITHIN_SECONDS) for name in names))
        self._show_resources()
        self._report(
            "every resource is registered", max(event.at for event in registered) - started, "start to all registered"
        )

    async def _allocate(self) -> None:
        self._act("Allocation", f"a pod asks for one {RESOURCE}, another for two {GPU}")
        start = time.monotonic()
        compression = await self._admit(RESOURCE, 1, "compress")
        took = time.monotonic() - start
        gpus = await self._admit(GPU, 2, "train")
        self._say(f"pod compress gets {', '.join(compression.device_ids)}: {', '.join(_nodes(compression))}")
        nodes = {node for device in gpus.device_ids for node in self._kubelet.numa_nodes(gpus.resource, device)}
        self._say(f"pod train gets {', '.join(gpus.device_ids)}, all on NUMA node {', '.join(map(str, sorted(nodes)))}")
        self._report("the container has its device", took, "allocation")

    async def _fail(self) -> None:
        self._act("A device fails", f"{PORT} reports errors")
        await self._timed(
            lambda: faults.inject(self._testbed.node, "fpga-errors", PORT),
            lambda: self._kubelet.until_allocatable(RESOURCE, 0, within=WITHIN_SECONDS),
            f"the kubelet sees {PORT} Unhealthy",
            "port error to Unhealthy at the kubelet (registers are read each second)",
            unhealthy=RESOURCE,
        )

    async def _recover(self) -> None:
        self._act("It recovers", "the errors are cleared; three good polls are asked for, no restart")
        await self._timed(
            lambda: faults.clear(self._testbed.node, "fpga-errors", PORT),
            lambda: self._kubelet.until_allocatable(RESOURCE, 1, within=WITHIN_SECONDS),
            f"the kubelet sees {PORT} Healthy again",
            "cleared to Healthy (three good polls, one a second)",
        )

    async def _lose_a_gpu(self) -> None:
        self._act("A GPU falls off the bus", "the NVIDIA driver prints Xid 79 in the kernel log")
        await self._timed(
            lambda: faults.inject(self._testbed.node, "xid", self._gpu()),
            lambda: self._kubelet.until_allocatable(NVIDIA_GPU, 1, within=WITHIN_SECONDS),
            "the kubelet sees the GPU Unhealthy",
            "Xid 79 to Unhealthy at the kubelet",
            unhealthy=NVIDIA_GPU,
        )

    async def _reset_the_gpu(self) -> None:
        self._act("The GPU is reset", "the driver prints Xid 154: recovery action None; nobody restarts devherd")
        await self._timed(
            lambda: faults.clear(self._testbed.node, "xid", self._gpu()),
            lambda: self._kubelet.until_allocatable(NVIDIA_GPU, 2, within=WITHIN_SECONDS),
            "the kubelet sees the GPU Healthy again",
            "Xid 154 to Healthy at the kubelet",
        )

    def _gpu(self) -> str:
        return self._testbed.node.nvidia.addresses()[0]

    async def _kill(self) -> None:
        child = await self._testbed.child_of(RESOURCE)
        self._act(
            "A child is killed", f"kill -9 {child.pid}, which serves {RESOURCE}; the other resources do not notice"
        )
        mark = self._kubelet.events.mark()
        await self._timed(
            lambda: os.kill(child.pid, signal.SIGKILL),
            lambda: self._registered_again([RESOURCE], mark),
            "a new child is registered on a fresh socket",
            "child killed to registered again",
        )

    async def _restart_kubelet(self) -> None:
        self._act("The kubelet restarts", "it removes every plugin's socket and forgets every registration")
        await self._kubelet.stop()
        mark = self._kubelet.events.mark()
        names = [resource.name for resource in self._resources()]
        start = time.monotonic()
        await self._kubelet.start()
        await self._registered_again(names, mark)
        self._report(
            "every resource is registered again; pods keep their devices",
            time.monotonic() - start,
            "kubelet back to all registered",
        )

    async def _registered_again(self, names: list[str], mark: int) -> None:
        for name in names:
            await self._kubelet.until_registered(name, since=mark, within=WITHIN_SECONDS)

    async def _timed(
        self, do: Callable[[], None], done: Callable[[], Awaitable[object]], text: str, what: str, unhealthy: str = ""
    ) -> None:
        start = time.monotonic()
        do()
        await done()
        seconds = time.monotonic() - start
        if unhealthy:
            text = f"{text}: {', '.join(await self._reasons(unhealthy))}"
        self._report(text, seconds, what)

    async def _admit(self, resource: str, count: int, pod: str) -> Allocation:
        allocation = await self._kubelet.allocate(resource, count, pod=pod)
        if allocation is None:
            raise DevherdError("the demo stopped", f"the kubelet does not know {resource}", "report this")
        return allocation

    def _resources(self) -> list[spool_pb2.Offer]:
        return list(spool.read_or_empty(self._testbed.settings.offers_file, spool_pb2.Offers).offers)

    async def _reasons(self, resource: str) -> list[str]:
        """A resource's reasons. The child's file is written before the offers, so the kubelet may know them first."""

        def offered() -> list[str]:
            offers = (offer for offer in self._resources() if offer.name == resource)
            return [reason for offer in offers for device in offer.devices for reason in device.reasons]

        return await self._testbed.until(offered, f"the reasons of {resource} in the offers", WITHIN_SECONDS)

    def _show_resources(self) -> None:
        for resource in self._resources():
            self._say(f"{resource.name}\n    {amount(len(resource.devices), 'device')} of {resource.vendor}")

    def _act(self, title: str, what: str) -> None:
        self._console.print(Text(f"\n{time.monotonic() - self._started:5.1f} s  {title}", "bold"))
        self._say(what)

    def _say(self, text: str) -> None:
        self._console.print(Padding(Text(text), (0, 0, 0, 9), expand=False))

    def _report(self, text: str, seconds: float, what: str) -> None:
        self._figures.append(Figure(what, seconds))
        line = Text.assemble(("✓ ", "green"), text, (f" ({seconds * 1000:.0f} ms)", "cyan"))
        self._console.print(Padding(line, (0, 0, 0, 7), expand=False))

    def _summarize(self) -> None:
        table = Table(title="Summary", title_justify="left", box=None, padding=(0, 2, 0, 2))
        table.add_column("what")
        table.add_column("took", justify="right")
        for figure in self._figures:
            table.add_row(figure.what, f"{figure.seconds * 1000:.0f} ms")
        self._console.print("")
        self._console.print(table)


def _nodes(allocation: Allocation) -> list[str]:
    return [device.host_path for device in allocation.response.devices]
