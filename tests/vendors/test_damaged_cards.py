"""Whatever happens to a file of a card: the scan ends, no other card is touched, and repair brings the card back."""

import os
import shutil
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path

import pytest
from answering import core_settings, poller_of

from devherd._native import Device, Scan, Scanner
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
    "dangling": lambda place: place.symlink_to("/does/not/exist"),
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
        poller_of(scanner, after).poll()
        shutil.rmtree(place) if place.is_dir() and not place.is_symlink() else place.unlink(missing_ok=True)
        put(entry, tmp_path)
    assert scanner.scan().devices == before.devices


@pytest.mark.parametrize(
    ("name", "card"),
    [
        ("intel-gpu-2", "0000:02:00"),
        ("rdma-2", "0000:81:00"),
        ("xilinx-2", "0000:02:00"),
        ("xilinx-u30", "0000:01:00"),
        ("fpga-1", "0000:01:00"),
        ("fpga-opae-1", "0000:01:00"),
        ("amd-1", "0000:01:00"),
        ("nvidia-1", "0000:01:00"),
    ],
)
def test_no_damage_loses_a_device_without_a_word(name: str, card: str, tmp_path: Path) -> None:
    """Others D6: by a first scan, which knows no devices. What is removed whole is no damage: its devices are gone."""
    root, away = tmp_path / "node", tmp_path / "away"
    write_tree(entries(preset(name)), root)
    healthy = first_scan(root)
    assert healthy.devices
    assert healthy.problems == []
    silent = []
    for place, damage in product(places_of(root, card), DAMAGES):
        if damage in REMOVALS and (place.is_symlink() or place.is_dir()):
            continue
        place.rename(away)
        DAMAGES[damage](place)
        found = first_scan(root)
        if not (found.problems or found.unseen or found.driverless) and len(found.devices) < len(healthy.devices):
            silent.append((str(place.relative_to(root)), damage))
        shutil.rmtree(place) if place.is_dir() and not place.is_symlink() else place.unlink(missing_ok=True)
        away.rename(place)
    assert silent == []


REMOVALS = ("missing", "directory")
"""Damages that remove a directory's content, or a link."""


def places_of(root: Path, card: str) -> list[Path]:
    """Files, links and directories below the card's functions, and the links to these from elsewhere."""
    places = [place for directory in ("sys", "proc") for place in (root / directory).rglob("*")]
    return [place for place in places if f"/{card}." in str(place.resolve() if place.is_symlink() else place)]


def first_scan(root: Path) -> Scan:
    return Scanner(str(root), core_settings(root)).scan()
