"""Settings of the scan core about the host itself: whether it is simulated, and where NVML's answers are."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from devherd.simulated_host import NVML_ANSWER, is_simulated

NVML_FACTS = frozenset({"compute_capability", "cuda_version", "memory_bytes"})
"""Facts of whole GPUs that the driver's files do not have."""


def native_settings(host_root: Path, nvml_answer: Path | None = None, rules: Iterable[Any] = ()) -> dict[str, Any]:
    """Keys of `Settings` in rust/src/settings.rs; `rules` are the configuration's `resources`.

    The first answer file that exists counts: a simulated node's own, then `nvml_answer`. Without any name, NVML is not
    asked.
    """
    simulated = is_simulated(host_root)
    answers = ([host_root.absolute() / NVML_ANSWER] if simulated else []) + ([nvml_answer] if nvml_answer else [])
    nvml = {"answers": [str(file) for file in answers], "needed": _need_nvml(rules)}
    return {"simulated_host": simulated, "nvml": nvml}


def _need_nvml(rules: Iterable[Any]) -> bool:
    """Whether a rule matches a fact of NVIDIA's GPUs that only NVML reports."""
    selectors = (selector for rule in rules for selector in (rule.match, *rule.match.exclude))
    return any(NVML_FACTS & selector.patterns().keys() for selector in selectors)
