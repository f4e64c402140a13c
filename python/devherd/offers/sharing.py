"""One device for several containers: by time slices, or through NVIDIA's Multi-Process Service (MPS). Pure."""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from devherd.config.resolved import Sharing
from devherd.proto import spool_pb2

if TYPE_CHECKING:
    from devherd._native import Device

UNSHARED = Sharing()
MOST_BEFORE_VOLTA = 16
"""MPS clients of a GPU of compute capability below 7.0, <https://docs.nvidia.com/deploy/mps/>; the vendor's plugin
takes 7.0 for old as well. The configuration checks the limit of newer ones."""
MPS_PIPE_DIRECTORY = "CUDA_MPS_PIPE_DIRECTORY"

_VERSION = re.compile(r"(\d+)\.\d+")


def feasible(sharing: Sharing, device: "Device") -> tuple[Sharing, str | None]:
    """How a device can really be shared, and a message if that differs from the configuration."""
    if sharing.strategy != "mps":
        return sharing, None
    if sharing.replicas == 1:
        return UNSHARED, None
    if device.vendor != "nvidia":
        return UNSHARED, "MPS shares NVIDIA's GPUs only: it is advertised unshared"
    attributes = device.attributes
    if "mig_profile" in attributes or "gpu_instance" in attributes:
        return UNSHARED, "MPS cannot share a MIG device: it is advertised unshared"
    if sharing.replicas > MOST_BEFORE_VOLTA and _is_before_volta(attributes):
        capability = attributes["compute_capability"]
        text = f"MPS serves at most {MOST_BEFORE_VOLTA} clients on a GPU of compute capability {capability}"
        return replace(sharing, replicas=MOST_BEFORE_VOLTA), f"{text}: replicas limited to {MOST_BEFORE_VOLTA}"
    return sharing, None


def add_mps(edits: spool_pb2.Edits, resource_name: str, mps_root: str) -> None:
    """What a container needs to find the MPS control daemon of its resource, which NVIDIA's own pod runs."""
    edits.envs[MPS_PIPE_DIRECTORY] = f"/mps/{resource_name}/pipe"
    pipe = f"{resource_name}/pipe"
    edits.mounts.add(host_path=f"{mps_root}/{pipe}", container_path=f"/mps/{pipe}")
    edits.mounts.add(host_path=f"{mps_root}/shm", container_path="/dev/shm")  # noqa: S108 - MPS talks through it


def _is_before_volta(attributes: Mapping[str, str]) -> bool:
    version = _VERSION.fullmatch(attributes.get("compute_capability", ""))
    return version is not None and int(version[1]) < 7
