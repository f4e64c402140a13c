"""One scan: of 1, 8 and 32 FPGA cards, time and system calls; of 1000 generic paths, time.

The floor reads the same attributes, or looks at the same paths, and does nothing else.
"""

import json
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

import system_calls
from measure import figure, headline, median_seconds, milliseconds
from one_vendor import only

from devherd._native import Scanner
from devherd.sim.node.presets import preset
from devherd.sim.node.simulated_node import SimulatedNode
from devherd.sim.node.spec import FpgaSpec, NodeSpec

CARDS = (1, 8, 32)
PATHS = 1000
PEER_MILLISECONDS = 0.63
PEER_SYSTEM_CALLS = 690


def main() -> None:
    """Print the figures."""
    headline("scan of FPGA cards (DFL, mode af, one port a card, simulated tree on a disk file system)")
    for cards in CARDS:
        with tempfile.TemporaryDirectory() as directory:
            root = Path(directory) / "node"
            SimulatedNode.create(root, NodeSpec(fpga=[FpgaSpec(cards=cards, numa_nodes=2)]))
            _time(root, cards)
            _system_calls(root, cards)
    peer = f"{PEER_MILLISECONDS} ms and {PEER_SYSTEM_CALLS} calls a card"
    print(f"  (the Go peer, as published for another 2-core machine: {peer})")
    headline(f"scan of {PATHS} generic paths (one glob, a file each)")
    with tempfile.TemporaryDirectory() as directory:
        _time_generic(SimulatedNode.create(Path(directory) / "node", preset("generic")).root)


def _settings(generic: Sequence[object] = ()) -> str:
    vendors = only(None) if generic else only("intel_fpga", mode="af")
    return json.dumps({"probe_timeout": 2.0, "vendors": vendors, "generic": generic})


def _time_generic(root: Path) -> None:
    nodes = root / "dev/many"
    nodes.mkdir()
    for number in range(PATHS):
        (nodes / f"d{number}").touch()
    device = {"name": "example.com/many", "groups": [{"paths": [{"path": "/dev/many/d*"}]}]}
    scanner = Scanner(str(root), _settings([device]))
    assert len(scanner.scan().devices) == PATHS
    took, floor = (
        median_seconds(scanner.scan, 50),
        median_seconds(lambda: [node.stat() for node in nodes.iterdir()], 50),
    )
    figure("scan", milliseconds(took), "", f"{took / floor:.2f}x listing and stat in Python")
    figure("health poll", milliseconds(median_seconds(scanner.poll, 50)))


def _time(root: Path, cards: int) -> None:
    scanner = Scanner(str(root), _settings())
    scan = scanner.scan()
    assert len(scan.devices) == cards, scan.problems
    files = sorted({root / path.lstrip("/") for device in scan.devices for path in device.sources.values()})
    attributes = [path for path in files if path.is_file()]
    took = median_seconds(scanner.scan, 300)
    floor = median_seconds(lambda: [_read(path) for path in attributes], 300)
    figure(
        f"{cards} cards",
        milliseconds(took),
        "",
        f"{took / floor:.2f}x reading its {len(attributes)} attribute files in Python",
    )


def _read(path: Path) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    content = os.pread(descriptor, 4096, 0)
    os.close(descriptor)
    return content


def _system_calls(root: Path, cards: int) -> None:
    calls = system_calls.of_a_scan(root, _settings())
    if calls is None:
        print("  system calls: not counted, strace is not installed")
        return
    a_card = calls / cards
    figure(
        f"{cards} cards, system calls a card", f"{a_card:.1f}", "<= 60", f"{a_card / PEER_SYSTEM_CALLS:.2f}x the peer's"
    )


if __name__ == "__main__":
    main()
