"""Simulated nodes with Intel GPUs: each scans to what the vendor's plugin would advertise."""

from pathlib import Path
from typing import Any

from answering import AnsweringScanner, core_settings
from whole_scan import by_id, inventory, node

from devherd._native import Scanner
from devherd_sim.node import faults
from devherd_sim.node.presets import preset
from devherd_sim.node.simulated_node import SimulatedNode


def simulated(root: Path, name: str) -> SimulatedNode:
    """The preset's node."""
    return SimulatedNode.create(root, preset(name))


FLEX_170 = {"model": "Flex 170", "family": "Data Center Flex"}
B580 = {"model": "B580", "family": "Arc B-Series"}


def facts(card: int, address: str, driver: str, device_id: str) -> dict[str, str]:
    """The attributes of a simulated card."""
    return (FLEX_170 if device_id == "0x56c0" else B580) | {
        "card": f"card{card}",
        "device_id": device_id,
        "driver": driver,
        "numa_node": "0",
        "pcie_root": "pci0000:00",
        "pci_address": address,
        "pci_class": "0x030000",
        "pci_driver": driver,
        "slot": str(int(address.split(":")[1], 16)),
        "sriov": "true",
        "subsystem_device_id": "0x0000",
        "subsystem_vendor_id": "0x8086",
        "vendor_id": "0x8086",
    }


def device(card: int, address: str, attributes: dict[str, str]) -> dict[str, Any]:
    """What a card's one share is to say."""
    by_path = [f"/dev/dri/by-path/pci-{address}-{kind}" for kind in ("card", "render")]
    return {
        "id": f"card{card}-0",
        "health": "Healthy",
        "reasons": [],
        "warnings": [],
        "numa_nodes": [0],
        "nodes": [node(f"/dev/dri/card{card}"), node(f"/dev/dri/renderD{128 + card}")],
        "mounts": [{"host_path": path, "container_path": path, "read_only": True} for path in by_path],
        "envs": {},
        "annotations": {},
        "cdi_devices": [f"intel.cdi.k8s.io/gpu=card{card}"],
        "attributes": attributes,
    }


def test_the_preset_of_two_cards_is_advertised_as_the_vendors_plugin_does(tmp_path: Path) -> None:
    """One resource for each driver; the whole JSON is compared."""
    simulated(tmp_path, "intel-gpu-2")
    scan = inventory(tmp_path)
    assert scan["problems"] == []
    assert scan["resources"] == [
        {
            "name": "gpu.intel.com/i915",
            "vendor": "intel-gpu",
            "devices": [device(0, "0000:01:00.0", facts(0, "0000:01:00.0", "i915", "0x56c0"))],
        },
        {
            "name": "gpu.intel.com/xe",
            "vendor": "intel-gpu",
            "devices": [device(1, "0000:02:00.0", facts(1, "0000:02:00.0", "xe", "0xe20b"))],
        },
    ]


def test_the_preset_with_virtual_functions_gives_these_away_and_not_the_physical_one(tmp_path: Path) -> None:
    """`card0` is the physical function: it is left out, and each of its 7 parts is a device."""
    simulated(tmp_path, "intel-gpu-sriov")
    scan = inventory(tmp_path)
    assert scan["problems"] == []
    addresses = {card: f"0000:01:00.{card}" for card in range(1, 8)}
    assert scan["resources"] == [
        {
            "name": "gpu.intel.com/xe",
            "vendor": "intel-gpu",
            "devices": [
                device(
                    card, address, facts(card, address, "xe", "0xe20b") | {"physfn": "0000:01:00.0", "sriov": "false"}
                )
                for card, address in addresses.items()
            ],
        }
    ]


def test_shares_and_monitoring_are_advertised_as_the_vendors_plugin_does(tmp_path: Path) -> None:
    """Each share is the whole card; the monitor has every card's nodes and the management engines'."""
    simulated(tmp_path, "intel-gpu-2")
    scan = inventory(tmp_path, intel_gpu={"shared_devices": 2, "monitoring": True})
    assert by_id(scan) == {
        "gpu.intel.com/i915": ["card0-0", "card0-1"],
        "gpu.intel.com/monitoring": ["all"],
        "gpu.intel.com/xe": ["card1-0", "card1-1"],
    }
    first, second = scan["resources"][0]["devices"]
    assert first | {"id": ""} == second | {"id": ""}
    monitor = scan["resources"][1]["devices"][0]
    assert monitor["nodes"] == [
        *(node(f"/dev/{name}") for name in ("dri/card0", "dri/renderD128", "mei0")),
        *(node(f"/dev/{name}") for name in ("dri/card1", "dri/renderD129", "mei1")),
    ]
    assert (monitor["numa_nodes"], monitor["mounts"], monitor["cdi_devices"]) == (None, [], [])


def test_64_cards_are_on_their_numa_nodes(tmp_path: Path) -> None:
    """Natural order of ids; half of the cards near each node."""
    simulated(tmp_path, "intel-gpu-64")
    devices = inventory(tmp_path)["resources"][0]["devices"]
    assert [found["id"] for found in devices] == [f"card{card}-0" for card in range(64)]
    assert [found["numa_nodes"] for found in devices] == [[0]] * 32 + [[1]] * 32


def test_a_card_that_leaves_and_one_whose_driver_lets_go_are_gone_and_come_back(tmp_path: Path) -> None:
    """Both take the DRM card away; repaired, the same devices are there."""
    node = simulated(tmp_path, "intel-gpu-2")
    scans = Scanner(str(tmp_path), core_settings(tmp_path))
    before = scans.scan()
    for fault in (node.functions.pull_out, node.functions.unbind):
        fault("0000:02:00.0")
        without = scans.scan()
        assert [found.id for found in without.devices] == ["card0-0"]
        assert without.problems == []
        node.repair(preset("intel-gpu-2"))
        assert scans.scan().devices == before.devices


def test_a_node_that_vanishes_is_missing_until_it_is_back(tmp_path: Path) -> None:
    """Health polling says so at once, the next scan too."""
    node = simulated(tmp_path, "intel-gpu-2")
    scans = AnsweringScanner(str(tmp_path), core_settings(tmp_path))
    scans.scan()
    faults.inject(node, "node", "dri/renderD129")
    assert scans.poll() == [("intel-gpu", "0000:02:00.0", "card1-0", ["node-missing"])]
    assert [found.reasons for found in scans.scan().devices] == [[], ["node-missing"]]
    node.repair(preset("intel-gpu-2"))
    assert scans.poll() == []
