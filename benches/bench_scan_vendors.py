"""One scan of 1, 8 and 64 cards of a vendor, and of a node with all vendors' cards: time and system calls.

Beside the vendor's own plugin where it was measured, and beside each vendor alone.
"""

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import system_calls
from measure import figure, headline, median_seconds, milliseconds
from one_vendor import settings

from devherd._native import Scanner
from devherd.config.model import Config
from devherd.config.vendors import Vendors
from devherd_sim.node.presets import preset
from devherd_sim.node.simulated_node import SimulatedNode
from devherd_sim.node.spec import NodeSpec


@dataclass(frozen=True)
class Subject:
    """A vendor as configuration and node specs call it, and its plugin's milliseconds by number of cards."""

    vendor: str
    cards: tuple[int, ...] = (1, 8, 64)
    peer: Mapping[int, float] = field(default_factory=dict)


SUBJECTS = (
    Subject("intel_gpu", peer={1: 0.32, 8: 2.3, 64: 25.9}),
    Subject("xilinx_fpga"),
    Subject("rdma", cards=(1, 8, 32)),
)


def main() -> None:
    """Print the figures."""
    for subject in SUBJECTS:
        headline(f"scan of {subject.vendor} (one device a card, simulated tree on a disk file system)")
        for cards in subject.cards:
            with tempfile.TemporaryDirectory() as directory:
                _measure(subject, cards, Path(directory) / "node")
    headline("scan of the node with everything (simulated tree on a disk file system)")
    with tempfile.TemporaryDirectory() as directory:
        _measure_everything(SimulatedNode.create(Path(directory) / "node", preset("everything")).root)


def _measure(subject: Subject, cards: int, root: Path) -> None:
    SimulatedNode.create(root, NodeSpec.model_validate({subject.vendor: [{"cards": cards}]}))
    native_settings = settings(subject.vendor)
    scanner = Scanner(str(root), native_settings)
    assert len(scanner.scan().devices) == cards
    took = median_seconds(scanner.scan, 200)
    peer = subject.peer.get(cards)
    against = f"{took * 1000 / peer:.2f}x the Go peer's {peer} ms, measured on another 2-core machine" if peer else ""
    figure(f"{cards} cards", milliseconds(took), "", against)
    calls = system_calls.of_scans(root, native_settings)
    figure(f"{cards} cards, system calls a card", "no strace" if calls is None else f"{calls[1] / cards:.1f}")


def _measure_everything(root: Path) -> None:
    native_settings = Config(host_root=root).native_json()
    scanner = Scanner(str(root), native_settings)
    devices = len(scanner.scan().devices)
    alone = sum(median_seconds(Scanner(str(root), settings(vendor)).scan, 100) for vendor in Vendors.model_fields)
    took = median_seconds(scanner.scan, 100)
    figure(
        f"{devices} devices of {len(Vendors.model_fields)} vendors",
        milliseconds(took),
        "",
        f"{took / alone:.2f}x each vendor alone, summed",
    )
    figure("health poll", milliseconds(median_seconds(scanner.poll, 100)))
    calls = system_calls.of_scans(root, native_settings)
    if calls is not None:
        figure("system calls of the first scan", f"{calls[0]}")
        figure("system calls a device of each further scan", f"{calls[1] / devices:.1f}")


if __name__ == "__main__":
    main()
