"""NVIDIA's GPUs and MIG devices as `gpu.nvidia.com` publishes them.

Version: dra-driver-nvidia-gpu at 95932046, its feature gates at their defaults.
https://github.com/kubernetes-sigs/dra-driver-nvidia-gpu/blob/95932046683719c43b6a0dd9613c2e5aad5d6703/cmd/gpu-kubelet-plugin/deviceinfo.go
(`Attributes`, `GetDevice`), mig.go there (`CommonAttributesMig`, `CommonCapacitiesMig`, `ToCanonicalName`) and
partitions.go (`fullGpuCapacity`).
"""

import re
from collections.abc import Mapping

from devherd.dra.tables import BUS_ID, NODE, ROOT, DeviceType, Publishable, constant, count, text, version

DRIVER = "gpu.nvidia.com"

_OF_BOTH = (
    text("productName", "model"),
    text("brand", "brand"),
    text("architecture", "architecture"),
    version("cudaComputeCapability", "compute_capability"),
    version("driverVersion", "driver_version"),
    version("cudaDriverVersion", "cuda_version"),
    text("addressingMode", "addressing_mode", is_needed=False),
    BUS_ID,
    ROOT,
    NODE,
)


def _gpu_label(subject: Publishable) -> str | None:
    minor = subject.number("minor")
    return None if minor is None else f"gpu-{minor}"


def _mig_label(subject: Publishable) -> str | None:
    """`gpu-0-mig-1g5gb-19-2`: minor, profile without dots, profile id, start of the placement."""
    parts = [subject.number(fact) for fact in ("minor", "mig_profile_id", "mig_placement_start")]
    profile = subject.text("mig_profile")
    if profile is None or None in parts:
        return None
    minor, profile_id, start = parts
    name = re.sub(r"[^a-z0-9-]", "-", profile.replace(".", "").lower()).strip("-")
    return f"gpu-{minor}-mig-{name}-{profile_id}-{start}"


def _memory_slices(subject: Publishable) -> Mapping[str, int]:
    """A capacity for each slice of the GPU's memory that a MIG device has: `memorySlice2`."""
    start, size = subject.number("mig_placement_start"), subject.number("mig_placement_size")
    if start is None or size is None:
        return {}
    return {f"memorySlice{place}": 1 for place in range(start, start + size)}


GPU = DeviceType(
    DRIVER,
    "gpu",
    _gpu_label,
    (constant("type", "gpu"), text("uuid", "uuid"), *_OF_BOTH),
    (count("memory", "memory_bytes"),),
    ("minor", "mig_mode"),  # in MIG mode the GPU has no name here, but its MIG devices have
)

MIG = DeviceType(
    DRIVER,
    "mig",
    _mig_label,
    (
        constant("type", "mig"),
        text("parentUUID", "gpu_uuid"),
        text("profile", "mig_profile"),
        text("uuid", "uuid"),
        *_OF_BOTH,
    ),
    (
        count("multiprocessors", "multiprocessors"),
        count("copyEngines", "engines_copy"),
        count("decoders", "engines_decoder"),
        count("encoders", "engines_encoder"),
        count("jpegEngines", "engines_jpeg"),
        count("ofaEngines", "engines_ofa"),
        count("memory", "memory_bytes"),
    ),
    ("minor", "mig_profile", "mig_profile_id", "mig_placement_start", "mig_placement_size"),
    _memory_slices,
    told_by=(("profile",),),
)


def type_of(subject: Publishable) -> DeviceType:
    """The type."""
    return MIG if "mig_profile" in subject.facts or "gpu_instance" in subject.facts else GPU
