"""Models of NVIDIA GPUs, and their MIG devices: capability files and nodes of the driver, and the facts of NVML."""

import uuid
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from devherd.errors import UsageError
from devherd_sim.node.entry import DeviceNode, Entry, File

ModelName = Literal["h100", "a100", "v100", "rtx-4090"]

_GRAPHICS, _COMPUTE = 0x030000, 0x030200


@dataclass(frozen=True, slots=True)
class GpuModel:
    """A model; MIG devices get its memory in eighths."""

    name: str
    device: int
    pci_class: int
    memory_bytes: int
    compute_capability: tuple[int, int]
    brand: str
    architecture: str
    addressing_mode: str | None
    """As `nvidia-smi -q` shows it for such a GPU of a host without HMM; None where the GPU has no such modes."""
    knows_mig: bool


MODELS: dict[ModelName, GpuModel] = {
    "h100": GpuModel(
        "NVIDIA H100 80GB HBM3", 0x2330, _COMPUTE, 85_520_809_984, (9, 0), "Nvidia", "Hopper", "None", knows_mig=True
    ),
    "a100": GpuModel(
        "NVIDIA A100-SXM4-40GB", 0x20B0, _COMPUTE, 42_505_273_344, (8, 0), "Nvidia", "Ampere", "None", knows_mig=True
    ),
    "v100": GpuModel(
        "Tesla V100-SXM2-32GB", 0x1DB5, _COMPUTE, 34_089_730_048, (7, 0), "Tesla", "Volta", None, knows_mig=False
    ),
    "rtx-4090": GpuModel(
        "NVIDIA GeForce RTX 4090",
        0x2684,
        _GRAPHICS,
        25_757_220_864,
        (8, 9),
        "GeForce",
        "Ada Lovelace",
        "None",
        knows_mig=False,
    ),
}


_CAPS_MAJOR = 506
_MULTIPROCESSORS = 16
"""Multiprocessors of a slice of an H100: NVIDIA's MIG user guide, "H100 MIG profiles"."""
_GIBIBYTE, _MEBIBYTE = 1 << 30, 1 << 20
# Possible ids of GPU instances, by their memory in eighths.
_IDS = {8: range(1), 4: range(1, 3), 2: range(3, 7), 1: range(7, 15)}
_SLICES = 7
_PROFILE_IDS = {
    (1, 1, ""): 19, (1, 1, "+me"): 20, (1, 2, ""): 15, (2, 2, ""): 14, (3, 4, ""): 9, (4, 4, ""): 5, (7, 8, ""): 0,
}  # fmt: skip
"""By slices, memory in eighths and suffix, of A100 and H100: NVIDIA's MIG user guide, "GPU instance profiles"."""


@dataclass(frozen=True, slots=True)
class MigDevice:
    """A GPU instance with one compute instance of its whole size."""

    uuid: str
    gpu_instance: int
    compute_instance: int
    slices: int
    memory_mebibytes: int
    placement: range
    """The eighths of the GPU's memory that it has."""
    profile_id: int | None = None
    profile_suffixes: tuple[str, ...] = ()

    def facts(self, index: int) -> dict[str, Any]:
        """The MIG device as NVML reports it (rust/src/nvml/facts.rs)."""
        return {
            "index": index,
            "uuid": self.uuid,
            "gpu_instance": self.gpu_instance,
            "compute_instance": self.compute_instance,
            "gpu_slices": self.slices,
            "compute_slices": self.slices,
            "memory_mebibytes": self.memory_mebibytes,
            "multiprocessors": _MULTIPROCESSORS * self.slices,
            "engines": {"copy": self.slices, "decoder": self.slices, "encoder": 0, "jpeg": self.slices, "ofa": 0},
            "profile_suffixes": list(self.profile_suffixes),
            "profile_id": self.profile_id,
            "placement_start": self.placement.start,
            "placement_size": len(self.placement),
        }


def mig_devices(
    address: str,
    model: GpuModel,
    profiles: Iterable[str],
    used: Sequence[int] = (),
    used_eighths: Iterable[int] = (),
) -> Iterator[MigDevice]:
    """Yields MIG devices of these profiles (`1g.10gb`) on a GPU.

    The GPU has GPU instances with the ids `used`, which have the `used_eighths` of its memory.

    Raises UsageError when there is no room for a profile.
    """
    taken, taken_eighths = set(used), set(used_eighths)
    for profile in profiles:
        slices, _, rest = profile.partition("g.")
        gigabytes, _, suffix = rest.partition("gb")
        eighths = max(1, round(int(gigabytes) * 8 / -(-model.memory_bytes // _GIBIBYTE)))
        gpu_instance = next((number for number in _IDS.get(eighths, ()) if number not in taken), None)
        placement = _placement(int(slices), eighths, taken_eighths)
        if gpu_instance is None or placement is None or not model.knows_mig:
            raise UsageError(f"no MIG device {profile} on {address}", f"the {model.name} has none left", "leave it out")
        taken.add(gpu_instance)
        taken_eighths.update(placement)
        yield MigDevice(
            uuid=f"MIG-{uuid.uuid5(uuid.NAMESPACE_OID, f'{address}/{gpu_instance}/0')}",
            gpu_instance=gpu_instance,
            compute_instance=0,
            slices=int(slices),
            memory_mebibytes=model.memory_bytes * eighths // 8 // _MEBIBYTE,
            placement=placement,
            profile_id=_PROFILE_IDS.get((int(slices), eighths, suffix)),
            profile_suffixes=(suffix,) if suffix else (),
        )


def _placement(slices: int, eighths: int, taken: Collection[int]) -> range | None:
    """The last free place of a GPU instance: at a multiple of its size, with its slices among the GPU's seven."""
    starts = (start for start in range(_SLICES - slices, -1, -1) if start % eighths == 0)
    places = (range(start, start + eighths) for start in starts)
    return next((place for place in places if not set(taken) & {*place}), None)


def capability_entries(minor: int, devices: Iterable[MigDevice]) -> list[Entry]:
    """The capability files of a GPU that supports MIG; `mig` exists even without MIG devices."""
    directory = f"proc/driver/nvidia/capabilities/gpu{minor}/mig"
    return [
        _access(f"{directory}/config", 1, 0o400),
        _access(f"{directory}/monitor", 2, 0o444),
        *(entry for device in devices for entry in instance_entries(minor, device)),
    ]


def instance_entries(minor: int, device: MigDevice) -> list[Entry]:
    """The capabilities of one MIG device and their nodes."""
    instance = instance_path(minor, device.gpu_instance)
    numbers = capability_numbers(minor, device)
    return [
        _access(f"{instance}/access", numbers[0], 0o444),
        _access(f"{instance}/ci{device.compute_instance}/access", numbers[1], 0o444),
        *(DeviceNode(f"dev/nvidia-caps/nvidia-cap{number}", "char", _CAPS_MAJOR, number) for number in numbers),
    ]


def instance_path(minor: int, gpu_instance: int) -> str:
    """The driver's procfs directory of a GPU instance."""
    return f"proc/driver/nvidia/capabilities/gpu{minor}/mig/gi{gpu_instance}"


def capability_numbers(minor: int, device: MigDevice) -> tuple[int, int]:
    """The capability numbers of the GPU instance and of the compute instance."""
    of_gpu = 3 + 135 * minor + 9 * device.gpu_instance
    return of_gpu, of_gpu + 1 + device.compute_instance


def _access(path: str, number: int, mode: int) -> File:
    return File.line(path, f"DeviceFileMinor: {number}\nDeviceFileMode: {mode}\nDeviceFileModify: 1")
