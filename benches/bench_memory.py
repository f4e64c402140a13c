"""Memory of a herd of 16 types, child by child, against 16 bare plugins started by exec, and 16 forked from one.

Proportional set size: pages that n processes share count 1/n for each. Herd and peers never run at the same time, so
neither lends pages to the other; this process maps the same libraries and takes its small share from all alike.
"""

import asyncio
import contextlib
import statistics

import bare_plugin
from herds import TYPES, all_types, stage
from measure import figure, headline, megabytes, use_byte_code
from processes import children, own_bytes, pss_bytes, threads

from devherd.sim.stage import Stage

SETTLE_SECONDS = 3.0


async def main() -> None:
    """Print the figures."""
    headline(f"memory with {TYPES} resource types")
    use_byte_code()
    async with stage() as herd:
        peers, forked = await _peers(herd), await _forked(herd)
        await herd.start_herd()
        await all_types(herd, "list", herd.kubelet.events.mark())
        await asyncio.sleep(SETTLE_SECONDS)
        _print(herd, peers, statistics.median(forked))


async def _peers(herd: Stage) -> list[int]:
    """The PSS of each of as many bare plugins."""
    mark, names = herd.kubelet.events.mark(), [f"example.com/bare-{number}" for number in range(TYPES)]
    with contextlib.ExitStack() as stack:
        processes = [stack.enter_context(bare_plugin.started(herd.settings.kubelet_dir, name)) for name in names]
        await all_types(herd, "list", mark)
        await asyncio.sleep(SETTLE_SECONDS)
        return [pss_bytes(process.pid) for process in processes]


async def _forked(herd: Stage) -> list[int]:
    """The PSS of each of as many bare plugins that share what was imported before the fork."""
    mark, names = herd.kubelet.events.mark(), [f"example.com/bare-{number}" for number in range(TYPES)]
    with bare_plugin.started(herd.settings.kubelet_dir, *names) as parent:
        await all_types(herd, "list", mark)
        await asyncio.sleep(SETTLE_SECONDS)
        return [pss_bytes(pid) for pid in children(parent.pid)]


def _print(herd: Stage, peers: list[int], forked: float) -> None:
    assert herd.herd is not None
    pids = {"supervisor": herd.herd.pid} | {name: child.pid for name, child in herd.children().items()}
    resources = [pid for name, pid in pids.items() if name.startswith("resource:")]
    shares, peer = [pss_bytes(pid) for pid in resources], statistics.median(peers)
    share = statistics.median(shares)
    extent = f"{megabytes(min(shares))} to {megabytes(max(shares))}"
    against = f"{share / forked:.2f}x a forked bare plugin, {share / peer:.2f}x one by exec"
    figure("resource child, PSS", megabytes(share), "<= 7 MB", f"{extent}; {against}")
    figure("  of which nobody else has", megabytes(statistics.median(own_bytes(pid) for pid in resources)))
    figure("  its threads", str(statistics.median(threads(pid) for pid in resources)))
    for name in ("supervisor", "scanner", "exporter"):
        figure(f"{name}, PSS", megabytes(pss_bytes(pids[name])), "", f"{threads(pids[name])} threads")
    whole = sum(pss_bytes(pid) for pid in pids.values())
    figure("the whole herd", megabytes(whole), "", f"{whole / sum(peers):.2f}x {TYPES} bare plugins")
    figure("floor: bare grpcio plugin, forked, PSS", megabytes(forked))
    figure("peer: bare grpcio plugin by exec, PSS", megabytes(peer), "", f"{TYPES} of them: {megabytes(sum(peers))}")


if __name__ == "__main__":
    asyncio.run(main())
