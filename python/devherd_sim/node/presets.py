"""Presets: specs of nodes by name.

Presets with PCI addresses reproduce real machines.
"""

from dataclasses import dataclass

from devherd.config.types import meant
from devherd.errors import UsageError
from devherd_sim.node.amd import AmdSpec
from devherd_sim.node.intel_fpga import AFU_IDS
from devherd_sim.node.intel_gpu import IntelGpuSpec
from devherd_sim.node.nvidia import NvidiaSpec
from devherd_sim.node.rdma import RdmaSpec
from devherd_sim.node.spec import DeviceSpec, FpgaSpec, NodeSpec, UsbSpec
from devherd_sim.node.xilinx_fpga import XilinxFpgaSpec


@dataclass(frozen=True, slots=True)
class Preset:
    """A spec and a one-line summary."""

    summary: str
    spec: NodeSpec


_MI210 = ["63", "43", "03", "26", "e3", "c3", "83", "a3"]
_MI300X = ["05", "27", "47", "65", "85", "a7", "c7", "e5"]
_MI308X = ["0000:0a", "0000:80", "0000:a4", "0000:c8", "0001:0b", "0001:81", "0001:a5", "0001:c9"]


def _mi300x(**changes: object) -> AmdSpec:
    whole = AmdSpec(model="mi300x", addresses=[f"0000:{bus}:00.0" for bus in _MI300X], numa_nodes=2, display=True)
    return whole.model_copy(update=changes)


_VIRTUAL = AmdSpec(model="mi300x", cards=2, numa_nodes=2, driver="gim", vfs=2)

_AMD = {
    "amd-1": Preset("one AMD GPU (Vega 10) under an old kernel", NodeSpec(amd=[AmdSpec(model="vega10", hives=0)])),
    "amd-8": Preset(
        "8 AMD GPUs (MI210) in two hives on 2 NUMA nodes",
        NodeSpec(amd=[AmdSpec(addresses=[f"0000:{bus}:00.0" for bus in _MI210], numa_nodes=2, hives=2)]),
    ),
    "amd-8-spx": Preset("8 AMD GPUs (MI300X), not split", NodeSpec(amd=[_mi300x()])),
    "amd-8-cpx": Preset(
        "8 AMD GPUs (MI300X) in 63 partitions: the DRM minors do not suffice for the 64th",
        NodeSpec(amd=[_mi300x(compute_partition="CPX", memory_partition="NPS4")]),
    ),
    "amd-8-mi308": Preset(
        "8 AMD GPUs (MI308X) in 4 partitions each, on two PCI domains",
        NodeSpec(
            amd=[
                AmdSpec(
                    model="mi308x",
                    addresses=[f"{bus}:00.0" for bus in _MI308X],
                    numa_nodes=2,
                    compute_partition="CPX",
                )
            ]
        ),
    ),
    "amd-16": Preset(
        "16 AMD GPUs (MI210) in two hives on 2 NUMA nodes", NodeSpec(amd=[AmdSpec(cards=16, numa_nodes=2, hives=2)])
    ),
    "amd-mixed": Preset(
        "4 AMD GPUs of three kinds: 2 partitioned (MI300X), one not split, one that cannot be (MI210)",
        NodeSpec(
            amd=[
                AmdSpec(model="mi300x", cards=2, numa_nodes=2, compute_partition="CPX"),
                AmdSpec(model="mi300x", numa_nodes=2),
                AmdSpec(numa_nodes=2),
            ]
        ),
    ),
    "amd-vf-passthrough": Preset(
        "2 AMD GPUs (MI300X) as 4 virtual functions for virtual machines", NodeSpec(amd=[_VIRTUAL])
    ),
    "amd-pf-passthrough": Preset(
        "4 AMD GPUs (MI210) for virtual machines, whole",
        NodeSpec(amd=[AmdSpec(cards=4, numa_nodes=2, driver="vfio-pci")]),
    ),
}


_MIXED = ["3g.40gb", "2g.20gb", "1g.10gb"]

_EVERYTHING = {
    "everything": Preset(
        "devices of every vendor on 2 NUMA nodes: 8 NVIDIA GPUs (NVLink, MIG), 8 AMD GPUs (2 partitioned) and the rest",
        NodeSpec(
            fpga=[FpgaSpec(cards=2, numa_nodes=2), FpgaSpec(driver="opae", vfs=2, afu_ids=[AFU_IDS[1]])],
            nvidia=NvidiaSpec(
                gpus=8,
                numa_nodes=2,
                gpus_a_switch=2,
                nvml=True,
                nvlink="switch",
                mig=[*[None] * 6, _MIXED, _MIXED],
            ),
            amd=[
                AmdSpec(cards=6, numa_nodes=2, hives=2),
                AmdSpec(model="mi300x", cards=2, numa_nodes=2, compute_partition="CPX", memory_partition="NPS4"),
            ],
            intel_gpu=[IntelGpuSpec(driver="i915"), IntelGpuSpec(driver="xe", vfs=2)],
            xilinx_fpga=[XilinxFpgaSpec(cards=2, numa_nodes=2)],
            rdma=[RdmaSpec(cards=2, numa_nodes=2), RdmaSpec(vfs=2, link_layer="Ethernet")],
            usb=[
                *(UsbSpec(vendor="1a86", product="7523", function="serial") for _ in range(2)),
                UsbSpec(vendor="046d", product="0825", serial="7A3B1C20", function="video"),
            ],
            devices=[
                DeviceSpec(path="/dev/kvm", number="10:232"),
                DeviceSpec(path="/dev/fuse", number="10:229"),
                DeviceSpec(path="/dev/net/tun", number="10:200"),
            ],
        ),
    ),
}


_FPGA = {
    "fpga-1": Preset("one FPGA card under the kernel's driver (DFL)", NodeSpec(fpga=[FpgaSpec()])),
    "fpga-8": Preset(
        "8 FPGA cards (DFL) on 2 NUMA nodes, two accelerator functions",
        NodeSpec(fpga=[FpgaSpec(cards=8, numa_nodes=2)]),
    ),
    "fpga-opae-1": Preset("one FPGA card under the OPAE driver", NodeSpec(fpga=[FpgaSpec(driver="opae")])),
    "fpga-opae-2": Preset(
        "2 FPGA cards (OPAE) on 2 NUMA nodes, two accelerator functions",
        NodeSpec(fpga=[FpgaSpec(driver="opae", cards=2, numa_nodes=2)]),
    ),
    "fpga-sriov": Preset(
        "2 FPGA cards (OPAE): one plain, one with its ports on 2 virtual functions",
        NodeSpec(fpga=[FpgaSpec(driver="opae"), FpgaSpec(driver="opae", vfs=2, afu_ids=[AFU_IDS[1]])]),
    ),
    "fpga-dfl-sriov": Preset(
        "one FPGA card (DFL) with its ports on 2 virtual functions", NodeSpec(fpga=[FpgaSpec(vfs=2)])
    ),
    "fpga-multiport": Preset(
        "one FPGA card (DFL) with 2 ports and 2 regions under one engine",
        NodeSpec(fpga=[FpgaSpec(ports=2, afu_ids=[AFU_IDS[0]])]),
    ),
    "fpga-both-drivers": Preset(
        "one FPGA card under each driver", NodeSpec(fpga=[FpgaSpec(), FpgaSpec(driver="opae", afu_ids=[AFU_IDS[1]])])
    ),
    "fpga-dense": Preset(
        "64 FPGA ports: 32 cards (DFL) of 2 ports on 2 NUMA nodes",
        NodeSpec(fpga=[FpgaSpec(cards=32, ports=2, numa_nodes=2)]),
    ),
}


_GENERIC = {
    "generic": Preset(
        "no accelerator: kvm, fuse, tun, 4 serial adapters and a camera",
        NodeSpec(
            usb=[
                *(UsbSpec(vendor="1a86", product="7523", function="serial") for _ in range(2)),
                UsbSpec(vendor="0403", product="6001", serial="A50285BI", function="serial"),
                UsbSpec(vendor="0403", product="6001", serial="A50285BJ", function="serial"),
                UsbSpec(vendor="046d", product="0825", serial="7A3B1C20", function="video"),
            ],
            devices=[
                DeviceSpec(path="/dev/kvm", number="10:232"),
                DeviceSpec(path="/dev/fuse", number="10:229"),
                DeviceSpec(path="/dev/net/tun", number="10:200"),
            ],
        ),
    ),
}


_INTEL_GPU = {
    "intel-gpu-2": Preset(
        "2 Intel GPUs, one under i915 and one under xe",
        NodeSpec(intel_gpu=[IntelGpuSpec(driver="i915"), IntelGpuSpec(driver="xe")]),
    ),
    "intel-gpu-sriov": Preset(
        "one Intel GPU (xe) given away as 7 virtual functions", NodeSpec(intel_gpu=[IntelGpuSpec(vfs=7)])
    ),
    "intel-gpu-64": Preset(
        "64 Intel GPUs (xe) on 2 NUMA nodes", NodeSpec(intel_gpu=[IntelGpuSpec(cards=64, numa_nodes=2)])
    ),
}


_SEVENTHS = ["1g.10gb"] * 7

_NVIDIA = {
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


_RDMA = {
    "rdma-2": Preset(
        "2 RDMA cards (mlx5, InfiniBand) on 2 NUMA nodes", NodeSpec(rdma=[RdmaSpec(cards=2, numa_nodes=2)])
    ),
    "rdma-sriov": Preset(
        "one RDMA card (mlx5, RoCE) with 4 virtual functions", NodeSpec(rdma=[RdmaSpec(vfs=4, link_layer="Ethernet")])
    ),
}


_XILINX_FPGA = {
    "xilinx-2": Preset(
        "2 Xilinx FPGA cards (XRT): an Alveo U200, and a U250 with queue DMA",
        NodeSpec(
            xilinx_fpga=[
                XilinxFpgaSpec(),
                XilinxFpgaSpec(vbnv="xilinx_u250_qdma_201920_1", timestamp="1579647260", qdma=True),
            ]
        ),
    ),
    "xilinx-u30": Preset(
        "2 Xilinx U30 cards (XRT) of 2 devices each",
        NodeSpec(
            xilinx_fpga=[XilinxFpgaSpec(cards=2, devices=2, vbnv="xilinx_u30_gen3x4_base_1", timestamp="1617991271")]
        ),
    ),
    "xilinx-f1": Preset(
        "an AWS F1 instance: 2 FPGAs without management function and serial number",
        NodeSpec(
            xilinx_fpga=[
                XilinxFpgaSpec(
                    cards=2,
                    vendor="0x1d0f",
                    vbnv="xilinx_aws-vu9p-f1_dynamic_5_0",
                    timestamp="1552955120",
                    management=False,
                    serial_number=False,
                )
            ]
        ),
    ),
}


__all__ = ["PRESETS", "Preset", "preset"]

PRESETS: dict[str, Preset] = {
    **_FPGA,
    **_GENERIC,
    **_AMD,
    **_INTEL_GPU,
    **_NVIDIA,
    **_RDMA,
    **_XILINX_FPGA,
    **_EVERYTHING,
}


def preset(name: str) -> NodeSpec:
    """The spec of a preset. Raises UsageError when it does not exist."""
    if name in PRESETS:
        return PRESETS[name].spec
    raise UsageError(
        f"`{name}` is neither a preset nor a file", meant(name, PRESETS), "`devherd sim node --list` explains them"
    )
