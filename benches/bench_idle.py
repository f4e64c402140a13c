"""The cost of an idle herd of 64 FPGA ports: CPU time and wake-ups of each process."""

import asyncio
from dataclasses import dataclass

import bare_plugin
from herds import small_testbed
from measure import figure, headline, use_byte_code
from processes import cpu_seconds, wake_ups

from devherd_sim.testbed import Testbed

SETTLE_SECONDS = 3.0
SECONDS = 20.0
BARE = "one bare grpcio plugin"


async def main() -> None:
    """Print the figures."""
    headline(f"{SECONDS:.0f} idle seconds with 64 devices (preset fpga-dense: 32 cards of 2 ports)")
    use_byte_code()
    async with small_testbed("fpga-dense", {}) as herd:
        with bare_plugin.started(herd.settings.kubelet_dir, "example.com/bare") as peer:
            await herd.kubelet.events.wait("list", "example.com/bare")
            await herd.start_herd()
            await herd.kubelet.events.until(lambda: _devices(herd) == 64, within=30, what="64 devices")
            await asyncio.sleep(SETTLE_SECONDS)
            _print(await _watch(_processes(herd) | {BARE: peer.pid}))


def _devices(herd: Testbed) -> int:
    return sum(herd.kubelet.allocatable(name) for name in herd.kubelet.resources() if name.startswith("fpga."))


def _processes(herd: Testbed) -> dict[str, int]:
    assert herd.herd is not None
    return {"supervisor": herd.herd.pid} | {name: child.pid for name, child in herd.children().items()}


@dataclass(frozen=True)
class Rate:
    """CPU time and wake-ups of a process per second."""

    cpu: float
    woken: float


async def _watch(pids: dict[str, int]) -> dict[str, Rate]:
    before = {name: Rate(cpu_seconds(pid), wake_ups(pid)) for name, pid in pids.items()}
    await asyncio.sleep(SECONDS)
    after = {name: Rate(cpu_seconds(pid), wake_ups(pid)) for name, pid in pids.items()}
    return {
        name: Rate((now.cpu - before[name].cpu) / SECONDS, (now.woken - before[name].woken) / SECONDS)
        for name, now in after.items()
    }


def _print(rates: dict[str, Rate]) -> None:
    peer = rates.pop(BARE)
    cpu, woken = sum(rate.cpu for rate in rates.values()), sum(rate.woken for rate in rates.values())
    figure(
        "the whole herd", f"{cpu:.2%}", "<= 0.50% of a core", f"{woken:.1f} wake-ups/s; {cpu / peer.cpu:.1f}x {BARE}"
    )
    for name, rate in sorted(rates.items(), key=lambda named: -named[1].cpu):
        figure(f"  {name[:50]}", f"{rate.cpu:.3%}", "", f"{rate.woken:.1f} wake-ups/s")
    figure(f"  peer: {BARE}", f"{peer.cpu:.3%}", "", f"{peer.woken:.1f} wake-ups/s")


if __name__ == "__main__":
    asyncio.run(main())
