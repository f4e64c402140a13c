"""One device under several ids, `<id>::<n>`: by time slices, or through NVIDIA's Multi-Process Service (MPS). Pure."""

import re
from collections.abc import Mapping

from devherd.config import Sharing
from devherd.proto import spool_pb2

UNSHARED = Sharing()
MOST_BEFORE_VOLTA = 16
"""MPS clients of a GPU of compute capability below 7.0, <https://docs.nvidia.com/deploy/mps/>; the vendor's plugin
takes 7.0 for old as well. The configuration sees to the limit of newer ones."""
MPS_PIPE_DIRECTORY = "CUDA_MPS_PIPE_DIRECTORY"

_VERSION = re.compile(r"(\d+)\.\d+")


def feasible(sharing: Sharing, device: spool_pb2.Device) -> tuple[Sharing, str | None]:
    """How a device can really be shared, and what to say when that is not how it should be."""
    if sharing.replicas == 1:
        return UNSHARED, None
    if sharing.strategy != "mps":
        return sharing, None
    if device.vendor != "nvidia":
        return UNSHARED, "MPS shares NVIDIA's GPUs only: it is advertised unshared"
    if "mig_profile" in device.attributes or "gpu_instance" in device.attributes:
        return UNSHARED, "MPS cannot share a MIG device: it is advertised unshared"
    if sharing.replicas > MOST_BEFORE_VOLTA and _is_before_volta(device.attributes):
        capability = device.attributes["compute_capability"]
        text = f"MPS serves at most {MOST_BEFORE_VOLTA} clients on a GPU of compute capability {capability}"
        return sharing.model_copy(update={"replicas": MOST_BEFORE_VOLTA}), f"{text}: so many replicas it has"
    return sharing, None


def replicate(device: spool_pb2.Device, replicas: int, resource: spool_pb2.Resource) -> None:
    """Put the device into its resource under all its ids, given that it is there under its own."""
    if replicas == 1:
        return
    for number in range(1, replicas):
        replica = resource.devices.add()
        replica.CopyFrom(device)
        replica.id = f"{device.id}::{number}"
    device.id = f"{device.id}::0"


def add_mps(device: spool_pb2.Device, resource_name: str, mps_root: str) -> None:
    """What a container needs to find the MPS control daemon of its resource, which NVIDIA's own pod runs."""
    device.envs[MPS_PIPE_DIRECTORY] = f"/mps/{resource_name}/pipe"
    pipe = f"{resource_name}/pipe"
    device.mounts.add(host_path=f"{mps_root}/{pipe}", container_path=f"/mps/{pipe}")
    device.mounts.add(host_path=f"{mps_root}/shm", container_path="/dev/shm")  # noqa: S108 - MPS talks through it


def _is_before_volta(attributes: Mapping[str, str]) -> bool:
    version = _VERSION.fullmatch(attributes.get("compute_capability", ""))
    return version is not None and int(version[1]) < 7
