"""The cost of an idle herd: CPU time, wake-ups and system calls of each process a second, and two floors.

python bench_idle.py [SECONDS]

CPU time and wake-ups are those of SECONDS, system calls those of as many seconds after them: by default a scan period
of a host each, since fewer may have no scan. The question to the kubelet, every five minutes, is mostly not among them.
"""

import asyncio
import contextlib
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import bare_plugin
import system_calls
from herds import EIGHT_CARDS, MANY_PORTS, MOST_CARDS, small_testbed
from measure import figure, headline, use_byte_code
from processes import cpu_seconds, wake_ups

from devherd_sim.testbed import Testbed

SETTLE_SECONDS = 35.0
"""Until a resource process has looked whether the kubelet has its devices; it asks only after a change from then on."""
SCAN_SECONDS = 30.0
BARE = "floor: a bare grpc.aio server with an open stream"
SLEEPER = "floor: Python that sleeps a second at a time"
_SLEEP = [sys.executable, "-c", "import time\nwhile True: time.sleep(1)"]


NODES = ((EIGHT_CARDS, "<= 0.25%"), (MANY_PORTS, "<= 0.40%"), (MOST_CARDS, "<= 0.60%"))
"""The nodes, and the most that a herd is to take of a core."""


async def main(seconds: float) -> None:
    """Print the figures."""
    use_byte_code()
    for node, aim in NODES:
        headline(f"{seconds:.0f} idle seconds: {node.title}")
        async with small_testbed(node.spec, {}) as herd:
            with bare_plugin.started(herd.settings.kubelet_dir, "example.com/bare") as bare, _sleeper() as sleeper:
                await herd.kubelet.events.wait("list", "example.com/bare")
                await herd.start_herd()
                await _until_offered(herd, node.devices)
                await herd.child("exporter")
                await asyncio.sleep(SETTLE_SECONDS)
                pids = _processes(herd) | {BARE: bare.pid, SLEEPER: sleeper.pid}
                _print(await _watch(pids, seconds), await _traced(pids, seconds), aim)


@contextlib.contextmanager
def _sleeper() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(_SLEEP)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


async def _until_offered(herd: Testbed, devices: int) -> None:
    def are_offered() -> bool:
        names = [name for name in herd.kubelet.resources() if name.startswith("fpga.")]
        return sum(map(herd.kubelet.allocatable, names)) == devices

    await herd.kubelet.events.until(are_offered, within=30, what=f"{devices} devices")


def _processes(herd: Testbed) -> dict[str, int]:
    assert herd.herd is not None
    return {"supervisor": herd.herd.pid} | {name: child.pid for name, child in herd.children().items()}


@dataclass(frozen=True)
class Rate:
    """CPU time and wake-ups of a process per second."""

    cpu: float
    woken: float


async def _watch(pids: dict[str, int], seconds: float) -> dict[str, Rate]:
    before = {name: Rate(cpu_seconds(pid), wake_ups(pid)) for name, pid in pids.items()}
    await asyncio.sleep(seconds)
    after = {name: Rate(cpu_seconds(pid), wake_ups(pid)) for name, pid in pids.items()}
    return {
        name: Rate((now.cpu - before[name].cpu) / seconds, (now.woken - before[name].woken) / seconds)
        for name, now in after.items()
    }


async def _traced(pids: dict[str, int], seconds: float) -> dict[str, float] | None:
    """System calls of each process a second, by strace, which makes them slower; None without it."""
    strace = shutil.which("strace")
    if strace is None:
        return None
    with tempfile.TemporaryDirectory() as directory:
        summaries = {name: Path(directory, str(pid)) for name, pid in pids.items()}
        tracers = [
            await asyncio.create_subprocess_exec(
                strace, "-f", "-c", "-o", summaries[name], "-p", str(pid), stderr=subprocess.DEVNULL
            )
            for name, pid in pids.items()
        ]
        await asyncio.sleep(seconds)
        for tracer in tracers:
            tracer.send_signal(signal.SIGINT)
            await tracer.wait()
        return {name: system_calls.total(summary.read_text()) / seconds for name, summary in summaries.items()}


def _print(rates: dict[str, Rate], calls: dict[str, float] | None, aim: str) -> None:
    herd = {name: rate for name, rate in rates.items() if name not in (BARE, SLEEPER)}
    cpu, woken = sum(rate.cpu for rate in herd.values()), sum(rate.woken for rate in herd.values())
    times = f"{cpu / rates[BARE].cpu:.1f}x a bare server" if rates[BARE].cpu else ""
    all_calls = None if calls is None else sum(calls[name] for name in herd)
    figure("the whole herd", f"{cpu:.2%}", f"{aim} of a core", f"{_rates(woken, all_calls)}; {times}")
    for name in [*sorted(herd, key=lambda name: -herd[name].cpu), BARE, SLEEPER]:
        figure(f"  {name[:50]}", f"{rates[name].cpu:.3%}", "", _rates(rates[name].woken, calls and calls[name]))


def _rates(woken: float, calls: float | None) -> str:
    traced = "system calls NOT COUNTED: needs strace" if calls is None else f"{calls:6.1f} system calls/s"
    return f"{woken:5.1f} wake-ups/s, {traced}"


if __name__ == "__main__":
    asyncio.run(main(float(sys.argv[1]) if len(sys.argv) > 1 else SCAN_SECONDS))
