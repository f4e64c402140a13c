"""NVML's answer as health findings: the findings of source `nvml`. A pure function."""

from devherd.health.sources.nvml_answer import Answer
from devherd.proto import health_pb2

GPU_LOST = "gpu-lost"
LIBRARY = "libnvidia-ml.so.1"


def findings(answer: Answer, now: float) -> health_pb2.Findings:
    """The findings file's content after an attempt that ended at wall-clock second `now`."""
    gpus = (answer.facts or {}).get("gpus", [])
    request = answer.failed or answer.facts_of or {}
    return health_pb2.Findings(
        source="nvml",
        boot_id=request.get("boot_id") or "",
        timestamp_seconds=now,
        failed=answer.problem or "",
        findings=[_lost(gpu["pci_address"]) for gpu in gpus if gpu.get("is_lost") and gpu["pci_address"]],
    )


def _lost(pci_address: str) -> health_pb2.Finding:
    return health_pb2.Finding(
        at=health_pb2.Target(vendor="nvidia", pci_address=pci_address),
        reason=GPU_LOST,
        detail="NVML reports the GPU as lost: it has fallen off the bus or is inaccessible",
        file=LIBRARY,
        value="NVML_ERROR_GPU_IS_LOST",
    )
