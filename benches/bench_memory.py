"""Memory of nodes with one and with three vendors and with 24 types, process by process, against floors and peers.

Proportional set size within a herd: a page that n of its processes have counts 1/n for each, whatever else runs on the
machine. Own: the pages that no other process of the herd has. The kubelet is a program in Go. Figures are taken after
one Allocate of each resource and a scrape of /metrics. A table shows where the memory of one vendor is. The part of
files depends on the page cache: a page that is in it is mapped with its neighbours, so that just installed libraries
count up to 8 MB more than after a boot.
"""

import asyncio
import contextlib
import os
import signal
import statistics
import subprocess
import sys
import urllib.request
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import bare_plugin
from herds import TYPES, beside_go_kubelet
from measure import figure, headline, machine, megabytes, use_byte_code
from processes import Memory, by_mapping, children, memory_of, threads

from devherd_sim.node.presets import preset
from devherd_sim.node.spec import NodeSpec
from devherd_sim.testbed import Testbed

SETTLE_SECONDS = 3.0
FLOOR = Path(__file__).with_name("floor.py")
ONE_VENDOR = "amd-8"
THREE_VENDORS = ("amd-8", "rdma-2", "xilinx-2")
_KINDS = {
    "": "heap, arenas, stacks",
    "cygrpc": "gRPC's library",
    "libpython": "the interpreter",
    "python": "the interpreter",
    "_native": "devherd's Rust",
    "_message": "protobuf's library",
}
"""What is mapped, by the beginning of a file's name."""
_OTHERS = "other libraries and files"


async def main() -> None:
    """Print the figures."""
    print(f"{machine()}, load {os.getloadavg()[0]:.1f}")
    use_byte_code()
    three = {
        key: value for name in THREE_VENDORS for key, value in preset(name).model_dump(exclude_defaults=True).items()
    }
    async with beside_go_kubelet() as (herd, kubelet):  # not counted: it may have to compile
        await herd.start_herd()
        await kubelet.lists(TYPES)
    await _node("a node with one vendor, one resource", preset(ONE_VENDOR), {}, 1, "<= 78 MB")
    await _node("a node with three vendors, four resources", NodeSpec.model_validate(three), {}, 4)
    await _node(f"{TYPES} resource types", preset("fpga-8"), None, TYPES)
    await _bare()


async def _node(title: str, node: NodeSpec, config: dict[str, Any] | None, types: int, aim: str = "") -> None:
    headline(f"memory of {title}")
    async with beside_go_kubelet(node, config) as (herd, kubelet):
        await herd.start_herd()
        await kubelet.lists(types)
        await herd.child("exporter")
        await herd.until(herd.settings.served_file.exists, "it listens")
        await kubelet.allocate()
        await asyncio.to_thread(_scrape, herd)
        await asyncio.sleep(SETTLE_SECONDS)
        processes = _processes(herd)
        _whole("the herd after an Allocate of each resource and a scrape", processes.values(), aim)
        _print_each(processes)
        if types == 1:
            _print_table(processes)
    with _asleep(len(processes)) as pids:
        _whole(f"  floor: {len(pids)} processes with the same modules, asleep", pids)


async def _bare() -> None:
    headline("memory of the least that a plugin in Python can be")
    names = [f"example.com/bare-{number}" for number in range(TYPES)]
    async with beside_go_kubelet() as (herd, kubelet):
        with bare_plugin.started(herd.settings.kubelet_dir, *names) as parent:
            await kubelet.lists(TYPES)
            await kubelet.allocate()
            await asyncio.sleep(SETTLE_SECONDS)
            _, *forks = memory_of([parent.pid, *children(parent.pid)])
    _median(f"bare grpc.aio server, a fork of a fresh interpreter, {TYPES} of them", forks)
    async with beside_go_kubelet() as (herd, kubelet):
        with contextlib.ExitStack() as stack:
            started = [stack.enter_context(bare_plugin.started(herd.settings.kubelet_dir, name)) for name in names]
            await kubelet.lists(TYPES)
            await kubelet.allocate()
            await asyncio.sleep(SETTLE_SECONDS)
            _whole(f"{TYPES} bare grpc.aio servers by exec", [process.pid for process in started])
            _whole("one alone", [started[0].pid])


def _processes(herd: Testbed) -> dict[str, int]:
    assert herd.herd is not None
    return {"supervisor": herd.herd.pid} | {name: child.pid for name, child in herd.children().items()}


def _scrape(herd: Testbed) -> None:
    with urllib.request.urlopen(f"http://{herd.settings.listen}/metrics", timeout=30) as answer:
        answer.read()


@contextlib.contextmanager
def _asleep(processes: int) -> Iterator[list[int]]:
    command = [sys.executable, str(FLOOR), str(processes)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as parent:
        try:
            assert parent.stdout is not None
            parent.stdout.readline()
            yield [parent.pid, *children(parent.pid)]
        finally:
            os.killpg(parent.pid, signal.SIGKILL)


def _whole(name: str, pids: Iterable[int], aim: str = "") -> None:
    memory = memory_of(pids)
    figure(name, megabytes(sum(one.total for one in memory)), aim, f"{_parts(memory)}; {len(memory)} processes")


def _print_each(processes: dict[str, int]) -> None:
    by_name = dict(zip(processes, memory_of(processes.values()), strict=True))
    resources = [name for name in processes if name.startswith("resource:")]
    for name, memory in by_name.items():
        if name not in resources:
            _print(name, memory, f"{threads(processes[name])} threads")
    _median(f"resource child ({threads(processes[resources[0]])} threads)", [by_name[name] for name in resources])


def _median(name: str, each: list[Memory]) -> None:
    parts = [
        statistics.median(part) for part in zip(*((one.anonymous, one.file, one.own) for one in each), strict=True)
    ]
    _print(name, Memory(*parts))


def _print(name: str, memory: Memory, more: str = "") -> None:
    notes = (_parts([memory]), f"own {megabytes(memory.own)}", more)
    figure(f"  {name}", megabytes(memory.total), "", "; ".join(note for note in notes if note))


def _parts(memory: Iterable[Memory]) -> str:
    memory = list(memory)
    anonymous, file = sum(one.anonymous for one in memory), sum(one.file for one in memory)
    return f"{megabytes(anonymous)} anonymous, {megabytes(file)} of files"


def _print_table(processes: dict[str, int]) -> None:
    """Print what is mapped by process, the largest first: pages that others have, too, by their part, and own ones."""
    columns = []
    for sizes in by_mapping(processes.values()):
        columns.append(Counter[str]())
        for (file, is_own), size in sizes.items():
            kind = next((kind for begin, kind in _KINDS.items() if begin and file.startswith(begin)), _OTHERS)
            columns[-1][f"{kind if file else _KINDS['']}, {'own' if is_own else 'shared'}"] += size
    print(f"  {'MB':<42}{'all':>8}" + "".join(f"{name.partition(':')[0]:>12}" for name in processes))
    for kind, size in sum(columns, Counter[str]()).most_common():
        print(f"  {kind:<42}{size / 1e6:>8.2f}" + "".join(f"{column[kind] / 1e6:>12.2f}" for column in columns))


if __name__ == "__main__":
    asyncio.run(main())
