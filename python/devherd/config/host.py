"""Settings of the scan core about the host itself: whether it is simulated, and where NVML's answers are."""

import contextlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from devherd.simulated_host import NVML_ANSWER, is_simulated

NVML_FACTS = frozenset({"compute_capability", "cuda_version", "memory_bytes"})
"""Facts of whole GPUs that the driver's files do not have."""


def native_settings(
    host_root: Path, nvml_answer: Path | None = None, rules: Iterable[Any] = (), *, labels: bool = False
) -> dict[str, Any]:
    """Keys of `Settings` in rust/src/settings.rs; `rules` are the configuration's `resources`.

    NVML is asked where devices need it, a rule does, or the node's labels. Without any answer file's name, it is not.
    """
    files = [str(file) for file in nvml_answers(host_root, nvml_answer)]
    nvml = {"answers": files, "needed": labels or _need_nvml(rules)}
    return {"simulated_host": is_simulated(host_root), "nvml": nvml}


def nvml_answers(host_root: Path, nvml_answer: Path | None) -> list[Path]:
    """Where NVML's answer may be: the first of these files that exists counts. A simulated node has its own."""
    simulated = [host_root.absolute() / NVML_ANSWER] if is_simulated(host_root) else []
    return [*simulated, *([nvml_answer] if nvml_answer else [])]


def first_answer(files: Iterable[Path]) -> bytes:
    """The content of the first that can be read; empty if there is none yet."""
    for file in files:
        with contextlib.suppress(OSError):
            return file.read_bytes()
    return b""


def _need_nvml(rules: Iterable[Any]) -> bool:
    """Whether a rule matches a fact of NVIDIA's GPUs that only NVML reports."""
    selectors = (selector for rule in rules for selector in (rule.match, *rule.match.exclude))
    return any(NVML_FACTS & selector.patterns().keys() for selector in selectors)
