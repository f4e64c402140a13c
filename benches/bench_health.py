"""What looking at health costs: a regular poll of FPGA cards and of many nodes, and a look at everything.

Simulated trees are plain files: each read is two system calls there, and one on sysfs, whose objects say when they go.
"""

import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import system_calls
from measure import figure, headline, milliseconds, use_byte_code

from devherd._native import Scanner
from devherd.config import Config, resolve
from devherd_sim.node.presets import preset
from devherd_sim.node.simulated_node import SimulatedNode
from devherd_sim.node.spec import FpgaSpec, NodeSpec

CARDS = (64, 1024)
NODES = 10_000
MOST_TRACED = 64
"""Devices: strace makes system calls slow."""
POLLS = 60
"""A multiple of what is between two looks at anything."""


def main() -> None:
    """Print the figures."""
    headline(f"health: CPU time of {POLLS} regular polls, one a second, and of a look at everything")
    use_byte_code()
    for cards in CARDS:
        with tempfile.TemporaryDirectory() as directory:
            root = SimulatedNode.create(Path(directory) / "node", NodeSpec(fpga=[FpgaSpec(cards=cards)])).root
            _measure(f"{cards} FPGA cards", root, cards, {"intel_fpga": {"enabled": True}})
    with tempfile.TemporaryDirectory() as directory:
        root = SimulatedNode.create(Path(directory) / "node", preset("generic")).root
        (root / "dev/many").mkdir(parents=True)
        for number in range(NODES):
            (root / f"dev/many/d{number}").touch()
        groups = [{"name": "example.com/many", "groups": [{"paths": [{"path": "/dev/many/*"}]}]}]
        _measure(f"{NODES} nodes", root, NODES, {}, groups)


def _measure(what: str, root: Path, devices: int, vendors: dict[str, object], generic: Sequence[object] = ()) -> None:
    config = Config.model_validate({"host_root": root, "vendors": vendors, "generic": generic})
    settings = resolve(config).native_json()
    scanner = Scanner(str(root), settings)
    assert len(scanner.scan().devices) >= devices
    scanner.poll()
    regular = _cpu_seconds(scanner.poll_due)
    figure(f"{what}: a regular poll", milliseconds(regular), "<= 10 ms", f"{regular:.2%} of a core at one a second")
    figure("  a look at everything", milliseconds(_cpu_seconds(scanner.poll)))
    calls = system_calls.of_polls(root, settings, POLLS) if devices <= MOST_TRACED else None
    if calls is not None:
        figure("  system calls of a regular poll, a device", f"{calls / devices:.2f}")


def _cpu_seconds(work: Callable[[], object]) -> float:
    before = time.process_time()
    for _ in range(POLLS):
        work()
    return (time.process_time() - before) / POLLS


if __name__ == "__main__":
    main()
