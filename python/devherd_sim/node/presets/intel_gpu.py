"""Nodes with Intel GPUs."""

from devherd_sim.node.intel_gpu import IntelGpuSpec
from devherd_sim.node.presets.preset import Preset
from devherd_sim.node.spec import NodeSpec

PRESETS = {
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
