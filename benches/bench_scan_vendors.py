"""One scan of 1, 8 and 64 cards of a vendor: time and system calls, beside the vendor's own plugin where measured."""

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import system_calls
from measure import figure, headline, median_seconds, milliseconds
from one_vendor import settings

from devherd._native import Scanner
from devherd.sim.node.simulated_node import SimulatedNode
from devherd.sim.node.spec import NodeSpec


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


def _measure(subject: Subject, cards: int, root: Path) -> None:
    SimulatedNode.create(root, NodeSpec.model_validate({subject.vendor: [{"cards": cards}]}))
    told = settings(subject.vendor)
    scanner = Scanner(str(root), told)
    assert len(scanner.scan().devices) == cards
    took = median_seconds(scanner.scan, 200)
    peer = subject.peer.get(cards)
    against = f"{took * 1000 / peer:.2f}x the Go peer's {peer} ms, measured on another 2-core machine" if peer else ""
    figure(f"{cards} cards", milliseconds(took), "", against)
    calls = system_calls.of_scans(root, told)
    figure(f"{cards} cards, system calls a card", "no strace" if calls is None else f"{calls[1] / cards:.1f}")


if __name__ == "__main__":
    main()
