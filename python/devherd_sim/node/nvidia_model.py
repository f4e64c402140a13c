"""Models of NVIDIA GPUs: what sysfs, the driver and NVML report for each."""

from dataclasses import dataclass
from typing import Literal

ModelName = Literal["h100", "a100", "v100", "rtx-4090"]

_GRAPHICS, _COMPUTE = 0x030000, 0x030200


@dataclass(frozen=True, slots=True)
class GpuModel:
    """One model; its MIG devices share its memory in eighths."""

    name: str
    device: int
    pci_class: int
    memory_bytes: int
    compute_capability: tuple[int, int]
    knows_mig: bool


MODELS: dict[ModelName, GpuModel] = {
    "h100": GpuModel("NVIDIA H100 80GB HBM3", 0x2330, _COMPUTE, 85_520_809_984, (9, 0), knows_mig=True),
    "a100": GpuModel("NVIDIA A100-SXM4-40GB", 0x20B0, _COMPUTE, 42_505_273_344, (8, 0), knows_mig=True),
    "v100": GpuModel("Tesla V100-SXM2-32GB", 0x1DB5, _COMPUTE, 34_089_730_048, (7, 0), knows_mig=False),
    "rtx-4090": GpuModel("NVIDIA GeForce RTX 4090", 0x2684, _GRAPHICS, 25_757_220_864, (8, 9), knows_mig=False),
}
