"""Nodes by name: what each has, and what it is good for."""

import difflib
from dataclasses import dataclass

from devherd.errors import UsageError
from devherd.sim.node.fpga_card import AFU_IDS
from devherd.sim.node.spec import DeviceSpec, FpgaSpec, NodeSpec, UsbSpec


@dataclass(frozen=True, slots=True)
class Preset:
    """A node and one line about it."""

    summary: str
    spec: NodeSpec


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


def preset(name: str) -> NodeSpec:
    """The node of this name. Raises UsageError when there is none."""
    if name in PRESETS:
        return PRESETS[name].spec
    close = difflib.get_close_matches(name, PRESETS, n=1)
    meant = f"did you mean `{close[0]}`? " if close else ""
    raise UsageError(f"`{name}` is no preset and no file", f"presets are {', '.join(PRESETS)}", f"{meant}See `--list`")
