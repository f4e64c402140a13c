"""Each NVIDIA preset, as `devherd scan --output json` tells it: what NVIDIA's plugin would advertise there."""

from pathlib import Path
from typing import Any

import pytest
from nvidia_host import by_resource, scanned

from devherd.config.loader import resolve
from devherd.config.model import Config
from devherd.instance import inventory_json
from devherd.scanner.once import scan_once
from devherd_sim.node.presets import PRESETS, preset
from devherd_sim.node.simulated_node import SimulatedNode

EIGHT = [str(index) for index in range(8)]
SIXTEEN = sorted(str(index) for index in range(16))
SEVENTHS = [f"{gpu}:{place}" for gpu in range(2) for place in range(7)]

ADVERTISED: dict[tuple[str, str], dict[str, list[str]]] = {
    ("nvidia-1", "none"): {"nvidia.com/gpu": ["0"]},
    ("nvidia-8", "none"): {"nvidia.com/gpu": EIGHT},
    ("nvidia-8", "single"): {"nvidia.com/gpu": EIGHT},
    ("nvidia-8", "mixed"): {"nvidia.com/gpu": EIGHT},
    ("nvidia-16", "none"): {"nvidia.com/gpu": SIXTEEN},
    ("nvidia-8-nvlink", "none"): {"nvidia.com/gpu": EIGHT},
    ("nvidia-8-nvswitch", "none"): {"nvidia.com/gpu": EIGHT},
    ("nvidia-16-nvswitch", "none"): {"nvidia.com/gpu": SIXTEEN},
    ("nvidia-mig", "none"): {"nvidia.com/gpu": ["0", "1", "2", "3"]},
    ("nvidia-mig", "mixed"): {
        "nvidia.com/gpu": ["0", "1"],
        "nvidia.com/mig-1g.10gb": ["2:2", "3:2"],
        "nvidia.com/mig-2g.20gb": ["2:1", "3:1"],
        "nvidia.com/mig-3g.40gb": ["2:0", "3:0"],
    },
    ("nvidia-mig-single", "none"): {"nvidia.com/gpu": ["0", "1"]},
    ("nvidia-mig-single", "single"): {"nvidia.com/gpu": SEVENTHS},
    ("nvidia-mig-single", "mixed"): {"nvidia.com/mig-1g.10gb": SEVENTHS},
    ("nvidia-mig-procfs", "none"): {"nvidia.com/gpu": ["0", "1"]},
}


def test_every_preset_is_compared():
    """None is forgotten; the odd one has its own test."""
    assert {name for name, _ in ADVERTISED} | {"nvidia-odd"} == {name for name in PRESETS if name.startswith("nvidia")}


@pytest.mark.parametrize(("name", "strategy"), ADVERTISED)
def test_a_preset_makes_these_devices_healthy_and_no_problem(name: str, strategy: str, tmp_path: Path):
    """Names and indexes under each MIG strategy."""
    node = SimulatedNode.create(tmp_path / "node", preset(name))
    scan = scanned(node.root, mig_strategy=strategy)
    assert by_resource(scan) == ADVERTISED[name, strategy]
    assert [(device.id, device.reasons) for device in scan.devices if device.reasons] == []
    assert scan.problems == []


@pytest.mark.parametrize(("name", "strategy"), ADVERTISED)
def test_a_container_is_given_its_device_by_uuid(name: str, strategy: str, tmp_path: Path):
    """The vendor's default answer, in the JSON of the scan: one variable, nothing else."""
    for device in told(tmp_path, name, mig_strategy=strategy):
        assert device["id"] == device["attributes"]["uuid"]
        assert device["id"].startswith("MIG-" if ":" in device["attributes"]["index"] else "GPU-")
        assert answer(device) == {"envs": {"NVIDIA_VISIBLE_DEVICES": device["id"]}}


def test_gpus_are_near_the_numa_node_of_their_switch(tmp_path: Path):
    """4 of 8 near each of two nodes, as PCI says."""
    near = {device["attributes"]["index"]: device["numa_nodes"] for device in told(tmp_path, "nvidia-8")}
    assert near == {str(index): [index // 4] for index in range(8)}


def test_one_gpu_whose_uuid_is_unknown_costs_no_other(tmp_path: Path):
    """N18: the excluded GPU is left out of the count without a word, the uninitialised one waits and says so."""
    report = scanned(SimulatedNode.create(tmp_path / "node", preset("nvidia-odd")).root)
    assert by_resource(report) == {"nvidia.com/gpu": ["0", "2"]}
    (problem,) = report.problems
    assert (problem.device, problem.path) == (
        "0000:02:00.0",
        "/proc/driver/nvidia/gpus/0000:02:00.0/information",
    )
    assert "nvidia-persistenced" in problem.error
    assert {device.attributes["excluded_gpus"] for device in report.devices} == {"0000:03:00.0"}


def test_a_mig_device_tells_its_facts(tmp_path: Path):
    """Its own memory and profile, its GPU's model; every fact has a source."""
    node = SimulatedNode.create(tmp_path / "node", preset("nvidia-mig"))
    device = next(
        device
        for device in scanned(node.root, mig_strategy="mixed").devices
        if device.attributes.get("mig_index") == "2:1"
    )
    assert device.attributes == {
        "pcie_root": "pci0000:80",
        "pci_address": "0000:81:00.0",
        "pci_driver": "nvidia",
        "pci_class": "0x030200",
        "vendor_id": "0x10de",
        "device_id": "0x2330",
        "subsystem_vendor_id": "0x10de",
        "subsystem_device_id": "0x0000",
        "numa_node": "1",
        "driver_version": "580.95.05",
        "cuda_version": "13.0",
        "model": "NVIDIA H100 80GB HBM3",
        "serial": "1565023010002",
        "slot": "129",
        "mode": "compute",
        "minor": "2",
        "video_bios": "96.00.74.00.01",
        "gpu_firmware": "580.95.05",
        "uuid": device.id,
        "gpu_uuid": "GPU-72ed8267-c4e4-5ae4-88ec-9fd415664e3c",
        "gpu_index": "2",
        "index": "2:1",
        "compute_capability": "9.0",
        "brand": "Nvidia",
        "architecture": "Hopper",
        "addressing_mode": "None",
        "memory_bytes": str(20389 << 20),
        "mig_index": "2:1",
        "mig_profile": "2g.20gb",
        "mig_profile_id": "14",
        "mig_placement_start": "2",
        "mig_placement_size": "2",
        "gpu_instance": "3",
        "compute_instance": "0",
        "gpu_slices": "2",
        "compute_slices": "2",
        "multiprocessors": "32",
        "engines_copy": "2",
        "engines_decoder": "2",
        "engines_encoder": "0",
        "engines_jpeg": "2",
        "engines_ofa": "0",
    }
    assert device.sources.keys() == device.attributes.keys()
    files = {source for source in device.sources.values() if source != "NVML"}
    assert all((node.root / source.removeprefix("/")).exists() for source in files)
    assert device.sources["mig_profile"] == "NVML"
    assert device.card == "0000:81:00.0"


def told(root: Path, name: str, **options: Any) -> list[dict[str, Any]]:
    """The devices of `devherd scan --output json`."""
    node = SimulatedNode.create(root / "node", preset(name))
    report = scan_once(resolve(Config.model_validate({"host_root": node.root, "vendors": {"nvidia": options}})))
    told = inventory_json.inventory_json(report.offers, report.problems, report.duration_seconds)
    return [device for resource in told["resources"] for device in resource["devices"]]


def answer(device: dict[str, Any]) -> dict[str, Any]:
    """What Allocate answers with, as far as there is anything."""
    parts = ("nodes", "mounts", "envs", "annotations", "cdi_devices")
    return {part: device[part] for part in parts if device[part]}
