"""Every simulated node with AMD GPUs: what is advertised, what is told of each device, and how far they are apart."""

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from itertools import combinations
from pathlib import Path

import pytest
from amd_host import advertised_by_the_vendors_plugin, by_id, host, names, scanned
from answering import poller_of, scanner_of

from devherd._native import NaturalKey
from devherd.scanner.core import settled_looks
from devherd_sim.node.amd import AmdSpec
from devherd_sim.node.presets import PRESETS
from devherd_sim.node.simulated_node import SimulatedNode

UNDER_AMDGPU = ["amd-1", "amd-8", "amd-8-spx", "amd-8-cpx", "amd-8-mi308", "amd-16", "amd-mixed"]


Roots = Callable[[str], Path]
"""The fixture `preset_root`."""


@pytest.mark.parametrize("name", UNDER_AMDGPU)
def test_a_preset_gives_the_devices_of_the_vendors_plugin(name: str, preset_root: Roots):
    """The same ids with the same nodes, all Healthy; nothing else is answered to Allocate."""
    root = preset_root(name)
    scan = scanned(root)
    expected = advertised_by_the_vendors_plugin(root)
    assert {device.id: [node.host_path for node in device.nodes] for device in scan.devices} == expected
    for device in scan.devices:
        assert {(node.container_path == node.host_path, node.permissions) for node in device.nodes} == {(True, "rw")}
        assert (device.reasons, device.envs, device.mounts) == ([], {}, [])
        assert (device.annotations, device.cdi_devices) == ({}, [])


@pytest.mark.parametrize("name", UNDER_AMDGPU)
def test_the_command_prints_what_the_vendors_plugin_advertises(name: str, preset_root: Roots):
    """`devherd scan --output json`, whole: one resource, its devices in natural order, each with what it answers."""
    root = preset_root(name)
    expected = advertised_by_the_vendors_plugin(root)
    command = [sys.executable, "-m", "devherd", "scan", "--host-root", str(root), "--output", "json"]
    printed = json.loads(subprocess.run(command, capture_output=True, check=True, text=True, timeout=60).stdout)
    (resource,) = printed["resources"]
    assert (resource["name"], resource["vendor"]) == ("amd.com/gpu", "amd")
    devices = resource["devices"]
    assert [device["id"] for device in devices] == sorted(expected, key=NaturalKey)
    for device in devices:
        assert device["nodes"] == [
            {"host_path": path, "container_path": path, "permissions": "rw"} for path in expected[device["id"]]
        ]
        assert (device["health"], device["reasons"]) == ("Healthy", [])
        assert not any(device[answer] for answer in ("mounts", "envs", "annotations", "cdi_devices"))
    assert len(printed["problems"]) == (name == "amd-mixed")


@pytest.mark.parametrize(
    ("name", "single", "mixed"),
    [
        ("amd-1", {"amd.com/gpu": 1}, {"amd.com/gpu": 1}),
        ("amd-8", {"amd.com/gpu": 8}, {"amd.com/gpu": 8}),
        ("amd-8-spx", {"amd.com/gpu": 8}, {"amd.com/spx_nps1": 8}),
        ("amd-8-cpx", {"amd.com/gpu": 63}, {"amd.com/cpx_nps4": 63}),
        ("amd-8-mi308", {"amd.com/gpu": 32}, {"amd.com/cpx_nps1": 32}),
        ("amd-16", {"amd.com/gpu": 16}, {"amd.com/gpu": 16}),
        ("amd-mixed", {"amd.com/gpu": 18}, {"amd.com/cpx_nps1": 16, "amd.com/spx_nps1": 1, "amd.com/gpu": 1}),
        ("amd-vf-passthrough", {"amd.com/gpu": 4}, {"amd.com/gpu_vf": 4}),
        ("amd-pf-passthrough", {"amd.com/gpu": 4}, {"amd.com/gpu_pf": 4}),
    ],
)
def test_a_preset_has_its_resources_in_both_namings(
    name: str, single: dict[str, int], mixed: dict[str, int], preset_root: Roots
):
    """Nobody is in two resources, and nobody in none."""
    root = preset_root(name)
    assert names(scanned(root, naming="single")) == single
    assert names(scanned(root, naming="mixed")) == mixed


def test_a_partition_tells_its_facts_and_where_they_were_read(preset_root: Roots):
    """In the vendor's words, each with a file of the host."""
    root = preset_root("amd-8-cpx")
    device = by_id(scanned(root))["amdgpu_xcp_9"]
    assert device.attributes == {
        "pcie_root": "pci0000:26",
        "pci_address": "0000:27:00.0",
        "pci_driver": "amdgpu",
        "pci_class": "0x120000",
        "vendor_id": "0x1002",
        "device_id": "0x74a1",
        "subsystem_vendor_id": "0x1002",
        "subsystem_device_id": "0x0000",
        "numa_node": "0",
        "product_name": "AMD Instinct MI300X OAM",
        "serial": "692231010001",
        "slot": "39",
        "compute_partition": "cpx",
        "memory_partition": "nps4",
        "partition": "3",
        "card_minor": "12",
        "render_minor": "139",
        "kfd_node": "13",
        "gfx_target_version": "90402",
        "simd_count": "152",
        "cu_count": "38",
        "num_xcc": "1",
        "unique_id": "0xf0a1000000000001",
        "vram_bytes": "25767706624",
        "driver_version": "6.8.5",
        "driver_src_version": "8D5A2B3C4E5F60718293A4B",
        "xgmi_gpus": ",".join(f"0000:{bus}:00.0" for bus in ["05", "47", "65", "85", "a7", "c7", "e5"]),
    }
    assert device.sources["xgmi_gpus"] == "/sys/class/kfd/kfd/topology/nodes/10/io_links", "of the first partition"
    assert device.sources.keys() == device.attributes.keys()
    assert all((root / path.removeprefix("/")).exists() for path in device.sources.values())
    assert (device.card, device.numa_nodes) == ("0000:27:00.0", [0])
    assert [node.host_path for node in device.nodes] == ["/dev/kfd", "/dev/dri/card12", "/dev/dri/renderD139"]


@pytest.mark.parametrize(
    ("name", "first_minors", "each", "buses"),
    [
        ("amd-8", range(128, 136), 1, "63 43 03 26 e3 c3 83 a3"),
        ("amd-8-cpx", range(128, 192, 8), 8, "05 27 47 65 85 a7 c7 e5"),
        ("amd-8-mi308", range(128, 192, 8), 4, "0a 80 a4 c8 1:0b 1:81 1:a5 1:c9"),
    ],
)
def test_a_render_node_is_found_its_gpu(name: str, first_minors: range, each: int, buses: str, preset_root: Roots):
    """The table of amd.md 4.1: render minor to GPU, as captured on real machines."""
    addresses = [f"{int(bus[:-3] or '0'):04x}:{bus[-2:]}:00.0" for bus in buses.split()]
    expected = {
        minor: address
        for first, address in zip(first_minors, addresses, strict=True)
        for minor in range(first, first + each)
        if minor != 191  # the partition that is lost
    }
    scan = scanned(preset_root(name))
    assert {int(device.attributes["render_minor"]): device.card for device in scan.devices} == expected


def test_the_node_of_a_partition_is_found_by_its_render_minor(preset_root: Roots):
    """amd.md 4.1: on this machine node number = minor - 126."""
    devices = scanned(preset_root("amd-8-cpx")).devices
    assert len(devices) == 63
    for device in devices:
        assert int(device.attributes["kfd_node"]) == int(device.attributes["render_minor"]) - 126


@pytest.mark.parametrize(
    ("name", "count", "figures"),
    [
        ("amd-1", 1, ("17163091968", "256", "64")),
        ("amd-8", 8, ("68702699520", "416", "104")),
        ("amd-8-cpx", 63, ("25767706624", "152", "38")),
        ("amd-8-mi308", 32, ("51539607552", "80", "20")),
    ],
)
def test_memory_and_compute_units_are_those_of_the_partition(
    name: str, count: int, figures: tuple[str, str, str], preset_root: Roots
):
    """The figures that the labels of amd.md 4.1 are made of."""
    found = [
        tuple(device.attributes[fact] for fact in ("vram_bytes", "simd_count", "cu_count"))
        for device in scanned(preset_root(name)).devices
    ]
    assert found == [figures] * count


def pair_weights(root: Path) -> Counter[int | None]:
    """How many pairs of devices have each distance; None: not named."""
    devices = scanned(root).devices
    return Counter(one.distances.get(other.card) for one, other in combinations(devices, 2))


def test_distances_are_the_vendors_weights(preset_root: Roots):
    """amd.md 4.2: on the machine with two hives 12 pairs of 40 and 16 of 80; partitions of one GPU are 30 apart."""
    assert pair_weights(preset_root("amd-8")) == {40: 12, 80: 16}
    assert pair_weights(preset_root("amd-8-mi308")) == {30: 8 * 6, 40: 12 * 16, 50: 16 * 16}


def test_distances_are_mutual_and_name_the_own_card(preset_root: Roots):
    """So that any two devices agree on how far they are apart."""
    devices = scanned(preset_root("amd-8-cpx")).devices
    assert len(devices) == 63
    for device in devices:
        assert device.distances[device.card] == 30
        assert all(other.distances[device.card] == device.distances[other.card] for other in devices)


def test_gpus_without_a_link_are_the_farthest(tmp_path: Path):
    """amd.md 6 number 35: without p2p_links the vendor's plugin prefers the GPUs that are not connected."""
    root = host(tmp_path, AmdSpec(cards=8, numa_nodes=2, hives=2, p2p=False))
    assert pair_weights(root) == {40: 12, None: 16}


@pytest.mark.parametrize("preset_name", ["amd-8", "amd-8-cpx"])
def test_a_gpu_that_is_too_hot_is_warned_of_with_all_its_partitions(preset_name: str, tmp_path: Path):
    """By the limits of its own sensors. It lowers its clocks, and goes on: a pod may have it."""
    root = SimulatedNode.create(tmp_path, PRESETS[preset_name].spec).root
    scanner, scan = scanner_of(root)
    poller = poller_of(scanner, scan)
    gpu = scan.devices[0].attributes["pci_address"]
    assert settled_looks(poller) == []
    junction = min(root.glob(f"sys/devices/pci*/**/{gpu}/hwmon/hwmon*/temp2_input"))
    for millidegrees, is_hot in ((109_999, False), (110_000, True), (105_000, True), (104_999, False)):
        junction.write_text(f"{millidegrees}\n")
        found = {look.id: [(one.source, one.value) for one in look.findings] for look in settled_looks(poller)}
        parts = [device.id for device in scan.devices if device.attributes["pci_address"] == gpu]
        assert found == ({part: [("gpu-temperature", str(millidegrees))] for part in parts} if is_hot else {})
