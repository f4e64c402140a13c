"""Whole host trees through the scan core: what layouts of RDMA cards must make (peers.md 1.2, 1.3)."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from answering import AnsweringScanner, core_settings, not_examined
from whole_scan import by_id, inventory, node

from devherd.config.loader import resolve
from devherd.config.model import Config
from devherd.config.vendors import RdmaPool
from devherd.importers import import_text
from devherd.inventory import Inventory
from devherd.scanner.once import scan_once
from devherd_sim.node.presets import preset
from devherd_sim.node.simulated_node import SimulatedNode
from devherd_sim.node.tree import write_tree

TREE = Path(__file__).parent / "trees/rdma-two-ports.tree"
SWITCHDEV = Path(__file__).parent / "trees/rdma-mlx5-vfs.tree"
PHYSICAL = "sys/devices/pci0000:3a/0000:3b:00.0"
VIRTUAL = "sys/devices/pci0000:3a/0000:3b:00.1"


def scanner(root: Path, **options: Any) -> AnsweringScanner:
    """For RDMA devices alone."""
    return AnsweringScanner(str(root), core_settings(root, rdma=options))


def planted(root: Path, *changes: str) -> Path:
    """The tree below `root`, with later lines in place of earlier ones."""
    for text in (TREE.read_text(), *changes):
        write_tree(text, root)
    return root


def test_a_card_and_its_virtual_function_are_devices_with_all_their_nodes(tmp_path: Path) -> None:
    """Both ports' nodes, and the one for connections; what is made of software is no device."""
    scan = scanner(planted(tmp_path)).scan()
    assert (scan.problems, scan.unseen) == ([], [])
    physical, virtual = scan.devices
    assert [found.host_path for found in physical.nodes] == [
        f"/dev/infiniband/{name}" for name in ("uverbs0", "issm0", "issm1", "umad0", "umad1", "rdma_cm")
    ]
    assert {(found.host_path == found.container_path, found.permissions) for found in physical.nodes} == {(True, "rw")}
    assert (physical.id, physical.resource_name, physical.card) == ("mlx4_0", "rdma/hca", "0000:3b:00.0")
    assert physical.attributes == {
        "ibdev": "mlx4_0",
        "driver": "mlx4_core",
        "pci_driver": "mlx4_core",
        "pcie_root": "pci0000:3a",
        "pci_address": "0000:3b:00.0",
        "pci_class": "0x020700",
        "vendor_id": "0x15b3",
        "device_id": "0x1003",
        "subsystem_vendor_id": "0x15b3",
        "subsystem_device_id": "0x0050",
        "numa_node": "1",
        "node_guid": "f452:1403:0012:3450",
        "hca_type": "MT4099",
        "fw_ver": "2.42.5000",
        "board_id": "MT_1090120019",
        "port_state": "ACTIVE,DOWN",
        "link_layer": "InfiniBand",
        "netdev": "ib0,ib1",
        "pf_address": "0000:3b:00.0",
        "pf_netdev": "ib0",
        "virtual": "false",
    }
    assert physical.sources.keys() == physical.attributes.keys()
    assert all((tmp_path / path.removeprefix("/")).exists() for path in physical.sources.values())
    assert (virtual.id, virtual.attributes["physfn"]) == ("mlx4_1", "0000:3b:00.0")
    assert [found.host_path.rpartition("/")[2] for found in virtual.nodes] == ["uverbs1", "issm2", "umad2", "rdma_cm"]


def test_a_port_without_a_cable_is_told_and_is_no_fault(tmp_path: Path) -> None:
    """A card of two ports is good with one; whatever a state says, or that it cannot be read, is no reason."""
    for state in ("1: DOWN", "2: INIT", "nonsense", ""):
        root = planted(tmp_path, f"{PHYSICAL}/infiniband/mlx4_0/ports/1/state = {state}")
        scans = scanner(root)
        assert [device.reasons for device in scans.scan().devices] == [[], []]
        assert scans.poll() == []
    (tmp_path / f"{PHYSICAL}/infiniband/mlx4_0/ports/1/state").unlink()
    device = scanner(tmp_path).scan().devices[0]
    assert (device.attributes["port_state"], device.reasons) == ("unknown,DOWN", [])


@pytest.mark.parametrize(
    ("missing", "module"),
    [("infiniband_verbs", "ib_uverbs"), ("infiniband_mad", "ib_umad"), ("misc", "rdma_ucm")],
)
def test_an_incomplete_set_of_nodes_names_the_module_to_load(missing: str, module: str, tmp_path: Path) -> None:
    """Partial sets are of no use to a workload (rdma-shared #23); once the module is there, so are the devices."""
    root = planted(tmp_path)
    shutil.rmtree(root / "sys/class" / missing)
    shutil.move(root / "dev/infiniband/rdma_cm", root / "away")
    scans = scanner(root)
    scan = scans.scan()
    assert scan.devices == []
    assert all(module in problem.error for problem in scan.problems)
    assert [problem.device for problem in scan.problems] == ["mlx4_0", "mlx4_1"]
    planted(root)
    assert [device.id for device in scans.scan().devices] == ["mlx4_0", "mlx4_1"]


@pytest.mark.parametrize(
    ("node_type", "served", "lacking"),
    [
        ("1: CA", ["mlx4_0"], "umad"),
        ("4: RNIC", ["mlx4_0", "mlx4_1"], None),
        ("7: unspecified", ["mlx4_0", "mlx4_1"], None),
    ],
)
def test_iwarp_and_efa_need_no_management_node_w6(
    node_type: str, served: list[str], lacking: str | None, tmp_path: Path
) -> None:
    """The kernel makes none for them; for another device that has none, the module is there, so it is not the cure."""
    root = planted(tmp_path, f"{VIRTUAL}/infiniband/mlx4_1/node_type = {node_type}")
    for name in ("umad2", "issm2"):
        (root / f"sys/class/infiniband_mad/{name}").unlink()
    scan = scanner(root).scan()
    assert [device.id for device in scan.devices] == served
    if lacking is None:
        assert scan.problems == []
        assert [found.host_path.rpartition("/")[2] for found in scan.devices[1].nodes] == ["uverbs1", "rdma_cm"]
    else:
        [problem] = scan.problems
        assert f"no {lacking} node" in problem.error
        assert "load the kernel module" not in problem.error


@pytest.mark.parametrize(("node_type", "count"), [("4: RNIC", 0), ("7: unspecified", 1)])
def test_only_a_protocol_of_its_own_works_without_the_connection_manager_w6(
    node_type: str, count: int, tmp_path: Path
) -> None:
    """IWARP makes every connection through it; EFA none."""
    root = planted(tmp_path, f"{VIRTUAL}/infiniband/mlx4_1/node_type = {node_type}")
    for path in ("sys/class/misc/rdma_cm", "dev/infiniband/rdma_cm"):
        (root / path).unlink()
    scan = scanner(root).scan()
    assert [device.id for device in scan.devices] == ["mlx4_1"] * count
    assert "load the kernel module rdma_ucm" in scan.problems[-1].error


def test_a_node_that_does_not_say_whose_it_is_is_the_problem_and_no_module_c4(tmp_path: Path) -> None:
    """A dangling entry of the class: its path is told, and nobody is sent to load what is loaded."""
    root = planted(tmp_path)
    entry = root / "sys/class/infiniband_verbs/uverbs1"
    entry.unlink()
    entry.symlink_to("nowhere")
    scan = scanner(root).scan()
    assert [device.id for device in scan.devices] == ["mlx4_0"]
    assert scan.problems[0].path == "/sys/class/infiniband_verbs/uverbs1/ibdev"
    assert "load the kernel module" not in scan.problems[1].error


def test_one_device_without_its_nodes_costs_no_other(tmp_path: Path) -> None:
    """The problem is that device's alone."""
    root = planted(tmp_path)
    (root / "sys/class/infiniband_mad/umad2").unlink()
    scan = scanner(root).scan()
    assert [device.id for device in scan.devices] == ["mlx4_0"]
    assert [problem.device for problem in scan.problems] == ["mlx4_1"]


@pytest.mark.parametrize("gone", ["uverbs0", "umad1", "issm0"])
def test_health_goes_both_ways(gone: str, tmp_path: Path) -> None:
    """Peer defect: Unhealthy had no way back. A node that vanishes is missing until it is there again."""
    scans = scanner(planted(tmp_path))
    scans.scan()
    (tmp_path / "dev/infiniband" / gone).unlink()
    assert scans.poll() == [("rdma", "0000:3b:00.0", "mlx4_0", ["node-missing"])]
    assert [device.reasons for device in scans.scan().devices] == [["node-missing"], []]
    planted(tmp_path)
    assert scans.poll() == []
    assert [device.reasons for device in scans.scan().devices] == [[], []]


def test_a_device_that_moved_into_a_container_is_not_gone(tmp_path: Path) -> None:
    """Sriov #40: one that a container's network namespace has is kept as it was; one that was pulled out is gone."""
    scans, known = scanner(planted(tmp_path)), Inventory()
    known.observe(scans.scan(), 0.0, 60.0)
    (tmp_path / "sys/class/infiniband/mlx4_0").unlink()
    moved = scans.scan()
    assert not_examined(moved) == [("0000:3b:00.0", None)]
    known.observe(moved, 1.0, 60.0)
    assert [entry.gone_since for entry in known.entries.values()] == [None, None]
    (tmp_path / "sys/class/infiniband_verbs/uverbs0").unlink()
    known.observe(scans.scan(), 2.0, 60.0)
    assert [entry.device.id for entry in known.entries.values() if entry.gone_since is not None] == ["mlx4_0"]


def test_an_interface_that_moved_into_a_container_is_no_fault(tmp_path: Path) -> None:
    """Sriov #40: the interface is no longer told, and the device is as healthy as before."""
    scans = scanner(planted(tmp_path))
    scans.scan()
    shutil.rmtree(tmp_path / PHYSICAL / "net")
    device = scans.scan().devices[0]
    assert (device.reasons, "netdev" in device.attributes) == ([], False)


def test_a_function_of_another_class_is_no_card(tmp_path: Path) -> None:
    """RDMA devices are network controllers."""
    scan = scanner(planted(tmp_path, f"{PHYSICAL}/uevent = PCI_CLASS=120000")).scan()
    assert ([device.id for device in scan.devices], scan.problems) == (["mlx4_1"], [])


@pytest.mark.parametrize("name", ["infiniband", "infiniband_verbs", "infiniband_mad"])
def test_an_unreadable_class_keeps_what_was_known(name: str, tmp_path: Path) -> None:
    """It is a problem, and no statement about any device."""
    root = planted(tmp_path)
    shutil.rmtree(root / "sys/class" / name)
    (root / "sys/class" / name).write_text("")
    scan = scanner(root).scan()
    assert scan.devices == []
    assert not_examined(scan) == [(None, None)]
    assert [problem.path for problem in scan.problems] == [f"/sys/class/{name}"]


def test_a_host_without_rdma_has_no_devices_and_no_problem(tmp_path: Path) -> None:
    """A driver that is absent is nothing to report."""
    write_tree("sys/class/", tmp_path)
    scan = scanner(tmp_path).scan()
    assert (scan.devices, scan.problems, scan.unseen) == ([], [], [])


def preset_device(number: int, address: str, numa_node: int) -> dict[str, Any]:
    """What the preset's card is to say."""
    return {
        "id": f"mlx5_{number}",
        "health": "Healthy",
        "reasons": [],
        "warnings": [],
        "numa_nodes": [numa_node],
        "nodes": [
            node(f"/dev/infiniband/{name}") for name in (f"uverbs{number}", f"issm{number}", f"umad{number}", "rdma_cm")
        ],
        "mounts": [],
        "envs": {},
        "annotations": {},
        "cdi_devices": [],
        "attributes": {
            "board_id": "MT_0000000223",
            "device_id": "0x101b",
            "driver": "mlx5_core",
            "fw_ver": "20.31.1014",
            "hca_type": "MT4123",
            "ibdev": f"mlx5_{number}",
            "link_layer": "InfiniBand",
            "netdev": f"ib{number}",
            "node_guid": f"b859:9f03:00a1:{number:04x}",
            "node_type": "CA",
            "numa_node": str(numa_node),
            "pcie_root": f"pci0000:{0x80 * numa_node:02x}",
            "pci_address": address,
            "pci_class": "0x020700",
            "pci_driver": "mlx5_core",
            "pf_address": address,
            "pf_netdev": f"ib{number}",
            "pkey": "0xffff",
            "port_state": "ACTIVE",
            "slot": str(int(address.split(":")[1], 16)),
            "subsystem_device_id": "0x0000",
            "subsystem_vendor_id": "0x15b3",
            "vendor_id": "0x15b3",
            "virtual": "false",
        },
    }


def test_the_preset_of_two_cards_is_advertised_whole(tmp_path: Path) -> None:
    """One device a card, with the complete set of nodes; the whole JSON is compared."""
    SimulatedNode.create(tmp_path, preset("rdma-2"))
    scan = inventory(tmp_path)
    assert scan["problems"] == []
    assert scan["resources"] == [
        {
            "name": "rdma/hca",
            "vendor": "rdma",
            "devices": [preset_device(0, "0000:01:00.0", 0), preset_device(1, "0000:81:00.0", 1)],
        }
    ]


def test_shared_devices_are_named_as_the_shared_plugins_example(tmp_path: Path) -> None:
    """N ids a device, each the whole device."""
    SimulatedNode.create(tmp_path, preset("rdma-2"))
    scan = inventory(tmp_path, rdma={"shared_devices": 2})
    assert by_id(scan) == {"rdma/hca_shared_devices_a": ["mlx5_0-0", "mlx5_0-1", "mlx5_1-0", "mlx5_1-1"]}
    first, second = scan["resources"][0]["devices"][:2]
    assert first | {"id": ""} == second | {"id": ""} == preset_device(0, "0000:01:00.0", 0) | {"id": ""}


def test_the_preset_with_virtual_functions_advertises_each(tmp_path: Path) -> None:
    """Physical and virtual functions alike, and nothing unhealthy about a virtual function's link."""
    simulated = SimulatedNode.create(tmp_path, preset("rdma-sriov"))
    scans = scanner(tmp_path)
    scan = scans.scan()
    assert (scan.problems, scans.poll()) == ([], [])
    told = [(device.id, device.attributes.get("physfn"), device.attributes["netdev"]) for device in scan.devices]
    assert told == [
        ("mlx5_0", None, "eth0"),
        *((f"mlx5_{number}", "0000:01:00.0", f"eth{number}") for number in range(1, 5)),
    ]
    simulated.functions.unbind("0000:01:00.3")
    assert [device.id for device in scans.scan().devices] == ["mlx5_0", "mlx5_1", "mlx5_2", "mlx5_4"]
    simulated.repair(preset("rdma-sriov"))
    assert scans.scan().devices == scan.devices


POOL = "rdma/hca_shared_devices_a"
ALL = ("uverbs0", "issm0", "umad0", "rdma_cm", "uverbs1", "issm1", "umad1")


def pool(name: str = POOL, rdma_hca_max: int = 4, **selectors: list[str]) -> dict[str, Any]:
    """A pool of the shared plugin."""
    return RdmaPool.model_validate({"name": name, "rdma_hca_max": rdma_hca_max, "selectors": selectors}).model_dump()


def pooled(root: Path, *pools: dict[str, Any]) -> dict[str, Any]:
    """What `devherd scan` says with these pools."""
    return inventory(root, rdma={"mode": "shared", "pools": pools})


def test_a_pool_has_the_ids_and_nodes_of_the_shared_plugin_b1(tmp_path: Path) -> None:
    """Numbers for the whole pool; whatever a container is given, it has every node of every card, `rwm`."""
    SimulatedNode.create(tmp_path, preset("rdma-2"))
    scan = pooled(tmp_path, pool(if_names=["ib0", "ib1"]))
    assert scan["problems"] == []
    assert by_id(scan) == {POOL: ["0", "1", "2", "3"]}
    for device in scan["resources"][0]["devices"]:
        assert device["nodes"] == [node(f"/dev/infiniband/{name}", "rwm") for name in ALL]
        assert (device["envs"], device["numa_nodes"], device["reasons"]) == ({}, None, [])
        assert device["attributes"] == {
            "ibdev": "mlx5_0,mlx5_1",
            "netdev": "ib0,ib1",
            "pci_address": "0000:01:00.0,0000:81:00.0",
        }


@pytest.mark.parametrize(
    ("selectors", "members"),
    [
        ({"vendors": ["15b3"]}, "mlx5_0,mlx5_1"),
        ({"vendors": ["8086"]}, None),
        ({"device_ids": ["101b"], "if_names": ["ib1", "ib9"]}, "mlx5_1"),
        ({"device_ids": ["1017"], "if_names": ["ib1"]}, None),
        ({"drivers": ["mlx5_core"]}, "mlx5_0,mlx5_1"),
        ({"drivers": ["mlx4_core"]}, None),
        ({"link_types": ["infiniband"], "if_names": ["ib0"]}, "mlx5_0"),
        ({"link_types": ["ether"]}, None),
    ],
)
def test_each_selector_of_a_pool_must_fit_b1(selectors: dict[str, list[str]], members: str | None, tmp_path: Path):
    """One of each list; a pool that nothing fits is told."""
    SimulatedNode.create(tmp_path, preset("rdma-2"))
    scan = pooled(tmp_path, pool(rdma_hca_max=1, **selectors))
    found = [device["attributes"]["ibdev"] for resource in scan["resources"] for device in resource["devices"]]
    assert found == ([members] if members else [])
    assert [problem["path"] for problem in scan["problems"]] == ([] if members else [POOL])


def test_a_device_may_be_in_several_pools_b1(tmp_path: Path) -> None:
    """As in the shared plugin; each pool has its own number of ids."""
    SimulatedNode.create(tmp_path, preset("rdma-2"))
    other = "rdma/hca_shared_devices_b"
    scan = pooled(tmp_path, pool(vendors=["15b3"], rdma_hca_max=2), pool(other, rdma_hca_max=1, if_names=["ib0"]))
    assert by_id(scan) == {POOL: ["0", "1"], other: ["0"]}
    [device] = scan["resources"][1]["devices"]
    assert device["attributes"]["ibdev"] == "mlx5_0"


def test_a_pool_is_as_healthy_as_its_nodes_b1(tmp_path: Path) -> None:
    """A missing node would keep every container from starting; what a card says on the bus is not the pool's."""
    simulated = SimulatedNode.create(tmp_path, preset("rdma-2"))
    (simulated.functions.path_of("0000:81:00.0") / "config").write_bytes(b"\xff" * 64)
    alone = scanner(tmp_path)
    alone.scan()
    assert alone.poll() == [("rdma", "0000:81:00.0", "mlx5_1", ["off-bus"])]
    scans = scanner(tmp_path, mode="shared", pools=[pool(vendors=["15b3"], rdma_hca_max=1)])
    assert [device.reasons for device in scans.scan().devices] == [[]]
    (tmp_path / "dev/infiniband/uverbs0").unlink()
    assert scans.poll() == [("rdma", POOL, "0", ["node-missing"])]


def test_a_pool_whose_devices_cannot_be_looked_at_stays_as_it_was_b1(tmp_path: Path) -> None:
    """The devices went into a container's network namespace: the pool is not gone, and nothing is said of selectors."""
    SimulatedNode.create(tmp_path, preset("rdma-2"))
    for number in (0, 1):
        (tmp_path / f"sys/class/infiniband/mlx5_{number}").unlink()
    scan = scanner(tmp_path, mode="shared", pools=[pool(vendors=["15b3"])]).scan()
    assert scan.problems == []
    assert not_examined(scan)[-1] == (POOL, None)


def test_virtual_functions_have_the_ids_and_variables_of_the_sriov_plugin_b2(tmp_path: Path) -> None:
    """PCI addresses, and what CNI plugins and workloads read of them; the physical function is left for its parts."""
    SimulatedNode.create(tmp_path, preset("rdma-sriov"))
    scan = inventory(tmp_path, rdma={"mode": "sriov"})
    assert scan["problems"] == []
    assert by_id(scan) == {"rdma/hca": [f"0000:01:00.{number}" for number in range(1, 5)]}
    device = scan["resources"][0]["devices"][1]
    information = {
        "0000:01:00.2": {
            "generic": {"deviceID": "0000:01:00.2"},
            "rdma": {
                "issm": "/dev/infiniband/issm2",
                "rdma_cm": "/dev/infiniband/rdma_cm",
                "rdma_dev": "mlx5_2",
                "umad": "/dev/infiniband/umad2",
                "uverbs": "/dev/infiniband/uverbs2",
            },
        }
    }
    assert device["envs"] == {
        "PCIDEVICE_RDMA_HCA": "0000:01:00.2",
        "PCIDEVICE_RDMA_HCA_INFO": json.dumps(information, separators=(",", ":")),
    }
    assert device["nodes"] == [node(f"/dev/infiniband/{name}") for name in ("uverbs2", "issm2", "umad2", "rdma_cm")]


def test_the_variables_have_the_name_that_a_rule_gives_b2(tmp_path: Path) -> None:
    """`intel.com/mlnx_sriov-rdma`: dots and the slash are underscores, and nothing else is."""
    SimulatedNode.create(tmp_path, preset("rdma-2"))
    native = scanner(tmp_path, mode="sriov").native
    scan = native.scan()
    edits = native.edits(scan.devices[0], None, "device-plugin", "intel.com/mlnx_sriov-rdma")
    assert edits is not None
    assert sorted(edits.envs) == ["PCIDEVICE_INTEL_COM_MLNX_SRIOV-RDMA", "PCIDEVICE_INTEL_COM_MLNX_SRIOV-RDMA_INFO"]


def test_the_sriov_way_demands_verbs_alone_b2(tmp_path: Path) -> None:
    """The SR-IOV plugin gives what there is."""
    root = planted(tmp_path)
    shutil.rmtree(root / "sys/class/infiniband_mad")
    for path in ("sys/class/misc/rdma_cm", "dev/infiniband/rdma_cm"):
        (root / path).unlink()
    scan = scanner(root, mode="sriov").scan()
    assert scan.problems == []
    assert [device.id for device in scan.devices] == ["0000:3b:00.0", "0000:3b:00.1"]
    assert [found.host_path for found in scan.devices[1].nodes] == ["/dev/infiniband/uverbs1"]


def test_a_device_whose_only_link_goes_is_down_and_one_that_never_had_a_second_is_not(tmp_path: Path) -> None:
    """Many cards have a port without a cable. The policy waits for 30 s before it counts."""
    scans = scanner(planted(tmp_path))
    scans.scan()
    assert scans.poll() == []
    planted(tmp_path, f"{PHYSICAL}/infiniband/mlx4_0/ports/1/state = 1: DOWN")
    assert scans.poll() == [("rdma", "0000:3b:00.0", "mlx4_0", ["port-down"])]
    planted(tmp_path)
    assert scans.poll() == []


def warned(scans: AnsweringScanner) -> list[tuple[str, str, str]]:
    """Device, reason and value of all that is seen."""
    return sorted((look.id, one.reason, one.value) for look in scans.poller.poll() for one in look.findings)


def test_a_link_that_goes_down_is_that_of_the_virtual_functions_too(tmp_path: Path) -> None:
    """Theirs is the cable of the physical function. What was counted before the first look is no event."""
    counters = f"{PHYSICAL}/infiniband/mlx4_0/ports/1/counters"
    scans = scanner(planted(tmp_path, f"{counters}/link_downed = 41", f"{counters}/symbol_error = 7"))
    scans.scan()
    assert warned(scans) == []
    planted(tmp_path, f"{counters}/link_downed = 42", f"{counters}/symbol_error = 1000")
    assert warned(scans) == [("mlx4_0", "link-downed", "42"), ("mlx4_1", "link-downed", "42")]
    planted(tmp_path, f"{counters}/link_downed = 44")
    assert warned(scans) == [
        (device, reason, "44") for device in ("mlx4_0", "mlx4_1") for reason in ("link-downed", "link-flapping")
    ]


def test_counters_that_should_stay_are_a_warning_and_all_are_told_by_device_and_port(tmp_path: Path) -> None:
    """By the kernel's names; what is no number is not told."""
    ports = f"{PHYSICAL}/infiniband/mlx4_0/ports"
    integrity = f"{ports}/2/counters/local_link_integrity_errors"
    lines = (f"{ports}/1/counters/symbol_error = 7", f"{ports}/1/counters/port_rcv_errors = N/A (no PMA)")
    scans = scanner(planted(tmp_path, f"{integrity} = 1", *lines))
    scans.scan()
    assert warned(scans) == []
    planted(tmp_path, f"{integrity} = 3", *lines)
    assert warned(scans) == [("mlx4_0", "link-errors", "3")]
    told = scans.poller.new_counts()
    place = ("0000:3b:00.0", "mlx4_0")
    assert told == [
        (*place, "1", "rdma-errors", "symbol_error", 7),
        (*place, "2", "rdma-errors", "local_link_integrity_errors", 3),
    ]
    assert scans.poller.new_counts() is None


def test_virtual_functions_as_the_kernel_lays_them_out_are_told_by_physical_function_and_number(tmp_path: Path) -> None:
    """What the SR-IOV plugin selects by: `rootDevices`, `pfNames` and numbers, `pKeys`; the name is its uplink's."""
    write_tree(SWITCHDEV.read_text(), tmp_path)

    scan = scanner(tmp_path, mode="sriov").scan()

    assert (scan.problems, scan.unseen) == ([], [])
    told = ("physfn", "pf_name", "vf_index", "pkey", "netdev")
    assert {device.id: [device.attributes.get(name) for name in told] for device in scan.devices} == {
        "0000:17:00.1": ["0000:17:00.0", "ens1f0np0", "0", "0xffff", "ens1f0v0"],
        "0000:17:00.2": ["0000:17:00.0", "ens1f0np0", "1", "0x8001", None],
    }
    assert {path for device in scan.devices for name, path in device.sources.items() if name == "vf_index"} == {
        f"/sys/devices/pci0000:16/0000:16:02.0/0000:17:00.0/virtfn{number}" for number in (0, 1)
    }
    assert [[found.host_path.rpartition("/")[2] for found in device.nodes] for device in scan.devices] == [
        ["uverbs1", "rdma_cm"],
        ["uverbs2", "rdma_cm"],
    ]


def test_rules_of_the_sriov_plugin_choose_functions_by_interface_number_and_partition(tmp_path: Path) -> None:
    """Its configuration, imported, gives each resource the functions that it gives it."""
    write_tree(SWITCHDEV.read_text(), tmp_path)
    resources = [
        {"resourceName": "second", "selectors": {"isRdma": True, "pKeys": ["0x8001"]}},
        {"resourceName": "first", "selectors": {"isRdma": True, "pfNames": ["ens1f0np0#0-3"]}},
    ]
    [imported] = import_text(json.dumps({"resourceList": resources}), "the text", "sriov")

    report = scan_once(resolve(Config.model_validate({"host_root": tmp_path, **imported.config})))

    assert {one.name: [device.id for device in one.devices] for one in report.offers} == {
        "intel.com/first": ["0000:17:00.1"],
        "intel.com/second": ["0000:17:00.2"],
    }


def test_a_subfunction_is_told_from_its_card(tmp_path: Path) -> None:
    """Both are RDMA devices at one PCI address; the auxiliary device is the subfunction's own."""
    node = SimulatedNode.create(tmp_path, preset("rdma-2"))
    function = node.functions.path_of("0000:01:00.0").relative_to(tmp_path.resolve())
    part = f"{function}/mlx5_core.sf.2/infiniband/mlx5_9"
    nodes = (
        f"sys/class/{kind}/{name}/ibdev = mlx5_9\nsys/class/{kind}/{name}/dev = 231:{minor}"
        for kind, name, minor in (("infiniband_verbs", "uverbs9", 201), ("infiniband_mad", "umad9", 9))
    )
    write_tree(
        "\n".join([f"{part}/node_type = 1: CA", f"sys/class/infiniband/mlx5_9 -> ../../../{part}", *nodes]), tmp_path
    )
    devices = {device.id: device for device in scanner(tmp_path).native.scan().devices}
    at = ("pci_address", "subfunction")
    assert [devices["mlx5_0"].attributes.get(name) for name in at] == ["0000:01:00.0", None]
    assert [devices["mlx5_9"].attributes.get(name) for name in at] == ["0000:01:00.0", "mlx5_core.sf.2"]
