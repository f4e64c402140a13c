"""One node with devices of every vendor that devherd knows."""

from devherd_sim.node.amd import AmdSpec
from devherd_sim.node.fpga_card import AFU_IDS
from devherd_sim.node.intel_gpu import IntelGpuSpec
from devherd_sim.node.nvidia import NvidiaSpec
from devherd_sim.node.presets.preset import Preset
from devherd_sim.node.rdma import RdmaSpec
from devherd_sim.node.spec import DeviceSpec, FpgaSpec, NodeSpec, UsbSpec
from devherd_sim.node.xilinx_fpga import XilinxFpgaSpec

_MIXED = ["3g.40gb", "2g.20gb", "1g.10gb"]

PRESETS = {
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
