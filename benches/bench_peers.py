"""devherd beside the least that a plugin in Python and in Go can be, and beside the programs that the caller names.

    DEVHERD_BENCH_PLUGINS='generic=/opt/generic-plugin --kubelet {kubelet}; other=…' python bench_peers.py

In a command `{kubelet}` is the kubelet's directory and `{node}` the root of a simulated host. Every
program starts in turn beside a kubelet in Go, a round after the other. Times end when the kubelet has the list.
"""

import asyncio
import os
import shlex
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from herds import TYPES, GoKubelet, beside_go_kubelet, go_program
from measure import figure, headline, megabytes, milliseconds, percentile, use_byte_code
from processes import children, cpu_seconds, memory_of, wake_ups

from devherd_sim.testbed import Testbed

ROUNDS = 5
CALLS = 300
SETTLE_SECONDS = 6.0
IDLE_SECONDS = 15.0
ONE = {"simulated": [{"name": "example.com/a", "count": 1}]}
DEVHERD, GO = "devherd", "Go, bare grpc-go"
PEERS = os.environ.get("DEVHERD_BENCH_PLUGINS", "")

Start = Callable[[Testbed], list[str]]


@dataclass
class Seen:
    """What was measured of one program: seconds, one for each round; the rest once."""

    start: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    allocate: list[float] = field(default_factory=list)
    memory: float = 0.0
    idle: float = 0.0
    woken: float = 0.0


async def main() -> None:
    """Print the figures."""
    use_byte_code()
    everyone = {name: Seen() for name in (DEVHERD, *_programs())}
    first, sixteen, first_sixteen = Seen(), Seen(), Seen()
    for number in range(ROUNDS + 1):
        rests = number == ROUNDS
        for name, command in _programs().items():
            async with beside_go_kubelet("generic", ONE) as (herd, kubelet):
                await _program(command(herd), everyone[name], kubelet, rests=rests)
        for seen, kept, types in (
            (everyone[DEVHERD], True, 1),
            (first, False, 1),
            (sixteen, True, TYPES),
            (first_sixteen, False, TYPES),
        ):
            async with beside_go_kubelet(*(("generic", ONE) if types == 1 else ("fpga-8", None))) as (herd, kubelet):
                await _devherd(herd, kubelet, seen, types, kept=kept, rests=rests and seen is everyone[DEVHERD])
        if number == 0:  # byte code and page cache: not counted
            for seen in (*everyone.values(), first, sixteen, first_sixteen):
                seen.start.clear()
                seen.cpu.clear()
    _print(everyone, first, sixteen, first_sixteen)


def _programs() -> dict[str, Start]:
    bare = str(__file__).replace("bench_peers", "bare_plugin")
    named = dict(each.strip().split("=", 1) for each in PEERS.split(";") if each.strip())
    return {
        "Python, bare grpcio": lambda herd: [sys.executable, bare, str(herd.settings.kubelet_dir), "example.com/bare"],
        GO: lambda herd: [str(go_program("plugin")), str(herd.settings.kubelet_dir), "example.com/bare"],
    } | {
        name: lambda herd, command=command: shlex.split(
            command.format(kubelet=herd.settings.kubelet_dir, node=herd.settings.host_root)
        )
        for name, command in named.items()
    }


async def _program(command: list[str], seen: Seen, kubelet: GoKubelet, *, rests: bool) -> None:
    began = time.monotonic()
    process = await asyncio.create_subprocess_exec(*command, start_new_session=True, stderr=subprocess.DEVNULL)
    try:
        await _measure(process.pid, began, seen, kubelet, 1, rests=rests)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


async def _devherd(herd: Testbed, kubelet: GoKubelet, seen: Seen, types: int, *, kept: bool, rests: bool) -> None:
    """`kept`: the start that is measured has the configuration of an earlier one."""
    state = f"--state-dir={herd.directory}/state"
    if kept:
        await herd.start_herd(state)
        await kubelet.lists(types)
        await herd.stop_herd()
        kubelet.devices.clear()
    began = await herd.start_herd(state)
    assert herd.herd is not None
    await _measure(herd.herd.pid, began, seen, kubelet, types, rests=rests)


async def _measure(pid: int, began: float, seen: Seen, kubelet: GoKubelet, types: int, *, rests: bool) -> None:
    await kubelet.lists(types)
    seen.start.append(time.monotonic() - began)
    seen.cpu.append(sum(map(cpu_seconds, _with_children(pid))))
    if rests:
        await asyncio.sleep(SETTLE_SECONDS)
        for _ in range(CALLS):
            seen.allocate += await kubelet.allocate()
        seen.memory = sum(each.total for each in memory_of(_with_children(pid)))
        before = {each: (cpu_seconds(each), wake_ups(each)) for each in _with_children(pid)}
        await asyncio.sleep(IDLE_SECONDS)
        lasting = before.keys() & _with_children(pid)
        seen.idle = sum(cpu_seconds(each) - before[each][0] for each in lasting) / IDLE_SECONDS
        seen.woken = sum(wake_ups(each) - before[each][1] for each in lasting) / IDLE_SECONDS


def _with_children(pid: int) -> list[int]:
    return [pid, *(below for child in children(pid) for below in _with_children(child))]


def _print(everyone: dict[str, Seen], first: Seen, sixteen: Seen, first_sixteen: Seen) -> None:
    headline(f"beside peers, one resource; load {os.getloadavg()[0]:.1f}")
    starts = {
        f"{DEVHERD}, configuration kept": (everyone[DEVHERD], "<= 220 ms"),
        f"{DEVHERD}, first start": (first, ""),
        f"{DEVHERD}, {TYPES} types, kept": (sixteen, "<= 520 ms"),
        f"{DEVHERD}, {TYPES} types, first start": (first_sixteen, ""),
    } | {name: (seen, "") for name, seen in everyone.items() if name != DEVHERD}
    go = everyone[GO]
    for name, (seen, aim) in starts.items():
        _line(f"exec to the list: {name}", seen.start, go.start, milliseconds, aim)
    for name, (seen, _) in starts.items():
        aim = "<= 120 ms" if seen is everyone[DEVHERD] else ""
        _line(f"CPU time until then: {name}", seen.cpu, go.cpu, milliseconds, aim)
    for name, seen in everyone.items():
        p50, p99, of_go = (
            percentile(*one) for one in ((seen.allocate, 0.5), (seen.allocate, 0.99), (go.allocate, 0.5))
        )
        notes = f"p99 {milliseconds(p99)}; {p50 / of_go:.2f}x Go"
        figure(f"Allocate p50, called from Go: {name}", milliseconds(p50), "", notes)
    for name, seen in everyone.items():
        aim = "<= 65 MB" if name == DEVHERD else ""
        figure(f"PSS: {name}", megabytes(seen.memory), aim, f"{seen.memory / go.memory:.2f}x Go")
    for name, seen in everyone.items():
        aim = "<= 0.20%" if name == DEVHERD else ""
        against = f"{seen.woken:.1f} wake-ups/s; {seen.idle / max(go.idle, 1e-6):.1f}x Go"
        figure(f"idle: {name}", f"{seen.idle:.3%}", aim, against)


def _line(name: str, ours: list[float], go: list[float], shown: Callable[[float], str], aim: str) -> None:
    middle = statistics.median(ours)
    extent = f"{shown(min(ours))} to {shown(max(ours))} in {len(ours)}"
    figure(name, shown(middle), aim, f"{extent}; {middle / statistics.median(go):.2f}x Go")


if __name__ == "__main__":
    asyncio.run(main())
