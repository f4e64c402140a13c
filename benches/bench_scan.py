"""One scan: of FPGA cards, of NVIDIA and of AMD GPUs, time and system calls; of 1000 generic paths, time.

The floor reads the same attributes, or looks at the same paths, and does nothing else.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from measure import figure, headline, median_seconds, milliseconds

from devherd._native import Scanner
from devherd.config import Vendors
from devherd.sim.node.nvidia import NvidiaSpec
from devherd.sim.node.presets import preset
from devherd.sim.node.simulated_node import SimulatedNode
from devherd.sim.node.spec import FpgaSpec, NodeSpec

CARDS = (1, 8, 32)
GPUS = (8, 16)
PATHS = 1000
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
    headline(f"scan of {PATHS} generic paths (one glob, a file each)")
    with tempfile.TemporaryDirectory() as directory:
        _time_generic(SimulatedNode.create(Path(directory) / "node", preset("generic")).root)


def _settings(vendor: str = "", generic: Sequence[object] = ()) -> str:
    """One vendor and no other."""
    vendors = {name: {"enabled": name == vendor} for name in Vendors.model_fields}
    return json.dumps({"probe_timeout": 2.0, "vendors": vendors, "generic": generic})


def _amd(root: Path, name: str) -> None:
    """Links are read by the first scan alone."""
    scanner = Scanner(str(root), _settings("amd"))
    begin = time.perf_counter()
    devices = len(scanner.scan().devices)
    first = time.perf_counter() - begin
    figure(f"{name}, {devices} devices, first scan", milliseconds(first))
    figure(f"{name}, {devices} devices, each further scan", milliseconds(median_seconds(scanner.scan, 100)))
    strace = shutil.which("strace")
    if strace is not None:
        none, one, eleven = (_count(strace, root, "amd", scans) for scans in (0, 1, 11))
        share = f"{(one - none) / AMD_PEER_SYSTEM_CALLS:.2f}x AMD's plugin's at start" if name == "amd-8-cpx" else ""
        figure(f"{name}, system calls of the first scan", f"{one - none}", "", share)
        figure(f"{name}, system calls of each further scan", f"{(eleven - one) / 10:.0f}")


def _time_generic(root: Path) -> None:
    nodes = root / "dev/many"
    nodes.mkdir()
    for number in range(PATHS):
        (nodes / f"d{number}").touch()
    device = {"name": "example.com/many", "groups": [{"paths": [{"path": "/dev/many/d*"}]}]}
    scanner = Scanner(str(root), _settings(generic=[device]))
    assert len(scanner.scan().devices) == PATHS
    took, floor = (
        median_seconds(scanner.scan, 50),
        median_seconds(lambda: [node.stat() for node in nodes.iterdir()], 50),
    )
    figure("scan", milliseconds(took), "", f"{took / floor:.2f}x listing and stat in Python")
    figure("health poll", milliseconds(median_seconds(scanner.poll, 50)))


def _time(root: Path, what: str, count: int, vendor: str = "intel_fpga") -> None:
    scanner = Scanner(str(root), _settings(vendor))
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
    """System calls for each device, or None where nothing counts them."""
    strace = shutil.which("strace")
    if strace is None:
        print("  system calls: not counted, strace is not installed")
        return None
    few, many = (_count(strace, root, vendor, scans) for scans in (1, 11))
    return (many - few) / 10 / count


def _count(strace: str, root: Path, vendor: str, scans: int) -> int:
    with tempfile.NamedTemporaryFile("r") as summary:
        command = [strace, "-f", "-c", "-o", summary.name, sys.executable, __file__, str(root), vendor, str(scans)]
        subprocess.run(command, check=True)
        total = re.search(r"^\s*100\.00\s+\S+\s+\S+\s+(\d+)", summary.read(), re.MULTILINE)
        assert total is not None
        return int(total[1])


if __name__ == "__main__":
    if len(sys.argv) == 4:
        scanner = Scanner(sys.argv[1], _settings(sys.argv[2]))
        for _ in range(int(sys.argv[3])):
            scanner.scan()
    else:
        main()
