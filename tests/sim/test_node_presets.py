"""Presets and specs: what they write, and how they are refused."""

import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

import pytest

from devherd.errors import UsageError
from devherd_sim.node.entry import DeviceNode, File
from devherd_sim.node.load import load
from devherd_sim.node.presets import PRESETS
from devherd_sim.node.simulated_node import SimulatedNode
from devherd_sim.node.spec import NodeSpec, entries
from devherd_sim.node.tree import read_tree, write_tree

NAMED_ONCE = re.compile(r"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]|card[0-9]+|renderD[0-9]+|hwmon[0-9]+|mei[0-9]+")


def links(root: Path) -> list[Path]:
    """Every link of a tree."""
    return [path for path in root.rglob("*") if path.is_symlink()]


def repeated(names: Iterable[object]) -> list[object]:
    """Those that are there twice."""
    return [each for each, times in Counter(names).items() if times > 1]


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_is_a_tree_as_a_kernel_makes_it(name: str, tmp_path: Path):
    """Links lead somewhere; no path, device number, PCI address or DRM name is there twice."""
    made = entries(PRESETS[name].spec)
    write_tree(made, tmp_path)

    assert [path for path in links(tmp_path) if not path.resolve(strict=True).is_relative_to(tmp_path.resolve())] == []
    # Two entries must not fight for a path; a class device's empty uevent may be filled in.
    assert repeated(entry.path for entry in made if not entry.path.endswith("/uevent")) == []
    nodes = [(entry.kind, entry.major, entry.minor) for entry in made if isinstance(entry, DeviceNode)]
    assert repeated(nodes) == []
    assert repeated(entry.content for entry in made if isinstance(entry, File) and entry.path.endswith("/dev")) == []
    # Cards of all vendors share slots and DRM minors.
    devices = {PurePosixPath(entry.path).parent for entry in made if entry.path.startswith("sys/devices/")}
    directories = {parent for path in devices for parent in (path, *path.parents)}
    assert repeated(each.name for each in directories if NAMED_ONCE.fullmatch(each.name)) == []


@pytest.mark.parametrize(
    ("name", "ports"),
    [
        ("fpga-1", 1),
        ("fpga-8", 8),
        ("fpga-opae-1", 1),
        ("fpga-opae-2", 2),
        ("fpga-sriov", 3),
        ("fpga-dfl-sriov", 2),
        ("fpga-multiport", 2),
        ("fpga-both-drivers", 2),
        ("fpga-dense", 64),
        ("generic", 0),
    ],
)
def test_a_preset_has_its_ports_with_their_nodes(name: str, ports: int, tmp_path: Path):
    """Each port has a directory, a node and a link by number that lead to one another."""
    node = SimulatedNode.create(tmp_path, PRESETS[name].spec)
    assert len(node.ports()) == ports
    for port in node.ports():
        number = (node.path_of(port) / "dev").read_text().strip()
        assert (tmp_path / "sys/dev/char" / number).resolve() == node.path_of(port)
        assert (tmp_path / "dev/char" / number).resolve() == (tmp_path / "dev" / port).resolve()


def test_virtual_functions_carry_the_ports_and_the_physical_one_the_engine(tmp_path: Path):
    """The layout of intel.md 1.6 number 4."""
    node = SimulatedNode.create(tmp_path, PRESETS["fpga-dfl-sriov"].spec)
    physical = node.pci_function_of("dfl-fme.0")
    for port in node.ports():
        virtual = node.pci_function_of(port)
        assert virtual != physical
        assert (virtual / "physfn").resolve() == physical
    assert (physical / "sriov_numvfs").read_text() == "2\n"
    assert len(list(physical.rglob("compat_id"))) == 2


def test_cards_are_spread_over_the_numa_nodes(tmp_path: Path):
    """8 cards on 2 nodes: 4 near each."""
    node = SimulatedNode.create(tmp_path, PRESETS["fpga-8"].spec)
    near = [(node.pci_function_of(port) / "numa_node").read_text().strip() for port in node.ports()]
    assert sorted(near) == ["0"] * 4 + ["1"] * 4


def test_a_machine_without_numa_says_minus_one(tmp_path: Path):
    """The kernel's own way to say unknown."""
    node = SimulatedNode.create(tmp_path, NodeSpec.model_validate({"fpga": {"numa_nodes": 0}}))
    assert (node.pci_function_of("dfl-port.0") / "numa_node").read_text() == "-1\n"


@pytest.mark.parametrize("numa_nodes", [1, 2, 8])
def test_many_cards_find_room(numa_nodes: int):
    """A thousand cards have a thousand addresses, whatever the number of NUMA nodes."""
    spec = NodeSpec.model_validate({"fpga": {"cards": 1000, "numa_nodes": numa_nodes}})
    addresses = {entry.path for entry in entries(spec) if entry.path.startswith("sys/bus/pci/devices/")}
    assert len(addresses) == 2000  # and a root port each


def test_a_spec_file_starts_from_a_preset(tmp_path: Path):
    """A section of the file replaces the preset's; the tree is put on top."""
    spec = tmp_path / "spec.yaml"
    spec.write_text('preset: fpga-1\ndevices: [{path: /dev/kvm, number: 10:232}]\ntree: "sys/extra = 1"\n')
    node = SimulatedNode.create(tmp_path / "host", load(str(spec)))
    assert node.ports() == ["dfl-port.0"]
    assert (tmp_path / "host/dev/kvm").exists()
    assert (tmp_path / "host/sys/extra").read_text() == "1\n"


def test_an_empty_spec_file_is_a_machine_without_devices(tmp_path: Path):
    """Nothing asked for, nothing there but the machine."""
    (tmp_path / "spec.yaml").write_text("")
    assert load(str(tmp_path / "spec.yaml")) == NodeSpec()
    assert load("/dev/null") == NodeSpec()


@pytest.mark.parametrize(
    ("content", "what", "cure"),
    [
        ("fpga: {crads: 8}", "1:8 — fpga.crads: unknown key", "did you mean `cards`?"),
        ("fpag: {cards: 8}", "1:1 — fpag: unknown key", "did you mean `fpga`?"),
        ("preste: fpga-1", "1:1 — preste: unknown key", "did you mean `preset`?"),
        (
            "fpga:\n- cards: 2\n- driver: xrt",
            "3:11 — fpga[1].driver: `xrt` is not one of `dfl`, `opae`",
            "choose one of them",
        ),
        ("fpga: {cards: 0}", "1:15 — fpga.cards: `0` is too small", "give at least `1`"),
        ("fpga: 8", "1:7 — fpga: `8` is not a list", "begin each item with `- ` on a line of its own"),
        (
            "fpga: {afu_ids: [xyz]}",
            "1:18 — fpga.afu_ids[0]: `xyz` is not 32 hexadecimal digits in lower case",
            "write it like `69528db6eb31577a8c3668f9faa081f6`",
        ),
        ("usb: [{vendor: 7523, product: '1234'}]", "1:16 — usb[0].vendor: `7523` is not a text", "put it in quotes"),
        ("usb: [{product: '1234'}]", "1:7 — usb[0]: `vendor` is missing", "add `vendor`"),
        (
            "devices: [{path: kvm, number: '10:1'}]",
            "1:18 — devices[0].path: `kvm` is not a path below /dev",
            "write it like `/dev/kvm`",
        ),
        (
            "devices: [{path: /dev/kvm, number: 1023}]",
            "1:36 — devices[0].number: `1023` is not a text",
            "put it in quotes",
        ),
        (
            "devices: [{path: /dev/kvm, number: '4096:1'}]",
            "1:36 — devices[0].number: `4096:1` is too large",
            "the major number is below 4096, the minor number below 1048576",
        ),
        (
            "devices: [{path: /dev/kvm, number: '1:1048576'}]",
            "1:36 — devices[0].number: `1:1048576` is too large",
            "the major number is below 4096, the minor number below 1048576",
        ),
        ("nvidia: {gpsu: 8}", "1:10 — nvidia.gpsu: unknown key", "did you mean `gpus`?"),
        (
            "nvidia: {mig: [[1c.3g.40gb]]}",
            "1:17 — nvidia.mig[0][0]: `1c.3g.40gb` is not a MIG profile",
            "write it like `1g.10gb`",
        ),
        (
            "nvidia: {mig: [[7g.80gb, 7g.80gb]]}",
            "1:15 — nvidia.mig: no MIG device 7g.80gb on 0000:01:00.0: the NVIDIA H100 80GB HBM3 has none left",
            "leave it out",
        ),
        (
            "nvidia: {model: v100, mig: [[1g.10gb]]}",
            "1:28 — nvidia.mig: no MIG device 1g.10gb on 0000:01:00.0: the Tesla V100-SXM2-32GB has none left",
            "leave it out",
        ),
        ("preset: fpga-9", "1:9 — preset: `fpga-9` is not a preset", "did you mean `fpga-8` or `fpga-1`?"),
        (
            "tree: 'sys/a'",
            "1:7 — tree: line 1 of the tree: what is it?: `sys/a`",
            "write `path/`, `path = text`, `path -> target`, `path char 244:0`, `path fifo` or `path binary 0xff*10`",
        ),
        (
            "a: [",
            "2:1 — a value is missing here, or a `[` or `{` above is not closed",
            "give the value, or add the `]` or `}`",
        ),
        ("fpga: {cards: 1}\nfpga: {cards: 2}", "2:1 — the key `fpga` is given twice", "remove one of them"),
        ("\tfpga: 1", "1:1 — the line is indented with a tab", "indent with spaces"),
    ],
)
def test_a_bad_spec_is_refused_with_its_place(content: str, what: str, cure: str, tmp_path: Path):
    """As a bad configuration is: file, line, column, key, the value, what to write."""
    spec = tmp_path / "spec.yaml"
    spec.write_text(content)
    with pytest.raises(UsageError) as refused:
        load(str(spec))
    assert str(refused.value) == f"bad spec in {spec}:{what} — {cure}"


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"fpga: \xff", "byte 6 is not UTF-8 text — save the file as UTF-8"),
        (b"- 1", "the file is not a mapping of keys — write it like `fpga: {cards: 8}`"),
    ],
)
def test_a_file_that_is_no_spec_is_refused_as_a_whole(content: bytes, what: str, tmp_path: Path):
    """No place in it is to blame."""
    spec = tmp_path / "spec.yaml"
    spec.write_bytes(content)
    with pytest.raises(UsageError) as refused:
        load(str(spec))
    assert str(refused.value) == f"bad spec in {spec} — {what}"


@pytest.mark.parametrize("name", ["fpga-9", "no-such.yaml", ""])
def test_an_unknown_spec_is_refused(name: str):
    """Neither preset nor file."""
    with pytest.raises(UsageError):
        load(name)


def test_a_directory_of_other_things_is_left_alone(tmp_path: Path):
    """Only an empty directory or an earlier node may be written over."""
    (tmp_path / "thesis.txt").write_text("x")
    with pytest.raises(UsageError, match="not a simulated node"):
        SimulatedNode.create(tmp_path, NodeSpec())
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_an_earlier_node_is_replaced(tmp_path: Path):
    """What the new spec does not have is gone; every node has a kernel log, and what devlink dumps."""
    SimulatedNode.create(tmp_path, PRESETS["fpga-8"].spec)
    SimulatedNode.create(tmp_path, PRESETS["generic"].spec)
    expected = {entry.path for entry in entries(PRESETS["generic"].spec)} | {"dev/kmsg", ".devherd-devlink"}
    assert {entry.path for entry in read_tree(tmp_path)} == expected
