"""Time until the kubelet knows: after its own restart, after a child's death, after a device failed.

Each time ends when the kubelet has the devices, a moment after Register was answered. The kubelet is the embedded one,
one thread of Python in this process: its own CPU time is part of every figure, and shown.
"""

import asyncio
import os
import signal
import time
from dataclasses import dataclass, field

import bare_plugin
from herds import SIMULATED, TYPES, all_types, small_testbed
from measure import headline, ratio, timing, use_byte_code

from devherd_sim.node import faults
from devherd_sim.testbed import Testbed

ROUNDS = 7
KILLS = SIMULATED[:2]
PORTS = ("dfl-port.0", "dfl-port.1")
DOWN_SECONDS = 1.0


@dataclass
class Times:
    """Seconds, one for each repeat."""

    floor: list[float] = field(default_factory=list)
    restart: list[float] = field(default_factory=list)
    restart_kubelet: list[float] = field(default_factory=list)
    back: list[float] = field(default_factory=list)
    kill: list[float] = field(default_factory=list)
    node: list[float] = field(default_factory=list)


async def main() -> None:
    """Print the figures."""
    headline(f"registration of {TYPES} resource types")
    use_byte_code()
    await one_round(Times())  # byte code and page cache
    times = Times()
    for _ in range(ROUNDS):
        await one_round(times)
    timing("floor: exec of a bare grpcio plugin, one resource", times.floor)
    timing("kubelet restarted at once, to all registered", times.restart, "<= 100 ms", _over(times.restart, times))
    timing("  the kubelet's own CPU time in it", times.restart_kubelet)
    timing(
        f"kubelet back after {DOWN_SECONDS:.0f} s, to all registered", times.back, "<= 100 ms", _over(times.back, times)
    )
    timing("child SIGKILL to registered", times.kill, "<= 150 ms", _over(times.kill, times))
    timing("node removed to the new list at the kubelet", times.node, "<= 50 ms")


async def one_round(times: Times) -> None:
    """Everything once, on a fresh node."""
    async with small_testbed() as herd:
        times.floor.append(await _exec_floor(herd))
        mark = herd.kubelet.events.mark()
        await herd.start_herd()
        await all_types(herd, "list", mark)
        await asyncio.sleep(1)
        await _restart_kubelet(herd, times)
        await asyncio.sleep(1)
        times.back.append(await _kubelet_back(herd))
        times.kill += [await _kill(herd, name) for name in KILLS]
        await asyncio.sleep(0.5)
        times.node += [await _remove_node(herd, port) for port in PORTS]


async def _exec_floor(herd: Testbed) -> float:
    mark, began = herd.kubelet.events.mark(), time.monotonic()
    with bare_plugin.started(herd.settings.kubelet_dir, "example.com/bare"):
        return (await herd.kubelet.events.wait("list", "example.com/bare", since=mark)).at - began


async def _restart_kubelet(herd: Testbed, times: Times) -> None:
    mark = herd.kubelet.events.mark()
    await herd.kubelet.restart()
    cpu, began = time.process_time(), herd.kubelet.events.since(mark, "started")[0].at
    times.restart.append(await all_types(herd, "list", mark) - began)
    times.restart_kubelet.append(time.process_time() - cpu)


async def _kubelet_back(herd: Testbed) -> float:
    await herd.kubelet.stop()
    await asyncio.sleep(DOWN_SECONDS)
    mark = herd.kubelet.events.mark()
    await herd.kubelet.start()
    began = herd.kubelet.events.since(mark, "started")[0].at
    return await all_types(herd, "list", mark) - began


async def _kill(herd: Testbed, resource: str) -> float:
    child = await herd.child_of(resource)
    mark, began = herd.kubelet.events.mark(), time.monotonic()
    os.kill(child.pid, signal.SIGKILL)
    return (await herd.kubelet.events.wait("list", resource, since=mark)).at - began


async def _remove_node(herd: Testbed, port: str) -> float:
    mark, began = herd.kubelet.events.mark(), time.monotonic()
    faults.inject(herd.node, "node", port)
    return (await herd.kubelet.events.wait("list", since=mark)).at - began


def _over(seconds: list[float], times: Times) -> str:
    return f"{ratio(seconds, times.floor)} the floor"


if __name__ == "__main__":
    asyncio.run(main())
