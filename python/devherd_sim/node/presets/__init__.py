"""Nodes by name: what each has, and what it is good for. One file for each vendor."""

from devherd.config.meant import meant
from devherd.errors import UsageError
from devherd_sim.node.presets import amd, everything, fpga, generic, intel_gpu, nvidia, rdma, xilinx_fpga
from devherd_sim.node.presets.preset import Preset
from devherd_sim.node.spec import NodeSpec

__all__ = ["PRESETS", "Preset", "preset"]

PRESETS: dict[str, Preset] = {
    **fpga.PRESETS,
    **generic.PRESETS,
    **amd.PRESETS,
    **intel_gpu.PRESETS,
    **nvidia.PRESETS,
    **rdma.PRESETS,
    **xilinx_fpga.PRESETS,
    **everything.PRESETS,
}


def preset(name: str) -> NodeSpec:
    """The node of this name. Raises UsageError when it does not exist."""
    if name in PRESETS:
        return PRESETS[name].spec
    raise UsageError(
        f"`{name}` is neither a preset nor a file", meant(name, PRESETS), "`devherd sim node --list` explains them"
    )
