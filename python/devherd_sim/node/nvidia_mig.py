"""MIG devices: the driver's capability files and nodes for them, and the facts of NVML.

NVIDIA's MIG user guide, "Device nodes and capabilities"; the numbers are those of `nvidia-caps/mig-minors`.
"""

import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from devherd.errors import UsageError
from devherd_sim.node.entry import DeviceNode, Entry, File
from devherd_sim.node.nvidia_model import GpuModel

_CAPS_MAJOR = 506
_MULTIPROCESSORS = 16
"""Of a slice of an H100: NVIDIA's MIG user guide, "H100 MIG profiles"."""
_GIBIBYTE, _MEBIBYTE = 1 << 30, 1 << 20
# Ids of GPU instances by the eighths of memory that they have.
_IDS = {8: range(1), 4: range(1, 3), 2: range(3, 7), 1: range(7, 15)}


@dataclass(frozen=True, slots=True)
class MigDevice:
    """A GPU instance with one compute instance of its whole size."""

    uuid: str
    gpu_instance: int
    compute_instance: int
    slices: int
    memory_mebibytes: int
    profile_suffixes: tuple[str, ...] = ()

    def facts(self, index: int) -> dict[str, Any]:
        """As NVML has it (rust/src/nvml/facts.rs)."""
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
        }


def mig_devices(
    address: str, model: GpuModel, profiles: Iterable[str], used: Sequence[int] = ()
) -> Iterator[MigDevice]:
    """Devices of these profiles (`1g.10gb`) on a GPU, beside GPU instances of the ids `used`.

    Raises UsageError for one that there is no room for.
    """
    taken = set(used)
    for profile in profiles:
        slices, _, rest = profile.partition("g.")
        gigabytes, _, suffix = rest.partition("gb")
        eighths = max(1, round(int(gigabytes) * 8 / -(-model.memory_bytes // _GIBIBYTE)))
        gpu_instance = next((number for number in _IDS.get(eighths, ()) if number not in taken), None)
        if gpu_instance is None or not model.knows_mig:
            raise UsageError(f"no MIG device {profile} on {address}", f"the {model.name} has none left", "leave it out")
        taken.add(gpu_instance)
        yield MigDevice(
            uuid=f"MIG-{uuid.uuid5(uuid.NAMESPACE_OID, f'{address}/{gpu_instance}/0')}",
            gpu_instance=gpu_instance,
            compute_instance=0,
            slices=int(slices),
            memory_mebibytes=model.memory_bytes * eighths // 8 // _MEBIBYTE,
            profile_suffixes=(suffix,) if suffix else (),
        )


def capability_entries(minor: int, devices: Iterable[MigDevice]) -> list[Entry]:
    """What the driver shows of a GPU that knows MIG; `mig` is there without any MIG device, too."""
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
    """Where the driver shows a GPU instance."""
    return f"proc/driver/nvidia/capabilities/gpu{minor}/mig/gi{gpu_instance}"


def capability_numbers(minor: int, device: MigDevice) -> tuple[int, int]:
    """Of the GPU instance and of the compute instance."""
    of_gpu = 3 + 135 * minor + 9 * device.gpu_instance
    return of_gpu, of_gpu + 1 + device.compute_instance


def _access(path: str, number: int, mode: int) -> File:
    return File.line(path, f"DeviceFileMinor: {number}\nDeviceFileMode: {mode}\nDeviceFileModify: 1")
