"""devherd beside the least that a plugin in Python and in Go can be, and beside the programs that the caller names.

    DEVHERD_BENCH_PLUGINS='generic=/opt/generic --dir {kubelet}; intel intel-gpu-2=/opt/on {node} {kubelet} /opt/intel'

A name may be followed by the simulated node (`devherd sim node --list`) and the file of a configuration with which
devherd is measured beside the program. `{kubelet}` is the kubelet directory, `{node}` the root of that node.
Every program starts in turn beside a kubelet in Go, a round after the other. Times end when the kubelet has the list.
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

ROUNDS, ROUNDS_OF_MANY = 5, 2
MANY = 200
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
    rests: bool = True
    """Calls, memory and rest are measured, too."""
    rounds: int = ROUNDS
    start_aim: str = ""
    start: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    allocate: list[float] = field(default_factory=list)
    prefer: dict[int, float] = field(default_factory=dict)
    memory: float = 0.0
    idle: float = 0.0
    woken: float = 0.0

    async def measure(self, *, last: bool) -> None:
        """Start once, as one round."""
        async with beside_go_kubelet(self.node, self.config) as (herd, kubelet):
            if self.command is None:
                await self._devherd(herd, kubelet, last=last)
                return
            command, quiet = self.command(herd), subprocess.DEVNULL
            began = time.monotonic()
            process = await asyncio.create_subprocess_exec(*command, start_new_session=True, stdout=quiet, stderr=quiet)
            try:
                await self._started(process.pid, began, kubelet, last=last)
            finally:
                os.killpg(process.pid, signal.SIGKILL)
                await process.wait()

    async def _devherd(self, herd: Testbed, kubelet: GoKubelet, *, last: bool) -> None:
        began = await herd.start_herd()
        assert herd.herd is not None
        await self._started(herd.herd.pid, began, kubelet, last=last)

    async def _started(self, pid: int, began: float, kubelet: GoKubelet, *, last: bool) -> None:
        await kubelet.lists(self.types)
        self.start.append(time.monotonic() - began)
        self.cpu.append(sum(map(cpu_seconds, _with_children(pid))))
        if not (last and self.rests):
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


async def main() -> None:
    """Print the figures."""
    use_byte_code()
    one, go = Subject("devherd", start_aim="<= 220 ms"), Subject("Go, bare grpc-go", _go)
    alone = [one, Subject("Python, bare grpcio", _bare(1)), go]
    starts = [
        Subject(f"devherd, {TYPES} types", None, "fpga-8", None, TYPES, rests=False, start_aim="<= 520 ms"),
    ]
    await _in_turn([*alone, *starts])
    headline(f"beside peers, one resource; load {os.getloadavg()[0]:.1f}")
    _print_starts([*alone, *starts], go)
    _print_rest(alone, go, megabytes_aim="<= 65 MB", idle_aim="<= 0.20%")

    bare = Subject(f"{MANY} bare servers forked, Python", _bare(MANY), types=MANY, rounds=ROUNDS_OF_MANY)
    many = Subject("devherd", None, "generic", _simulated(MANY), MANY, rounds=ROUNDS_OF_MANY, start_aim="<= 4 s")
    await _in_turn([many, bare])
    headline(f"{MANY} resource types; load {os.getloadavg()[0]:.1f}")
    _print_starts([many, bare], bare)
    _print_rest([many, bare], bare, idle_aim=f"<= {1.2 * bare.idle:.2%}")

    for name, vendors in _programs():
        ours = Subject("devherd", None, vendors.node, vendors.config)
        await _in_turn([ours, vendors])
        headline(f"beside {name}, node {vendors.node}; load {os.getloadavg()[0]:.1f}")
        _print_starts([ours, vendors], vendors)
        _print_rest([ours, vendors], vendors)


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


async def _in_turn(subjects: Iterable[Subject]) -> None:
    """A first round is for byte code and page cache, and does not count."""
    for number in range(ROUNDS + 1):
        for subject in subjects:
            if number <= subject.rounds:
                await subject.measure(last=number == subject.rounds)
            if number == 0:
                subject.start.clear()
                subject.cpu.clear()


def _with_children(pid: int) -> list[int]:
    return [pid, *(below for child in children(pid) for below in _with_children(child))]


def _print_starts(subjects: Iterable[Subject], peer: Subject) -> None:
    for each in subjects:
        _line(f"exec to the list: {each.name}", each.start, peer.start, each.start_aim)
    for each in subjects:
        _line(f"CPU time until then: {each.name}", each.cpu, peer.cpu, "<= 120 ms" if "220" in each.start_aim else "")


def _print_rest(subjects: Iterable[Subject], peer: Subject, *, megabytes_aim: str = "", idle_aim: str = "") -> None:
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
        aim = megabytes_aim if each.command is None else ""
        figure(f"PSS: {each.name}", megabytes(each.memory), aim, f"{each.memory / peer.memory:.2f}x {peer.name}")
    for each in subjects:
        aim = idle_aim if each.command is None else ""
        against = f"{each.woken:.1f} wake-ups/s; {each.idle / max(peer.idle, 1e-6):.2f}x {peer.name}"
        figure(f"idle: {each.name}", f"{each.idle:.3%}", aim, against)


def _line(name: str, ours: list[float], peers: list[float], aim: str) -> None:
    middle = statistics.median(ours)
    extent = f"{milliseconds(min(ours))} to {milliseconds(max(ours))} in {len(ours)}"
    figure(name, milliseconds(middle), aim, f"{extent}; {middle / statistics.median(peers):.2f}x the peer")


if __name__ == "__main__":
    asyncio.run(main())
