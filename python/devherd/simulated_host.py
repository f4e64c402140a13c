"""How a tree of `devherd sim node` is recognised. The scan core gets this as a setting and does not check itself."""

from pathlib import Path

MARK = ".devherd-simulated-node"
"""In the root of the tree: plain files may stand for device nodes."""

NVML_ANSWER = ".devherd-nvml.json"
"""In the root of the tree, where NVML answers: an answer file (rust/src/nvml/answer.rs)."""


def is_simulated(host_root: Path) -> bool:
    """Whether the tree below `host_root` is a simulated node."""
    return (host_root / MARK).exists()
