"""Whatever happens to a file of a card: the scan ends, no other card is touched, and repair brings the card back."""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from answering import core_settings

from devherd._native import Device, Scanner
from devherd_sim.node.entry import Entry
from devherd_sim.node.presets import preset
from devherd_sim.node.spec import entries
from devherd_sim.node.tree import put, write_tree


def _nothing(_: Path) -> None:
    """The file stays away."""


DAMAGES: dict[str, Callable[[Path], object]] = {
    "missing": _nothing,
    "empty": Path.touch,
    "noise": lambda place: place.write_bytes(b"\xff\x00: 7:\nx"),
    "huge": lambda place: place.write_bytes(b"f" * 5000),
    "directory": Path.mkdir,
    "fifo": os.mkfifo,
    "loop": lambda place: place.symlink_to(place.name),
}


def of_card(spec_entries: list[Entry], address: str) -> Iterator[Entry]:
    """What is in the directory of a card's functions, and the links to these by which they are found."""
    card = address.rpartition(".")[0]
    return (entry for entry in spec_entries if f"/{card}." in entry.path)


def others(devices: list[Device], address: str) -> list[Device]:
    """The devices of other cards."""
    return [device for device in devices if device.card != address]


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize(
    ("name", "vendor", "address"),
    [
        ("intel-gpu-2", "intel_gpu", "0000:02:00.0"),
        ("rdma-2", "rdma", "0000:81:00.0"),
        ("xilinx-2", "xilinx_fpga", "0000:02:00.1"),
    ],
)
def test_damage_to_one_card_is_that_cards_alone(
    name: str, vendor: str, address: str, damage: str, tmp_path: Path
) -> None:
    """Every file, link and number of the card in turn."""
    made = entries(preset(name))
    write_tree(made, tmp_path)
    scanner = Scanner(str(tmp_path), core_settings(tmp_path))
    before = scanner.scan()
    siblings = others(before.devices, address)
    assert siblings
    assert siblings != before.devices
    chosen = list(of_card(made, address))
    assert len(chosen) > 20
    for entry in chosen:
        place = tmp_path / entry.path
        if not place.is_symlink() and not place.exists():
            continue  # damage to a function's link hides nothing below its own directory
        place.unlink()
        DAMAGES[damage](place)
        after = scanner.scan()
        assert others(after.devices, address) == siblings, f"{entry.path} {damage}"
        scanner.poll()
        shutil.rmtree(place) if place.is_dir() and not place.is_symlink() else place.unlink(missing_ok=True)
        put(entry, tmp_path)
    assert scanner.scan().devices == before.devices
