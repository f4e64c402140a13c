"""Presets and specs: what they write, and how they are refused."""

import re
from collections import Counter
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


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_writes_links_that_all_lead_somewhere_in_the_tree(name: str, tmp_path: Path):
    """Real trees link everything; a dangling link would be a mistake of ours."""
    write_tree(entries(PRESETS[name].spec), tmp_path)
    assert links(tmp_path)
    for path in links(tmp_path):
        assert path.resolve(strict=True).is_relative_to(tmp_path.resolve())


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_names_each_thing_once(name: str):
    """No two entries of a preset fight for a path (a class device's empty uevent may be filled in)."""
    paths = [entry.path for entry in entries(PRESETS[name].spec) if not entry.path.endswith("/uevent")]
    assert len(paths) == len(set(paths))


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_gives_each_device_number_to_one_node(name: str):
    """A number is one device's: its attribute `dev`, its links by number and its node agree."""
    made = entries(PRESETS[name].spec)
    numbers = Counter((entry.kind, entry.major, entry.minor) for entry in made if isinstance(entry, DeviceNode))
    told = Counter(entry.content for entry in made if isinstance(entry, File) and entry.path.endswith("/dev"))
    assert [number for number, times in (numbers + told).items() if times > 1] == []


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_gives_each_pci_address_and_drm_name_to_one_device(name: str):
    """Cards of all vendors share slots and DRM minors; what is not linked twice is not there twice."""
    paths = {entry.path for entry in entries(PRESETS[name].spec)}
    devices = {PurePosixPath(path).parent for path in paths if path.startswith("sys/devices/")}
    directories = {parent for path in devices for parent in (path, *path.parents)}
    named = Counter(directory.name for directory in directories if NAMED_ONCE.fullmatch(directory.name))
    assert [each for each, times in named.items() if times > 1] == []


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
    spec.write_text('preset: fpga-1\ndevices: [{path: /dev/kvm, number: "10:232"}]\ntree: "sys/extra = 1"\n')
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
    ("content", "complaint"),
    [
        ("fpga: {crads: 8}", "fpga.0.crads: unknown key, did you mean `cards`?"),
        ("fpag: {cards: 8}", "did you mean `fpga`?"),
        ("fpga: {driver: xrt}", "fpga.0.driver"),
        ("fpga: {cards: 0}", "fpga.0.cards"),
        ("fpga: {afu_ids: [xyz]}", "fpga.0.afu_ids.0"),
        ("usb: [{vendor: 7523, product: '1234'}]", "usb.0.vendor"),
        ("devices: [{path: kvm, number: '10:1'}]", "devices.0.path"),
        ("devices: [{path: /dev/kvm, number: '4096:1'}]", "below 4096"),
        ("devices: [{path: /dev/kvm, number: '1:1048576'}]", "below 1048576"),
        ("nvidia: {gpsu: 8}", "nvidia.gpsu: unknown key, did you mean `gpus`?"),
        ("nvidia: {mig: [[1c.3g.40gb]]}", "nvidia.mig.0.0"),
        ("nvidia: {mig: [[7g.80gb, 7g.80gb]]}", "no MIG device 7g.80gb on 0000:01:00.0"),
        ("nvidia: {mig: [[3g.33gb]]}", "no MIG device 3g.33gb"),
        ("nvidia: {model: v100, mig: [[1g.10gb]]}", "the Tesla V100-SXM2-32GB has none left"),
        ("preset: fpga-9", "did you mean"),
        ("tree: 'sys/a'", "line 1 of the tree"),
        ("- 1", "the file"),
        ("a: [", "not valid YAML"),
    ],
)
def test_a_bad_spec_is_refused_with_its_place(content: str, complaint: str, tmp_path: Path):
    """Each mistake is one readable line."""
    spec = tmp_path / "spec.yaml"
    spec.write_text(content)
    with pytest.raises(UsageError) as refused:
        entries(load(str(spec)))
    assert complaint in str(refused.value)
    assert "\n" not in str(refused.value)


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
