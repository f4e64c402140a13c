"""Nodes with NVIDIA GPUs. NVLink and MIG profiles are known to NVML alone, so a node with either has NVML."""

from devherd_sim.node.nvidia import NvidiaSpec
from devherd_sim.node.presets.preset import Preset
from devherd_sim.node.spec import NodeSpec

_SEVENTHS = ["1g.10gb"] * 7
_MIXED = ["3g.40gb", "2g.20gb", "1g.10gb"]

PRESETS = {
    "nvidia-1": Preset("one NVIDIA GPU, without NVML", NodeSpec(nvidia=NvidiaSpec())),
    "nvidia-8": Preset(
        "8 NVIDIA GPUs in pairs below PCIe switches on 2 NUMA nodes, without NVML",
        NodeSpec(nvidia=NvidiaSpec(gpus=8, numa_nodes=2, gpus_a_switch=2)),
    ),
    "nvidia-16": Preset(
        "16 NVIDIA GPUs, 4 below each PCIe switch, on 2 NUMA nodes, without NVML",
        NodeSpec(nvidia=NvidiaSpec(gpus=16, numa_nodes=2, gpus_a_switch=4)),
    ),
    "nvidia-8-nvlink": Preset(
        "8 NVIDIA GPUs in a cube mesh of NVLinks (DGX-1), with NVML",
        NodeSpec(nvidia=NvidiaSpec(gpus=8, model="v100", numa_nodes=2, gpus_a_switch=2, nvml=True, nvlink="direct")),
    ),
    "nvidia-8-nvswitch": Preset(
        "8 NVIDIA GPUs on NVLink switches (HGX), with NVML",
        NodeSpec(nvidia=NvidiaSpec(gpus=8, numa_nodes=2, gpus_a_switch=2, nvml=True, nvlink="switch")),
    ),
    "nvidia-16-nvswitch": Preset(
        "16 NVIDIA GPUs on NVLink switches, with NVML",
        NodeSpec(nvidia=NvidiaSpec(gpus=16, numa_nodes=2, gpus_a_switch=4, nvml=True, nvlink="switch")),
    ),
    "nvidia-mig": Preset(
        "4 NVIDIA GPUs, with NVML: two whole, two with MIG devices of three kinds",
        NodeSpec(nvidia=NvidiaSpec(gpus=4, numa_nodes=2, nvml=True, mig=[None, None, _MIXED, _MIXED])),
    ),
    "nvidia-mig-single": Preset(
        "2 NVIDIA GPUs, with NVML: seven MIG devices of one kind on each",
        NodeSpec(nvidia=NvidiaSpec(gpus=2, nvml=True, mig=[_SEVENTHS, _SEVENTHS])),
    ),
    "nvidia-mig-procfs": Preset(
        "2 NVIDIA GPUs with seven MIG devices on each, without NVML",
        NodeSpec(nvidia=NvidiaSpec(gpus=2, mig=[_SEVENTHS, _SEVENTHS])),
    ),
    "nvidia-odd": Preset(
        "4 NVIDIA GPUs, without NVML: one not initialised yet, one excluded",
        NodeSpec(nvidia=NvidiaSpec(gpus=4, uninitialised=[1], excluded=[2])),
    ),
}
