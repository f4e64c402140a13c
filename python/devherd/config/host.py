"""Recognises simulated hosts, and makes the scan core's settings about the host itself."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

MARK = ".devherd-simulated-node"
"""File in the root of a simulated node, below which plain files may stand for device nodes."""

NVML_ANSWER = ".devherd-nvml.json"
"""File in the root of a simulated node with NVML: its answer (rust/src/nvml/facts.rs)."""


def is_simulated(host_root: Path) -> bool:
    """Whether the tree below `host_root` is a simulated node."""
    return (host_root / MARK).exists()


NVML_FACTS = frozenset({"compute_capability", "cuda_version", "memory_bytes"})
"""Facts of whole GPUs that only NVML reports, not the driver's files."""


def native_settings(
    host_root: Path, nvml_answer: Path | None = None, rules: Iterable[Any] = (), *, labels: bool = False
) -> dict[str, Any]:
    """Values for `Settings` in rust/src/settings.rs; `rules` are the configuration's `resources`.

    NVML is asked if devices, a rule or the node's labels need it; never if no answer file is named.
    """
    files = [str(file) for file in nvml_answers(host_root, nvml_answer)]
    nvml = {"answers": files, "needed": labels or _need_nvml(rules)}
    return {"simulated_host": is_simulated(host_root), "nvml": nvml}


def nvml_answers(host_root: Path, nvml_answer: Path | None) -> list[Path]:
    """The files that can have NVML's answer: the first that exists counts. A simulated node has its own file."""
    simulated = [host_root.absolute() / NVML_ANSWER] if is_simulated(host_root) else []
    return [*simulated, *([nvml_answer] if nvml_answer else [])]


def _need_nvml(rules: Iterable[Any]) -> bool:
    """Whether a rule matches a fact of NVIDIA's GPUs that only NVML reports."""
    selectors = (selector for rule in rules for selector in (rule.match, *rule.match.exclude))
    return any(NVML_FACTS & selector.facts.keys() for selector in selectors)
