"""Memory of a herd of 16 types, child by child, against bare plugins; and of nodes with one and with three vendors.

Proportional set size: pages that n processes share count 1/n for each. Private: pages that nobody else has. Herds and
peers never run at the same time, so none lends pages to another; this process maps the same libraries and takes its
small share from all alike. `--mappings` prints what the private memory of each kind of process is.
"""

import asyncio
import contextlib
import statistics
import sys
from pathlib import Path

import bare_plugin
from herds import TYPES, all_types, small_testbed
from measure import figure, headline, megabytes, use_byte_code
from processes import children, own_bytes, own_bytes_by_mapping, pss_bytes, threads

from devherd_sim.node.presets import preset
from devherd_sim.node.spec import NodeSpec
from devherd_sim.testbed import Testbed

SETTLE_SECONDS = 3.0
BARE_HERD = Path(__file__).with_name("bare_herd.py")
ONE_VENDOR = "amd-8"
THREE_VENDORS = ("amd-8", "rdma-2", "xilinx-2")
_MAPPINGS = "--mappings" in sys.argv
_LARGEST = 8


async def main() -> None:
    """Print the figures."""
    headline(f"memory with {TYPES} resource types")
    use_byte_code()
    async with small_testbed() as herd:
        peers, forked = await _peers(herd), await _forked(herd)
    async with small_testbed() as herd:
        herd.command = (sys.executable, str(BARE_HERD))
        floor = statistics.median(map(own_bytes, await _resources(herd, TYPES)))
    async with small_testbed() as herd:
        _print(herd, await _resources(herd, TYPES), floor)
        figure("floor: bare grpcio plugin, forked, PSS", megabytes(statistics.median(forked)))
        peer = megabytes(statistics.median(peers))
        figure("peer: bare grpcio plugin by exec, PSS", peer, "", f"{TYPES} of them: {megabytes(sum(peers))}")
    await _small("one vendor, one resource", preset(ONE_VENDOR), 1, "<= 45 MB")
    three = {
        key: value for name in THREE_VENDORS for key, value in preset(name).model_dump(exclude_defaults=True).items()
    }
    await _small("three vendors", NodeSpec.model_validate(three), 4, "<= 39 to 84 MB, three plugins in Go")


async def _peers(herd: Testbed) -> list[int]:
    """The PSS of each of as many bare plugins."""
    mark, names = herd.kubelet.events.mark(), [f"example.com/bare-{number}" for number in range(TYPES)]
    with contextlib.ExitStack() as stack:
        processes = [stack.enter_context(bare_plugin.started(herd.settings.kubelet_dir, name)) for name in names]
        await all_types(herd, "list", mark)
        await asyncio.sleep(SETTLE_SECONDS)
        return [pss_bytes(process.pid) for process in processes]


async def _forked(herd: Testbed) -> list[int]:
    """The PSS of each of as many bare plugins that share what was imported before the fork."""
    mark, names = herd.kubelet.events.mark(), [f"example.com/bare-{number}" for number in range(TYPES)]
    with bare_plugin.started(herd.settings.kubelet_dir, *names) as parent:
        await all_types(herd, "list", mark)
        await asyncio.sleep(SETTLE_SECONDS)
        return [pss_bytes(pid) for pid in children(parent.pid)]


async def _resources(herd: Testbed, types: int) -> list[int]:
    """The processes of the resources, once the kubelet has all of them and they rest."""
    mark = herd.kubelet.events.mark()
    await herd.start_herd()
    await all_types(herd, "list", mark, types)
    await asyncio.sleep(SETTLE_SECONDS)
    found = [child.pid for name, child in herd.children().items() if name.startswith("resource:")]
    if _MAPPINGS:
        _print_mappings(f"{Path(herd.command[-1]).stem}'s resource child", found[0])
    return found


def _print(herd: Testbed, resources: list[int], floor: float) -> None:
    shares, private = [pss_bytes(pid) for pid in resources], statistics.median(map(own_bytes, resources))
    extent = f"{megabytes(min(shares))} to {megabytes(max(shares))}"
    figure("resource child, private", megabytes(private), "<= 1.3x", f"{private / floor:.2f}x the floor")
    figure("  floor: bare grpc.aio server as its supervisor's child", megabytes(floor))
    figure("  its PSS", megabytes(statistics.median(shares)), "", extent)
    figure("  its threads", str(statistics.median(threads(pid) for pid in resources)))
    _print_others(herd)


def _print_others(herd: Testbed) -> None:
    assert herd.herd is not None
    pids = {"supervisor": herd.herd.pid} | {name: child.pid for name, child in herd.children().items()}
    aims = {"scanner": "<= 10 MB", "exporter": "<= 9 MB"}
    for name, pid in pids.items():
        if not name.startswith("resource:"):
            own = f"private {megabytes(own_bytes(pid))}, {threads(pid)} threads"
            figure(f"{name}, PSS", megabytes(pss_bytes(pid)), aims.get(name, ""), own)
            if _MAPPINGS:
                _print_mappings(name, pid)
    figure("the whole herd, PSS", megabytes(sum(map(pss_bytes, pids.values()))), "", f"{len(pids)} processes")


async def _small(title: str, node: NodeSpec, types: int, aim: str) -> None:
    headline(f"memory of a node with {title}")
    async with small_testbed(node, {}) as herd:
        resources = await _resources(herd, types)
        figure("aim for the whole herd, PSS", aim)
        figure("resource child, PSS", megabytes(statistics.median(map(pss_bytes, resources))))
        _print_others(herd)


def _print_mappings(name: str, pid: int) -> None:
    print(f"  private memory of {name}, by mapping:")
    by_mapping = sorted(own_bytes_by_mapping(pid).items(), key=lambda one: -one[1])
    for mapping, size in by_mapping[:_LARGEST]:
        print(f"    {size / 1e6:6.2f} MB  {mapping}")
    print(f"    {sum(size for _, size in by_mapping[_LARGEST:]) / 1e6:6.2f} MB  {len(by_mapping[_LARGEST:])} others")


if __name__ == "__main__":
    asyncio.run(main())
