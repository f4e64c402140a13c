"""Host trees: text, entries and files say the same."""

import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from devherd.config.resolved import MARK
from devherd.errors import UsageError
from devherd_sim.node.entry import DeviceNode, Directory, Entry, Fifo, File, Symlink
from devherd_sim.node.text import parse, render
from devherd_sim.node.tree import read_tree, write_tree

TREE = """
# a card
sys/class/fpga_region/
sys/class/fpga_region/region0 -> ../../devices/pci0000:80/region0
sys/devices/pci0000:80/region0/afu_id = d8424dc4a4a3c413f89e433683f9040b
sys/devices/pci0000:80/region0/vendor == 0x8086
sys/devices/pci0000:80/region0/uevent =
    DRIVER=dfl-pci

    PCI_CLASS=120000
sys/devices/pci0000:80/region0/blank =
sys/devices/pci0000:80/region0/empty ==
sys/devices/pci0000:80/region0/huge binary 0xff*10000 0x0a
sys/devices/pci0000:80/region0/stuck fifo
"sys/odd name" = x
dev/dfl-port.0 char 244:0
dev/loop0 block 7:0
"""

NAMES = st.text(st.characters(codec="utf-8", exclude_characters="/\0"), min_size=1, max_size=12).filter(
    lambda name: name not in (".", "..", MARK)
)
PATHS = st.lists(NAMES, min_size=1, max_size=4).map("/".join)
ENTRIES = st.one_of(
    st.builds(Directory, PATHS),
    st.builds(File, PATHS, st.one_of(st.binary(max_size=60), st.text(max_size=60).map(str.encode))),
    st.builds(Symlink, PATHS, NAMES),
    st.builds(DeviceNode, PATHS, st.sampled_from(["char", "block"]), st.integers(0, 4095), st.integers(0, 255)),
    st.builds(Fifo, PATHS),
)


def test_each_kind_of_line_is_its_entry():
    """Every form of the format, once."""
    card = "sys/devices/pci0000:80/region0"
    assert parse(TREE) == [
        Directory("sys/class/fpga_region"),
        Symlink("sys/class/fpga_region/region0", "../../devices/pci0000:80/region0"),
        File(f"{card}/afu_id", b"d8424dc4a4a3c413f89e433683f9040b\n"),
        File(f"{card}/vendor", b"0x8086"),
        File(f"{card}/uevent", b"DRIVER=dfl-pci\n\nPCI_CLASS=120000\n"),
        File(f"{card}/blank", b"\n"),
        File(f"{card}/empty", b""),
        File(f"{card}/huge", b"\xff" * 10000 + b"\n"),
        Fifo(f"{card}/stuck"),
        File("sys/odd name", b"x\n"),
        DeviceNode("dev/dfl-port.0", "char", 244, 0),
        DeviceNode("dev/loop0", "block", 7, 0),
    ]


@given(st.lists(ENTRIES, max_size=8))
@settings(deadline=None)
def test_the_text_of_any_entries_is_parsed_back_to_them(entries: list[Entry]):
    """Rendering loses nothing: odd names, odd bytes, several lines."""
    assert parse(render(entries)) == entries


@given(st.lists(ENTRIES, max_size=8, unique_by=lambda entry: entry.path.split("/")[0]))
@settings(deadline=None, max_examples=60)
def test_a_tree_on_disk_reads_back_as_it_was_written(entries: list[Entry]):
    """Entries that do not lie below one another come back from the disk, sorted (device nodes where permitted)."""
    if os.geteuid() != 0:
        entries = [entry for entry in entries if not isinstance(entry, DeviceNode)]
    with tempfile.TemporaryDirectory() as root:
        write_tree(entries, Path(root))
        assert sorted(read_tree(Path(root)), key=lambda entry: entry.path) == sorted(
            entries, key=lambda entry: entry.path
        )


def test_a_written_tree_is_marked_as_simulated(tmp_path: Path):
    """The scan trusts plain files in place of device nodes only where this mark is."""
    write_tree("sys/", tmp_path / "host")
    assert (tmp_path / "host" / ".devherd-simulated-node").exists()


def test_a_file_written_again_keeps_its_inode(tmp_path: Path):
    """A poller that holds an attribute open sees its new value, as it would in sysfs."""
    write_tree("sys/errors = 0x0123", tmp_path)
    with (tmp_path / "sys/errors").open() as held:
        write_tree("sys/errors = 0x1", tmp_path)
        assert held.read() == "0x1\n"


def test_a_later_line_replaces_an_earlier_one(tmp_path: Path):
    """A test takes a tree and appends what is to differ."""
    write_tree("sys/a = 1\nsys/b = 2\nsys/a -> b", tmp_path)
    assert (tmp_path / "sys/a").read_text() == "2\n"


@pytest.mark.parametrize(
    "line",
    [
        "/sys/a = 1",
        "sys/../../a = 1",
        "sys//a = 1",
        "sys/a",
        "sys/a =1",
        "sys/a ~ 1",
        "sys/a ->",
        "sys/a char",
        "sys/a char 244",
        "sys/a char a:b",
        "sys/a binary ff",
        "sys/a binary 0xf",
        "sys/a binary 0xff*99999999999",
        '"sys/a = 1',
        "    indented",
        "/",
        ". = 1",
    ],
)
def test_a_line_that_is_no_entry_is_named_with_its_number(line: str):
    """The message holds the number of the line, the line and the cure."""
    with pytest.raises(UsageError, match="line 3 of the tree") as refused:
        parse(f"# comment\nsys/\n{line}\n")
    assert line.strip() in str(refused.value)


def test_no_entry_lands_outside_the_tree(tmp_path: Path):
    """A link that leads out is made, but nothing is written through it."""
    (tmp_path / "other").mkdir()
    with pytest.raises(UsageError, match="leads out"):
        write_tree("sys/out -> ../../other\nsys/out/passwd = x", tmp_path / "host")
    assert list((tmp_path / "other").iterdir()) == []


def test_no_entry_lands_outside_by_a_link_that_replaces_another(tmp_path: Path):
    """What was made through the first link shows nothing about the second."""
    (tmp_path / "other").mkdir()
    lines = ["sys/a/x = 1", "sys/way -> a", "sys/way/x = 2", "sys/way -> ../../other", "sys/way/passwd = x"]
    with pytest.raises(UsageError, match="leads out of"):
        write_tree("\n".join(lines), tmp_path / "host")
    assert list((tmp_path / "other").iterdir()) == []


@pytest.mark.parametrize("tree", ["a = 1\na/b = 2", "a/b = 1\na = 2", "a -> b\nb -> a\na/c = 1"])
def test_a_path_of_two_kinds_is_refused(tree: str, tmp_path: Path):
    """A file cannot be a directory, too, and a loop of links leads nowhere."""
    with pytest.raises(UsageError, match="of the tree"):
        write_tree(tree, tmp_path)


def test_a_directory_can_stand_where_an_attribute_was(tmp_path: Path):
    """Broken trees are made by appending a line."""
    write_tree("sys/afu_id = 1\nsys/afu_id/", tmp_path)
    assert read_tree(tmp_path) == [Directory("sys/afu_id")]
