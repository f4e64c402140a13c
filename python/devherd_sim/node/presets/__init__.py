"""Nodes by name: what each has, and what it is good for. One file for each vendor."""

import difflib

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
    close = difflib.get_close_matches(name, PRESETS, n=1)
    meant = f"did you mean `{close[0]}`? " if close else ""
    raise UsageError(
        f"`{name}` is neither a preset nor a file", f"presets are {', '.join(PRESETS)}", f"{meant}See `--list`"
    )
