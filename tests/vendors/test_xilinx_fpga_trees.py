"""Whole host trees through the scan core: what layouts of Xilinx FPGA cards must make (peers.md 1.1)."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from answering import Answered, AnsweringScanner, core_settings, not_examined, reasons_in
from whole_scan import by_id, inventory, node

from devherd.inventory import Inventory
from devherd_sim.node.presets import preset
from devherd_sim.node.simulated_node import SimulatedNode
from devherd_sim.node.tree import write_tree

TREE = Path(__file__).parent / "trees/xilinx-old-and-new.tree"
MANAGEMENT = "sys/devices/pci0000:64/0000:65:00.0"
U200 = "sys/devices/pci0000:64/0000:65:00.1"
NAME = "amd.com/xilinx_u200_xdma_201830_2-1561465320"


def scanner(root: Path, **options: Any) -> AnsweringScanner:
    """For Xilinx FPGA cards alone."""
    return AnsweringScanner(str(root), core_settings(root, xilinx_fpga=options))


def planted(root: Path, *changes: str) -> Path:
    """The tree below `root`, with later lines in place of earlier ones."""
    for text in (TREE.read_text(), *changes):
        write_tree(text, root)
    return root


def nodes(device: Answered) -> list[str]:
    """Names of its nodes below /dev."""
    return [given.host_path.removeprefix("/dev/") for given in device.nodes]


def test_functions_are_paired_whichever_number_they_have(tmp_path: Path) -> None:
    """Nodes for management, use and queue DMA; a virtual machine's card has no management; NVMe of AWS is no card."""
    scan = scanner(planted(tmp_path)).scan()
    assert (scan.problems, scan.unseen) == ([], [])
    assert [(device.id, device.resource_name, nodes(device), device.reasons) for device in scan.devices] == [
        ("0000:65:00.1", NAME, ["xclmgmt25856", "dri/renderD128", "xfpga/dma.qdma.u25857.0"], []),
        (
            "0000:66:00.0",
            "amd.com/xilinx_vega4000_xdma_201830_1-1540000000",
            ["xclmgmt26113", "dri/renderD129"],
            [],
        ),
        ("0000:67:00.1", "amd.com/xilinx_v70_gen5x8_qdma_2-1670000000", ["dri/renderD130"], []),
    ]
    assert scan.devices[2].attributes["serial_num"] == "XFL1RT5PHT31"


def test_a_card_tells_its_facts_and_where_they_were_read(tmp_path: Path) -> None:
    """Attributes in the vendor's words; every one names a file of the host. Nodes are given once, with all rights."""
    device = scanner(planted(tmp_path)).scan().devices[0]
    assert device.attributes == {
        "driver": "xocl",
        "pci_driver": "xocl",
        "pcie_root": "pci0000:64",
        "pci_address": "0000:65:00.1",
        "pci_class": "0x120000",
        "vendor_id": "0x10ee",
        "device_id": "0x5001",
        "subsystem_vendor_id": "0x10ee",
        "subsystem_device_id": "0x000e",
        "numa_node": "1",
        "mgmt_pf": "0000:65:00.0",
        "vbnv": "xilinx_u200_xdma_201830_2",
        "timestamp": "1561465320",
        "device_type": "u200",
        "serial_num": "21290594K00J",
        "serial": "21290594K00J",
        "logic_uuids": "862c7020a250293e32036f19956669e5",
    }
    assert device.sources.keys() == device.attributes.keys()
    assert all((tmp_path / path.removeprefix("/")).exists() for path in device.sources.values())
    assert (device.numa_nodes, device.mounts) == ([1], [])
    assert {given.permissions for given in device.nodes} == {"rwm"}


def test_a_card_that_is_not_flashed_costs_no_other_39(tmp_path: Path) -> None:
    """Peer defect, issue 39: one without a shell is a problem of its own, at once; the others are served."""
    root = planted(tmp_path)
    shutil.rmtree(root / U200 / "rom.u.25857")
    scan = scanner(root).scan()
    unflashed = scan.devices[0]
    assert (unflashed.id, unflashed.resource_name, unflashed.reasons) == ("0000:65:00.1", None, ["unprogrammed"])
    assert [device.reasons for device in scan.devices[1:]] == [[], []]
    assert [problem.device for problem in scan.problems] == ["0000:65:00.1"]
    assert len(inventory(root)["resources"]) == 2


def test_a_card_that_was_never_flashed_is_a_problem(tmp_path: Path) -> None:
    """It shows its management function alone."""
    root = planted(tmp_path)
    shutil.rmtree(root / U200)
    (root / "sys/bus/pci/devices/0000:65:00.1").unlink()
    scan = scanner(root).scan()
    assert [device.id for device in scan.devices] == ["0000:66:00.0", "0000:67:00.1"]
    assert [problem.device for problem in scan.problems] == ["0000:65:00.0"]
    assert "flash a shell" in scan.problems[0].error


def lose_user_function(root: Path) -> None:
    """As while a shell is flashed: the host has forgotten the function, the card is there by its other one."""
    shutil.rmtree(root / U200)
    (root / "sys/bus/pci/devices/0000:65:00.1").unlink()


def lose_drivers(root: Path) -> None:
    """The functions are there, under no driver, and nothing marks them as XRT's."""
    for mark in ("0000:65:00.0/mgmt_pf", "0000:65:00.1/user_pf"):
        (root / "sys/devices/pci0000:64" / mark).unlink()


def become_golden(root: Path) -> None:
    """What answers before a shell is loaded: one function, with another device id."""
    lose_user_function(root)
    (root / "sys/devices/pci0000:64/0000:65:00.0/mgmt_pf").unlink()
    write_tree(f"{MANAGEMENT}/vendor = 0x10ee\n{MANAGEMENT}/device = 0xd004", root)


@pytest.mark.parametrize("lose", [lose_user_function, lose_drivers, become_golden])
def test_a_card_that_is_flashed_is_unhealthy_for_a_reason_of_its_own_and_not_gone(lose: Any, tmp_path: Path) -> None:
    """Until its user function is there again, under the same resource; the others stay as they are."""
    root = planted(tmp_path)
    scans, known = scanner(root), Inventory()
    known.observe(scans.scan(), 0.0, 60.0)
    for second in (1.0, 2.0):
        lose(root)
        for later in (0.0, 0.1):
            known.observe(scans.scan(), second + later, 60.0)
            [ill] = [entry for entry in known.entries.values() if entry.findings or not entry.is_found]
            assert (ill.device.id, ill.resource_name) == ("0000:65:00.1", NAME)
            assert (reasons_in(ill.findings), ill.gone_since) == (["shell-lost"], None)
        planted(root)
        known.observe(scans.scan(), second + 0.2, 60.0)
        assert all(entry.is_found and not entry.findings for entry in known.entries.values())


def test_a_card_that_leaves_its_slot_is_gone(tmp_path: Path) -> None:
    """Nothing of it is on the bus any more."""
    root = planted(tmp_path)
    scans, known = scanner(root), Inventory()
    known.observe(scans.scan(), 0.0, 60.0)
    lose_user_function(root)
    (root / "sys/bus/pci/devices/0000:65:00.0").unlink()
    known.observe(scans.scan(), 1.0, 60.0)
    [gone] = [entry for entry in known.entries.values() if not entry.is_found]
    assert (gone.device.id, gone.gone_since) == ("0000:65:00.1", 1.0)


def test_another_device_in_the_slot_is_no_card_that_is_flashed(tmp_path: Path) -> None:
    """Defect: a NIC that took the place of a card kept it, Unhealthy, for good."""
    root = planted(tmp_path, f"{U200}/vendor = 0x10ee")
    scans, known = scanner(root), Inventory()
    known.observe(scans.scan(), 0.0, 60.0)
    become_golden(root)
    (root / MANAGEMENT / "vendor").write_text("0x15b3\n")
    known.observe(scans.scan(), 1.0, 60.0)
    [gone] = [entry for entry in known.entries.values() if not entry.is_found]
    assert (gone.device.id, gone.gone_since, gone.findings) == ("0000:65:00.1", 1.0, [])


def test_another_scanner_knows_a_card_that_is_flashed_by_its_management_function(tmp_path: Path) -> None:
    """The inventory outlives the process that began it."""
    root, known = planted(tmp_path), Inventory()
    known.observe(scanner(root).scan(), 0.0, 60.0)
    lose_user_function(root)
    known.observe(scanner(root).scan(), 1.0, 60.0)
    [ill] = [entry for entry in known.entries.values() if entry.findings]
    assert (ill.device.id, reasons_in(ill.findings), ill.gone_since) == ("0000:65:00.1", ["shell-lost"], None)


def test_half_a_card_of_two_devices_is_not_offered_while_the_other_half_is_flashed(tmp_path: Path) -> None:
    """A U30 is given out as one: what is left of it stays as it was known."""
    node = SimulatedNode.create(tmp_path, preset("xilinx-u30"))
    scans, known = scanner(tmp_path, u30_alloc_unit="card"), Inventory()
    known.observe(scans.scan(), 0.0, 60.0)
    node.functions.take_away("0000:02:00.1")
    known.observe(scans.scan(), 1.0, 60.0)
    found = {entry.device.id: (entry.is_found, len(entry.device.nodes)) for entry in known.entries.values()}
    assert found == {"0000:01:00.1": (False, 4), "0000:03:00.1": (True, 4)}


def test_a_reset_card_recovers_without_a_restart_17(tmp_path: Path) -> None:
    """Peer defect, issue 17: during a reset the card keeps its resource, unhealthy; the others stay healthy."""
    root = planted(tmp_path)
    scans, known = scanner(root), Inventory()
    for _ in range(3):
        known.observe(scans.scan(), 0.0, 60.0)
        assert [entry.device.id for entry in known.entries.values() if entry.findings] == []
        shutil.rmtree(root / U200 / "rom.u.25857")
        shutil.rmtree(root / U200 / "drm")
        known.observe(scans.scan(), 1.0, 60.0)
        [ill] = [entry for entry in known.entries.values() if entry.findings]
        assert (ill.device.id, ill.resource_name, reasons_in(ill.findings)) == (
            "0000:65:00.1",
            NAME,
            ["node-missing", "unprogrammed"],
        )
        planted(root)


@pytest.mark.parametrize(
    ("change", "lost"),
    [
        ("xmc.u.25857/serial_num binary 0xff*5000", "serial_num"),
        ("logic_uuids -> logic_uuids", "logic_uuids"),
        ("uevent fifo", None),
    ],
)
def test_one_bad_file_costs_one_attribute(change: str, lost: str | None, tmp_path: Path) -> None:
    """Peer defect: any unreadable file ended the whole scan, and twice in a row the scanner."""
    root = planted(tmp_path, f"{U200}/vendor = 0x10ee\n{U200}/device = 0x5001", f"{U200}/{change}")
    scan = scanner(root).scan()
    assert [(device.resource_name is None, device.reasons) for device in scan.devices] == [(False, [])] * 3
    assert scan.problems == []
    assert lost not in scan.devices[0].attributes


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("rom.u.25857/VBNV ==", "unprogrammed"),
        ("rom.u.25857/timestamp ==", "unprogrammed"),
        ("rom.u.25857/VBNV binary 0xff*5000", "shell-unreadable"),
        ("rom.u.25857/timestamp binary 0xff*5000", "shell-unreadable"),
    ],
)
def test_a_shell_that_cannot_be_told_names_nothing(change: str, reason: str, tmp_path: Path) -> None:
    """No name is made up; the card keeps its last one."""
    scan = scanner(planted(tmp_path, f"{U200}/{change}")).scan()
    assert (scan.devices[0].resource_name, scan.devices[0].reasons) == (None, [reason])
    assert [problem.device for problem in scan.problems] == ["0000:65:00.1"]


def test_a_management_node_that_cannot_be_told_costs_that_node(tmp_path: Path) -> None:
    """Containers compute through the user node."""
    root = planted(tmp_path, "sys/devices/pci0000:64/0000:65:00.0/instance = none")
    scan = scanner(root).scan()
    assert (nodes(scan.devices[0])[0], scan.devices[0].reasons) == ("dri/renderD128", [])
    assert [problem.device for problem in scan.problems] == ["0000:65:00.1"]


def test_a_flashed_card_moves_to_its_new_resource(tmp_path: Path) -> None:
    """Another shell is another resource, seen by the same scanner."""
    scans = scanner(planted(tmp_path))
    scans.scan()
    write_tree(f"{U200}/rom.u.25857/VBNV = xilinx_u200_qdma_201920_1", tmp_path)
    after = scans.scan()
    assert after.changed
    assert after.devices[0].resource_name == "amd.com/xilinx_u200_qdma_201920_1-1561465320"


@pytest.mark.parametrize("gone", ["xclmgmt25856", "dri/renderD128", "xfpga/dma.qdma.u25857.0"])
def test_a_missing_node_is_seen_and_forgiven(gone: str, tmp_path: Path) -> None:
    """The peer's health is always Healthy."""
    scans = scanner(planted(tmp_path))
    scans.scan()
    (tmp_path / "dev" / gone).unlink()
    assert scans.poll() == [("xilinx-fpga", "0000:65:00.1", "0000:65:00.1", ["node-missing"])]
    planted(tmp_path)
    assert scans.poll() == []


def test_an_unreadable_bus_keeps_what_was_known(tmp_path: Path) -> None:
    """It is a problem, and no statement about any card."""
    write_tree("sys/bus/pci/devices = no directory", tmp_path)
    scan = scanner(tmp_path).scan()
    assert not_examined(scan) == [(None, None)]
    assert [problem.path for problem in scan.problems] == ["/sys/bus/pci/devices"]


def card(address: str, attributes: dict[str, str], *names: str) -> dict[str, Any]:
    """What a preset's card is to say."""
    return {
        "id": address,
        "health": "Healthy",
        "reasons": [],
        "warnings": [],
        "numa_nodes": [0],
        "nodes": [node(f"/dev/{name}", "rwm") for name in names],
        "mounts": [],
        "envs": {},
        "annotations": {},
        "cdi_devices": [],
        "attributes": attributes
        | {
            "driver": "xocl",
            "device_id": "0x5001",
            "logic_uuids": "862c7020a250293e32036f19956669e5",
            "numa_node": "0",
            "pcie_root": "pci0000:00",
            "pci_address": address,
            "pci_class": "0x120000",
            "pci_driver": "xocl",
            "serial": attributes["serial_num"],
            "slot": str(int(address.split(":")[1], 16)),
            "subsystem_device_id": "0x0000",
            "subsystem_vendor_id": "0x10ee",
            "vendor_id": "0x10ee",
        },
    }


def test_the_preset_of_two_cards_is_advertised_as_the_vendors_plugin_does(tmp_path: Path) -> None:
    """A resource for each shell; the whole JSON is compared."""
    SimulatedNode.create(tmp_path, preset("xilinx-2"))
    scan = inventory(tmp_path)
    assert scan["problems"] == []
    u200 = {
        "vbnv": "xilinx_u200_xdma_201830_2",
        "timestamp": "1561465320",
        "device_type": "u200",
        "serial_num": "212904800000",
        "mgmt_pf": "0000:01:00.0",
    }
    u250 = {
        "vbnv": "xilinx_u250_qdma_201920_1",
        "timestamp": "1579647260",
        "device_type": "u250",
        "serial_num": "212904800001",
        "mgmt_pf": "0000:02:00.0",
    }
    assert scan["resources"] == [
        {
            "name": NAME,
            "vendor": "xilinx-fpga",
            "devices": [card("0000:01:00.1", u200, "xclmgmt256", "dri/renderD128")],
        },
        {
            "name": "amd.com/xilinx_u250_qdma_201920_1-1579647260",
            "vendor": "xilinx-fpga",
            "devices": [
                card("0000:02:00.1", u250, "xclmgmt512", "dri/renderD129", "xfpga/dma.qdma.u513.0"),
            ],
        },
    ]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, {"amd.com/ama_u30": ["0000:01:00.1", "0000:03:00.1"]}),
        (
            {"u30_alloc_unit": "device"},
            {"amd.com/ama_u30": [f"0000:0{bus}:00.1" for bus in range(1, 5)]},
        ),
        (
            {"u30_name_convention": "exact_name"},
            {"amd.com/xilinx_u30_gen3x4_base_1-1617991271": ["0000:01:00.1", "0000:03:00.1"]},
        ),
    ],
)
def test_the_preset_of_u30_cards_is_advertised_as_asked(
    options: dict[str, str], expected: dict[str, list[str]], tmp_path: Path
) -> None:
    """By default whole cards under one name, as the vendor's plugin has them; else each device, or the shell's name."""
    SimulatedNode.create(tmp_path, preset("xilinx-u30"))
    scan = inventory(tmp_path, xilinx_fpga=options)
    assert (by_id(scan), scan["problems"]) == (expected, [])
    first = scan["resources"][0]["devices"][0]
    both = [node(f"/dev/{name}", "rwm") for name in ("xclmgmt256", "dri/renderD128", "xclmgmt512", "dri/renderD129")]
    assert first["nodes"] == (both[:2] if "u30_alloc_unit" in options else both)


def test_the_preset_of_aws_f1_has_user_functions_alone(tmp_path: Path) -> None:
    """No management function, no serial number, and each FPGA a device."""
    SimulatedNode.create(tmp_path, preset("xilinx-f1"))
    scan = inventory(tmp_path)
    assert (by_id(scan), scan["problems"]) == (
        {"amd.com/xilinx_aws-vu9p-f1_dynamic_5_0-1552955120": ["0000:01:00.0", "0000:02:00.0"]},
        [],
    )
    first = scan["resources"][0]["devices"][0]
    assert first["nodes"] == [node("/dev/dri/renderD128", "rwm")]
    assert first["attributes"].keys().isdisjoint({"serial_num", "mgmt_pf"})


def test_a_card_that_is_pulled_out_and_put_back_is_followed(tmp_path: Path) -> None:
    """Both functions go; repaired, the same device is there."""
    simulated = SimulatedNode.create(tmp_path, preset("xilinx-2"))
    scans = scanner(tmp_path)
    before = scans.scan()
    simulated.functions.pull_out("0000:02:00.0")
    assert [device.id for device in scans.scan().devices] == ["0000:01:00.1"]
    simulated.repair(preset("xilinx-2"))
    assert scans.scan().devices == before.devices


MEDIA = """
sys/bus/pci/devices/0000:01:00.0 -> ../../../devices/pci0000:00/0000:01:00.0
sys/devices/pci0000:00/0000:01:00.0/vendor = 0x10ee
sys/devices/pci0000:00/0000:01:00.0/device = 0x5070
sys/devices/pci0000:00/0000:01:00.0/numa_node = 1
sys/class/misc/ama_transcoder0/bus_id = 0000:01:00.0
sys/class/misc/ama_transcoder0/dev = 10:120
sys/class/misc/ama_transcoder0/device_info =
    Product name = Alveo MA35D
    Product serial number = XFL1ABCD
    PCIe device ID = 0x5070
sys/class/misc/ama_transcoder1/bus_id = 0000:02:00.0
sys/class/misc/ama_transcoder1/dev = 10:121
sys/class/misc/ama_transcoder_control/dev = 10:122
dev/ama_transcoder0 char 10:120
dev/ama_transcoder1 char 10:121
"""


def test_media_cards_are_advertised_as_the_vendors_plugin_does_b3(tmp_path: Path) -> None:
    """MA35D: under one name, by PCI address, each with its own node; what a board does not tell is a problem alone."""
    write_tree(MEDIA, tmp_path)
    scan = scanner(tmp_path).scan()
    assert [(device.id, device.resource_name, nodes(device), device.reasons) for device in scan.devices] == [
        ("0000:01:00.0", "amd.com/MA35", ["ama_transcoder0"], []),
        ("0000:02:00.0", "amd.com/MA35", ["ama_transcoder1"], []),
    ]
    first = scan.devices[0]
    assert {given.permissions for given in first.nodes} == {"rwm"}
    assert (first.numa_nodes, first.attributes["product_name"], first.attributes["serial_num"]) == (
        [1],
        "Alveo MA35D",
        "XFL1ABCD",
    )
    assert [(problem.path, problem.device) for problem in scan.problems] == [
        ("/sys/class/misc/ama_transcoder1/device_info", "0000:02:00.0")
    ]


def test_a_media_card_whose_place_is_unknown_costs_no_other_b3(tmp_path: Path) -> None:
    """The vendor's plugin finds none then; here it stays as it was."""
    write_tree(MEDIA, tmp_path)
    (tmp_path / "sys/class/misc/ama_transcoder0/bus_id").unlink()
    scan = scanner(tmp_path).scan()
    assert [device.id for device in scan.devices] == ["0000:02:00.0"]
    assert not_examined(scan) == [("ama_transcoder0", None)]
    assert scan.problems[0].path == "/sys/class/misc/ama_transcoder0/bus_id"


def test_a_media_card_without_its_node_is_unhealthy_and_back_b3(tmp_path: Path) -> None:
    """The vendor's plugin calls it healthy."""
    write_tree(MEDIA, tmp_path)
    scans = scanner(tmp_path)
    scans.scan()
    (tmp_path / "dev/ama_transcoder0").unlink()
    assert scans.poll() == [("xilinx-fpga", "ama_transcoder0", "0000:01:00.0", ["node-missing"])]
    write_tree(MEDIA, tmp_path)
    assert scans.poll() == []
