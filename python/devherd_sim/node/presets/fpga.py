"""Nodes with Intel FPGA cards."""

from devherd_sim.node.fpga_card import AFU_IDS
from devherd_sim.node.presets.preset import Preset
from devherd_sim.node.spec import FpgaSpec, NodeSpec

PRESETS = {
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
