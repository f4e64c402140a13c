"""Nodes with AMD GPUs; those with addresses are as captured on real machines."""

from devherd_sim.node.amd import AmdSpec
from devherd_sim.node.presets.preset import Preset
from devherd_sim.node.spec import NodeSpec

_MI210 = ["63", "43", "03", "26", "e3", "c3", "83", "a3"]
_MI300X = ["05", "27", "47", "65", "85", "a7", "c7", "e5"]
_MI308X = ["0000:0a", "0000:80", "0000:a4", "0000:c8", "0001:0b", "0001:81", "0001:a5", "0001:c9"]


def _mi300x(**changes: object) -> AmdSpec:
    whole = AmdSpec(model="mi300x", addresses=[f"0000:{bus}:00.0" for bus in _MI300X], numa_nodes=2, display=True)
    return whole.model_copy(update=changes)


_VIRTUAL = AmdSpec(model="mi300x", cards=2, numa_nodes=2, driver="gim", vfs=2)

PRESETS = {
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
