"""Nodes with Xilinx FPGA cards."""

from devherd_sim.node.presets.preset import Preset
from devherd_sim.node.spec import NodeSpec
from devherd_sim.node.xilinx_fpga import XilinxFpgaSpec

PRESETS = {
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
