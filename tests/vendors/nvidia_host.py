"""Hosts with NVIDIA GPUs, simulated or as text, and the scan core told to look for them alone."""

from pathlib import Path
from typing import Any

from answering import Answered, AnsweredScan, AnsweringScanner, core_settings

from devherd.config.loader import resolve
from devherd.config.model import Config
from devherd.scanner.observer import Observer
from devherd_sim.node.entry import DeviceNode, Entry, File, attributes, link, named_link
from devherd_sim.node.nvidia import NvidiaSpec
from devherd_sim.node.simulated_node import SimulatedNode
from devherd_sim.node.spec import NodeSpec
from devherd_sim.node.tree import write_tree

UUIDS = [f"GPU-{number:08x}-0000-0000-0000-000000000000" for number in range(8)]


def simulated(root: Path, **spec: Any) -> SimulatedNode:
    """A simulated node with these GPUs."""
    return SimulatedNode.create(root / "node", NodeSpec(nvidia=NvidiaSpec(**spec)))


def scanner(root: Path, **options: Any) -> AnsweringScanner:
    """The scan core with these options of NVIDIA's."""
    return AnsweringScanner(str(root), core_settings(root, nvidia=options))


def scanned(root: Path, **options: Any) -> AnsweredScan:
    """One scan with these options of NVIDIA's."""
    return scanner(root, **options).scan()


def observer(root: Path, **options: Any) -> Observer:
    """From the host to resources, with what is remembered between two scans."""
    return Observer(resolve(Config.model_validate({"host_root": root, "vendors": {"nvidia": options}})))


def by_resource(scan: AnsweredScan) -> dict[str, list[str]]:
    """Resource name → what users call each device: `0`, `1:2`; its id where it has no such name."""
    resources: dict[str, list[str]] = {}
    for device in scan.devices:
        resources.setdefault(str(device.resource_name), []).append(device.attributes.get("index", device.id))
    return {name: sorted(indexes) for name, indexes in sorted(resources.items())}


def by_index(scan: AnsweredScan) -> dict[str, Answered]:
    """Devices by index."""
    return {device.attributes["index"]: device for device in scan.devices}


def complaints(scan: AnsweredScan) -> list[str]:
    """Where each problem is, and what it is."""
    return [f"{problem.path}: {problem.error}" for problem in scan.problems]


def node_paths(device: Answered) -> list[str]:
    """Host paths of a device's nodes."""
    return [node.host_path for node in device.nodes]


def card(address: str, minor: int, *more: str, uuid: str | None = None, model: str = "NVIDIA L4") -> list[Entry]:
    """One GPU and its driver; `more` are lines of its `information`."""
    function = f"sys/devices/pci0000:00/0000:00:01.0/{address}"
    information = [
        f"Model: \t\t {model}",
        *([f"GPU UUID: \t {uuid}"] if uuid else []),
        f"Device Minor: \t {minor}",
        *more,
    ]
    facts = {
        "uevent": "DRIVER=nvidia\nPCI_CLASS=30200\nPCI_ID=10DE:27B8",
        "vendor": "0x10de",
        "class": "0x030200",
        "numa_node": "0",
    }
    return [
        *attributes(function, facts),
        link(f"{function}/driver", "sys/bus/pci/drivers/nvidia"),
        named_link("sys/bus/pci/devices", function),
        named_link("sys/bus/pci/drivers/nvidia", function),
        File.line(f"proc/driver/nvidia/gpus/{address}/information", "\n".join(information)),
        DeviceNode(f"dev/nvidia{minor}", "char", 195, minor),
    ]


def vgpu(uuid: str, gpu: str, kind: str = "NVIDIA A40-48Q", group: int = 21) -> list[Entry]:
    """A mediated device of a function, by its directory in sysfs, under the VFIO driver of NVIDIA's vGPU manager.

    drivers/vfio/mdev/mdev_sysfs.c of Linux, and the README of NVIDIA/kubevirt-gpu-device-plugin, v1.6.0.
    """
    of_type = f"{gpu}/mdev_supported_types/nvidia-{kind.rpartition('-')[2]}"
    mdev = f"{gpu}/{uuid}"
    return [
        File.line(f"{of_type}/name", kind),
        link(f"{mdev}/mdev_type", of_type),
        link(f"{mdev}/driver", "sys/bus/mdev/drivers/nvidia-vgpu-vfio"),
        link(f"{mdev}/iommu_group", f"sys/kernel/iommu_groups/{group}"),
        named_link("sys/bus/mdev/devices", mdev),
        DeviceNode(f"dev/vfio/{group}", "char", 511, group),
        DeviceNode("dev/vfio/vfio", "char", 10, 196),
    ]


def planted(root: Path, *trees: str | list[Entry]) -> Path:
    """A host of these trees, one upon another."""
    for tree in trees:
        write_tree(tree, root)
    return root
