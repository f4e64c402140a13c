"""devherd beside the least that a plugin in Python and in Go can be, and beside the programs that the caller names.

    DEVHERD_BENCH_PLUGINS='generic=/opt/generic --dir {kubelet}; intel intel-gpu-2=/opt/on {node} {kubelet} /opt/intel'

A name may be followed by the simulated node (`devherd sim node --list`) and the file of a configuration with which
devherd is measured beside the program. `{kubelet}` is the kubelet directory, `{node}` the root of that node.
Every program starts in turn beside a kubelet in Go, a round after the other. Times end when the kubelet has the list.

    python bench_peers.py ROUNDS

measures starts alone, so many of each.
"""

import asyncio
import json
import os
import shlex
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from herds import TYPES, GoKubelet, beside_go_kubelet, go_program
from measure import figure, headline, megabytes, milliseconds, percentile, use_byte_code
from processes import children, cpu_seconds, memory_of, wake_ups

from devherd_sim.testbed import Testbed

ROUNDS = 5
CALLS, CALLS_A_SIZE = 300, 30
SIZES = range(1, 9)
SETTLE_SECONDS = 35.0
"""devherd looks more often for ten seconds after an event, and asks the kubelet once within thirty."""
IDLE_SECONDS = 30.0
"""A scan period of devherd on a host that reports changes."""
PEERS = os.environ.get("DEVHERD_BENCH_PLUGINS", "")
BARE = Path(__file__).with_name("bare_plugin.py")

Start = Callable[[Testbed], list[str]]


def _simulated(types: int) -> dict[str, Any]:
    return {"simulated": [{"name": name, "count": 1} for name in _names(types)]}


def _names(types: int) -> list[str]:
    return [f"example.com/type-{number:03}" for number in range(types)]


@dataclass
class Subject:
    """A program, on what it starts, and what was measured of it: seconds, one for each round; the rest once."""

    name: str
    command: Start | None = None
    """None: devherd."""
    node: str = "generic"
    config: dict[str, Any] | None = field(default_factory=lambda: _simulated(1))
    types: int = 1
    start_aim: str = ""
    cpu_aim: str = ""
    start: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    allocate: list[float] = field(default_factory=list)
    prefer: dict[int, float] = field(default_factory=dict)
    memory: float = 0.0
    idle: float = 0.0
    woken: float = 0.0

    async def measure(self, *, rests: bool) -> None:
        """Start once, as one round; with `rests` calls, memory and rest are measured, too."""
        async with beside_go_kubelet(self.node, self.config) as (herd, kubelet):
            if self.command is None:
                began = await herd.start_herd()
                assert herd.herd is not None
                await self._started(herd.herd.pid, began, kubelet, rests=rests)
                return
            command, quiet = self.command(herd), subprocess.DEVNULL
            began = time.monotonic()
            process = await asyncio.create_subprocess_exec(*command, start_new_session=True, stdout=quiet, stderr=quiet)
            try:
                await self._started(process.pid, began, kubelet, rests=rests)
            finally:
                os.killpg(process.pid, signal.SIGKILL)
                await process.wait()

    async def _started(self, pid: int, began: float, kubelet: GoKubelet, *, rests: bool) -> None:
        await kubelet.lists(self.types)
        self.start.append(time.monotonic() - began)
        self.cpu.append(sum(map(cpu_seconds, _with_children(pid))))
        if not rests:
            return
        for _ in range(CALLS // self.types):
            self.allocate += await kubelet.allocate()
        sizes = [size for size in SIZES if size <= next(iter(kubelet.devices.values()))]
        prefer = {size: [await kubelet.prefer(size) for _ in range(CALLS_A_SIZE)] for size in sizes}
        self.prefer = {size: median for size, times in prefer.items() if (median := statistics.median(times))}
        await asyncio.sleep(SETTLE_SECONDS)
        self.memory = sum(each.total for each in memory_of(_with_children(pid)))
        before = {each: (cpu_seconds(each), wake_ups(each)) for each in _with_children(pid)}
        await asyncio.sleep(IDLE_SECONDS)
        lasting = before.keys() & _with_children(pid)
        self.idle = sum(cpu_seconds(each) - before[each][0] for each in lasting) / IDLE_SECONDS
        self.woken = sum(wake_ups(each) - before[each][1] for each in lasting) / IDLE_SECONDS


async def main(rounds: int, *, rests: bool) -> None:
    """Print the figures."""
    use_byte_code()
    one = Subject("devherd", start_aim="<= 320 ms", cpu_aim="<= 220 ms")
    bare, go = Subject("Python, bare grpcio", _bare(1)), Subject("Go, bare grpc-go", _go)
    await _compare("one resource type", [one, bare, go], rounds, rests=rests)

    all_types = Subject("devherd", None, "fpga-8", None, TYPES, start_aim="<= 700 ms")
    forked = Subject(f"{TYPES} bare servers forked, Python", _bare(TYPES), types=TYPES)
    await _compare(f"{TYPES} resource types", [all_types, forked], rounds, rests=rests)

    for name, theirs in _programs():
        ours = Subject("devherd", None, theirs.node, theirs.config)
        await _compare(f"beside {name}, node {theirs.node}", [ours, theirs], rounds, rests=rests)


async def _compare(title: str, subjects: list[Subject], rounds: int, *, rests: bool) -> None:
    """Print the figures of each, and how many times those of the last they are.

    A first round is for byte code and page cache, and does not count.
    """
    for number in range(rounds + 1):
        for subject in subjects:
            await subject.measure(rests=rests and number == rounds)
            if number == 0:
                subject.start.clear()
                subject.cpu.clear()
    headline(f"{title}; load {os.getloadavg()[0]:.1f}")
    _print_starts(subjects, subjects[-1])
    if rests:
        _print_rest(subjects, subjects[-1])


def _bare(types: int) -> Start:
    return lambda herd: [sys.executable, str(BARE), str(herd.settings.kubelet_dir), *_names(types)]


def _go(herd: Testbed) -> list[str]:
    return [str(go_program("plugin")), str(herd.settings.kubelet_dir), "example.com/bare"]


def _programs() -> Iterable[tuple[str, Subject]]:
    for text in filter(None, map(str.strip, PEERS.split(";"))):
        key, command = text.split("=", 1)
        name, node, config = [*key.split(), "", ""][:3]
        of_devherd = json.loads(Path(config).read_text()) if config else {} if node else _simulated(1)
        yield name, Subject(name, _named(command), node or "generic", of_devherd)


def _named(command: str) -> Start:
    return lambda herd: [
        word.replace("{kubelet}", str(herd.settings.kubelet_dir)).replace("{node}", str(herd.settings.host_root))
        for word in shlex.split(command)
    ]


def _with_children(pid: int) -> list[int]:
    return [pid, *(below for child in children(pid) for below in _with_children(child))]


def _print_starts(subjects: Iterable[Subject], peer: Subject) -> None:
    for each in subjects:
        _line(f"exec to the list: {each.name}", each.start, peer.start, each.start_aim)
    for each in subjects:
        _line(f"CPU time until then: {each.name}", each.cpu, peer.cpu, each.cpu_aim)


def _print_rest(subjects: Iterable[Subject], peer: Subject) -> None:
    for each in subjects:
        p50, p99, of_peer = (
            percentile(*one) for one in ((each.allocate, 0.5), (each.allocate, 0.99), (peer.allocate, 0.5))
        )
        notes = f"p99 {milliseconds(p99)}; {p50 / of_peer:.2f}x {peer.name}"
        figure(f"Allocate p50, called from Go: {each.name}", milliseconds(p50), "", notes)
    for each in subjects:
        if each.prefer:
            notes = ", ".join(f"{size}: {milliseconds(seconds)}" for size, seconds in each.prefer.items())
            slowest = milliseconds(max(each.prefer.values()))
            figure(f"preferred allocation, slowest size: {each.name}", slowest, "", notes)
    for each in subjects:
        figure(f"PSS: {each.name}", megabytes(each.memory), "", f"{each.memory / peer.memory:.2f}x {peer.name}")
    for each in subjects:
        against = f"{each.woken:.1f} wake-ups/s; {each.idle / max(peer.idle, 1e-6):.2f}x {peer.name}"
        figure(f"idle: {each.name}", f"{each.idle:.3%}", "", against)


def _line(name: str, ours: list[float], peers: list[float], aim: str) -> None:
    middle = statistics.median(ours)
    extent = f"{milliseconds(min(ours))} to {milliseconds(max(ours))} in {len(ours)}"
    figure(name, milliseconds(middle), aim, f"{extent}; {middle / statistics.median(peers):.2f}x the peer")


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS, rests=len(sys.argv) == 1))
