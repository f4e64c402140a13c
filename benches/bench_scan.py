"""One scan of FPGA cards, NVIDIA and AMD GPUs: time, system calls; of 1000 generic paths: time; as shipped: CPU time.

The floor reads the same attributes, or looks at the same paths, and does nothing else.
"""

import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import herds
import system_calls
from measure import figure, headline, median_seconds, milliseconds
from one_vendor import settings

from devherd._native import Scanner
from devherd.config.model import Config
from devherd_sim.node.nvidia import NvidiaSpec
from devherd_sim.node.presets import preset
from devherd_sim.node.simulated_node import SimulatedNode
from devherd_sim.node.spec import FpgaSpec, NodeSpec

CARDS = (1, 8, 32)
MANY_CARDS = 1024
RESCANS = 20
GPUS = (8, 16)
PATHS = 1000
AS_SHIPPED: tuple[tuple[str, tuple[int, ...]], ...] = (
    ("fpga", (1, 8)),
    ("intel_gpu", (1, 8, 64)),
    ("rdma", (1, 8, 32)),
    ("xilinx_fpga", (1, 8, 64)),
)
"""Sections of a node's spec, and numbers of cards."""
PEER_MILLISECONDS = 0.63
PEER_SYSTEM_CALLS = 690
# AMD's plugin at its start on a node of that shape: openat, getdents64 and read.
AMD_PEER_SYSTEM_CALLS = 6983 + 2504 + 9949


def main() -> None:
    """Print the figures."""
    headline("scan of FPGA cards (DFL, mode af, one port a card, simulated tree on a disk file system)")
    for cards in CARDS:
        with tempfile.TemporaryDirectory() as directory:
            root = Path(directory) / "node"
            SimulatedNode.create(root, NodeSpec(fpga=[FpgaSpec(cards=cards, numa_nodes=2)]))
            _time(root, "cards", cards)
            calls = _system_calls(root, "intel_fpga", cards)
            if calls is not None:
                compared = f"{calls / PEER_SYSTEM_CALLS:.2f}x the peer's"
                figure(f"{cards} cards, system calls a card", f"{calls:.1f}", "<= 60", compared)
    peer = f"{PEER_MILLISECONDS} ms and {PEER_SYSTEM_CALLS} calls a card"
    print(f"  (the Go peer, as published for another 2-core machine: {peer})")
    with herds.directory() as memory:
        _rescan(SimulatedNode.create(memory / "node", NodeSpec(fpga=[FpgaSpec(cards=MANY_CARDS)])).root)
    headline(
        "scan of NVIDIA GPUs without NVML (4 below each switch, 2 NUMA nodes, simulated tree on a disk file system)"
    )
    for gpus in GPUS:
        with tempfile.TemporaryDirectory() as directory:
            root = Path(directory) / "node"
            gpu = NvidiaSpec(gpus=gpus, numa_nodes=2, gpus_a_switch=4)
            SimulatedNode.create(root, NodeSpec(nvidia=gpu))
            _time(root, "GPUs", gpus, "nvidia")
            calls = _system_calls(root, "nvidia", gpus)
            if calls is not None:
                figure(f"{gpus} GPUs, system calls a GPU", f"{calls:.1f}", "<= 60")
    headline("scan of AMD GPUs (simulated tree on a disk file system)")
    for name in ("amd-8", "amd-8-cpx"):
        with tempfile.TemporaryDirectory() as directory:
            _amd(SimulatedNode.create(Path(directory) / "node", preset(name)).root, name)
    headline("first scan and each further one, CPU time, all vendors on (simulated tree in memory)")
    for section, numbers in AS_SHIPPED:
        for cards in numbers:
            _as_shipped(section, cards)
    headline(f"scan of {PATHS} generic paths (one glob, a file each)")
    with tempfile.TemporaryDirectory() as directory:
        _time_generic(SimulatedNode.create(Path(directory) / "node", preset("generic")).root, "on a disk")
    with herds.directory() as memory:
        _time_generic(SimulatedNode.create(memory / "node", preset("generic")).root, "in memory, as /dev is")


def _as_shipped(section: str, cards: int) -> None:
    """CPU time with every vendor on: the least of several first scans, and of the scans after the third."""
    with herds.directory() as memory:
        root = SimulatedNode.create(memory / "node", NodeSpec.model_validate({section: [{"cards": cards}]})).root
        native_settings = Config(host_root=root).native_json()
        time.sleep(0.1)  # what has just been made is looked at again
        scanners = [Scanner(str(root), native_settings) for _ in range(RESCANS)]
        first = min(_cpu_seconds(scanner.scan) for scanner in scanners)
        scan = scanners[0].scan()
        scanners[0].scan()
        again = min(_cpu_seconds(scanners[0].scan) for _ in range(RESCANS))
        sources = {root / path.lstrip("/") for device in scan.devices for path in device.sources.values()}
        files = [path for path in sources if path.is_file()]
        floor = min(_cpu_seconds(lambda: [_read(path) for path in files]) for _ in range(RESCANS))
        against = f"{first / floor:.2f}x and {again / floor:.2f}x reading its {len(files)} attribute files in Python"
        figure(f"{cards} of {section}", f"{milliseconds(first)}, {milliseconds(again)}", "", against)


def _cpu_seconds(work: Callable[[], object]) -> float:
    begin = time.process_time()
    work()
    return time.process_time() - begin


def _rescan(root: Path) -> None:
    """CPU time, the least of several: reads by other processes do not count."""
    scanner = Scanner(str(root), settings("intel_fpga"))
    assert len(scanner.scan().devices) == MANY_CARDS
    time.sleep(0.1)  # what has just been made is looked at again
    scanner.scan()
    spent = []
    for _ in range(RESCANS):
        begin = time.process_time()
        assert not scanner.scan().changed
        spent.append(time.process_time() - begin)
    figure(f"{MANY_CARDS} cards that are as they were, in memory", milliseconds(min(spent)), "<= 50 ms of CPU")


def _amd(root: Path, name: str) -> None:
    """Only the first scan reads links."""
    scanner = Scanner(str(root), settings("amd"))
    begin = time.perf_counter()
    devices = len(scanner.scan().devices)
    first = time.perf_counter() - begin
    figure(f"{name}, {devices} devices, first scan", milliseconds(first))
    figure(f"{name}, {devices} devices, each further scan", milliseconds(median_seconds(scanner.scan, 100)))
    calls = system_calls.of_scans(root, settings("amd"))
    if calls is not None:
        at_first, further = calls
        share = f"{at_first / AMD_PEER_SYSTEM_CALLS:.2f}x AMD's plugin's at start" if name == "amd-8-cpx" else ""
        figure(f"{name}, system calls of the first scan", f"{at_first}", "", share)
        figure(f"{name}, system calls of each further scan", f"{further:.0f}")


def _time_generic(root: Path, where: str) -> None:
    nodes = root / "dev/many"
    nodes.mkdir()
    for number in range(PATHS):
        (nodes / f"d{number}").touch()
    device = {"name": "example.com/many", "groups": [{"paths": [{"path": "/dev/many/d*"}]}]}
    scanner = Scanner(str(root), settings(generic=[device]))
    assert len(scanner.scan().devices) == PATHS
    took, floor = (
        median_seconds(scanner.scan, 50),
        median_seconds(lambda: [node.stat() for node in nodes.iterdir()], 50),
    )
    figure(f"scan, {where}", milliseconds(took), "", f"{took / floor:.2f}x listing and stat in Python")
    figure(f"health poll, {where}", milliseconds(median_seconds(scanner.poll, 50)))


def _time(root: Path, what: str, count: int, vendor: str = "intel_fpga") -> None:
    scanner = Scanner(str(root), settings(vendor))
    scan = scanner.scan()
    assert len(scan.devices) == count, scan.problems
    files = sorted({root / path.lstrip("/") for device in scan.devices for path in device.sources.values()})
    attributes = [path for path in files if path.is_file()]
    took = median_seconds(scanner.scan, 300)
    floor = median_seconds(lambda: [_read(path) for path in attributes], 300)
    figure(
        f"{count} {what}",
        milliseconds(took),
        "",
        f"{took / floor:.2f}x reading its {len(attributes)} attribute files in Python",
    )


def _read(path: Path) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    content = os.pread(descriptor, 4096, 0)
    os.close(descriptor)
    return content


def _system_calls(root: Path, vendor: str, count: int) -> float | None:
    """System calls per device, or None without strace."""
    calls = system_calls.of_scans(root, settings(vendor))
    if calls is None:
        print("  system calls: not counted, strace is not installed")
    return None if calls is None else calls[1] / count


if __name__ == "__main__":
    main()
