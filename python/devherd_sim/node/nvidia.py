"""NVIDIA GPUs under NVIDIA's driver: PCI functions, procfs, device nodes, user-space files, and NVML's answer."""

import json
import shutil
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from devherd.config.resolved import NVML_ANSWER
from devherd.errors import UsageError
from devherd_sim.node import pci
from devherd_sim.node.entry import DeviceNode, Entry, File, Symlink
from devherd_sim.node.intel_fpga import Numbers
from devherd_sim.node.machine import class_node
from devherd_sim.node.nvidia_mig import MODELS, GpuModel, MigDevice, ModelName, capability_entries, mig_devices
from devherd_sim.node.pci import Slots, numa_node_of
from devherd_sim.node.written import Written

_LIBRARY_DIRECTORY = "usr/lib/x86_64-linux-gnu"
_LIBRARIES = (
    "libGLX_nvidia",
    "libEGL_nvidia",
    "libcuda",
    "libcudadebugger",
    "libnvcuvid",
    "libnvidia-allocator",
    "libnvidia-cfg",
    "libnvidia-encode",
    "libnvidia-ml",
    "libnvidia-nvvm",
    "libnvidia-opencl",
    "libnvidia-opticalflow",
    "libnvidia-ptxjitcompiler",
)
_GRAPHICS_LIBRARIES = (
    "etc/OpenCL/vendors/nvidia.icd",
    "usr/share/egl/egl_external_platform.d/15_nvidia_gbm.json",
    "usr/share/glvnd/egl_vendor.d/10_nvidia.json",
    "usr/share/nvidia/nvoptix.bin",
    "usr/share/vulkan/icd.d/nvidia_icd.json",
)
_PROGRAMS = ("nvidia-smi", "nvidia-debugdump", "nvidia-persistenced", "nvidia-cuda-mps-control", "nvidia-ctk")


def user_space_entries(version: str) -> list[Entry]:
    """The driver's user-space files of a version, as a distribution's packages install them."""
    return [
        *(File(f"{_LIBRARY_DIRECTORY}/{name}.so.{version}", b"") for name in _LIBRARIES),
        Symlink(f"{_LIBRARY_DIRECTORY}/libcuda.so.1", f"libcuda.so.{version}"),
        File(f"{_LIBRARY_DIRECTORY}/vdpau/libvdpau_nvidia.so.{version}", b""),
        *(File(f"usr/bin/{name}", b"") for name in _PROGRAMS),
        *(File(path, b"") for path in _GRAPHICS_LIBRARIES),
        *(File(f"usr/lib/firmware/nvidia/{version}/{name}", b"") for name in ("gsp_ga10x.bin", "gsp_tu10x.bin")),
        File("run/nvidia-persistenced/socket", b""),
    ]


MODULES = ("nvidia", "nvidia_drm", "nvidia_modeset", "nvidia_uvm")
DRIVER_VERSION = "580.95.05"
MAJOR = 195
_UVM_MAJOR = 234
_DRM_MAJOR = 226
_NVIDIA = 0x10DE
_PLX_SWITCH = pci.Function(path="", vendor=0x10B5, device=0x8796, pci_class=pci.BRIDGE_CLASS, driver="pcieport")
_SWITCH_LINKS = 18
_SWITCH_COUNT = 6
_SWITCHES = "proc/driver/nvidia-nvswitch/devices"
_FABRIC_MANAGER = "proc/2939"
# NVLinks between pairs of GPUs of a DGX-1 with V100, smaller number first: a hybrid cube mesh, six links per GPU.
_CUBE_MESH = {
    (0, 1): 1,
    (0, 2): 1,
    (0, 3): 2,
    (0, 4): 2,
    (1, 2): 2,
    (1, 3): 1,
    (1, 5): 2,
    (2, 3): 2,
    (2, 6): 1,
    (3, 7): 1,
    (4, 5): 1,
    (4, 6): 1,
    (4, 7): 2,
    (5, 6): 2,
    (5, 7): 1,
    (6, 7): 2,
}

_Profile = Annotated[str, Written(r"^[1-7]g\.[0-9]{1,3}gb(\+me)?$", "a MIG profile", "1g.10gb")]
_Number = Annotated[int, Field(ge=0, le=31)]


class NvidiaSpec(BaseModel):
    """`gpus` identical GPUs, numbered in the order of their PCI addresses."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    gpus: Annotated[int, Field(ge=1, le=32)] = 1
    """Their number."""
    model: ModelName = "h100"
    """Their product."""
    numa_nodes: Annotated[int, Field(ge=0, le=8)] = 1
    """Number of NUMA nodes that they are spread over; 0 = unknown."""
    gpus_a_switch: Annotated[int, Field(ge=1, le=8)] = 1
    """Number of GPUs that share a PCIe switch; 1 = no switch, each GPU has its own root port."""
    nvml: bool = False
    """Whether NVML answers. If not, facts that only NVML has are unknown."""
    nvlink: Literal["none", "direct", "switch"] = "none"
    """8 GPUs with direct links make the cube mesh of a DGX-1, others pairs; beside switches the fabric manager runs."""
    mig: list[list[_Profile] | None] = []
    """The MIG devices of each GPU; null or no entry: not in MIG mode."""
    uninitialised: list[_Number] = []
    """GPUs that no process has opened yet: their UUID is unknown."""
    excluded: list[_Number] = []
    """GPUs that the driver excludes, by number."""
    vgpu_types: Annotated[list[Annotated[int, Field(ge=0)]], Field(max_length=64)] = []
    """The virtual functions of each GPU, by the type of the vGPU that each is; 0 = none yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NvidiaGpu:
    """One GPU and its place in the PCI tree."""

    number: int
    minor: int
    function: pci.Function
    switch: str | None
    """Path of its switch's upstream port; None if it has no switch."""
    model: GpuModel
    mig: tuple[MigDevice, ...] | None
    vgpu_types: tuple[int, ...] = ()
    is_initialised: bool = True
    is_excluded: bool = False

    @property
    def uuid(self) -> str:
        """`GPU-<uuid>`, derived from the PCI address."""
        return f"GPU-{uuid.uuid5(uuid.NAMESPACE_OID, self.function.address)}"


def entries(spec: NvidiaSpec | None, slots: Slots, numbers: Numbers) -> list[Entry]:
    """The entries of driver, GPUs and, if enabled, NVML's answer; empty without a spec."""
    if spec is None:
        return []
    gpus = list(_gpus(spec, slots, numbers))
    return [
        *_driver(),
        *user_space_entries(DRIVER_VERSION),
        *_bridges(gpus),
        *(_switches() if spec.nvlink == "switch" else []),
        *(entry for gpu in gpus for entry in _gpu(gpu, numbers)),
        *([nvml_answer(_facts(spec, gpus))] if spec.nvml else []),
    ]


def nvml_answer(facts: dict[str, Any]) -> File:
    """The file that replaces NVML."""
    return File.line(NVML_ANSWER, json.dumps({"facts": facts}, indent=1))


def _gpus(spec: NvidiaSpec, slots: Slots, numbers: Numbers) -> Iterator[NvidiaGpu]:
    model = MODELS[spec.model]
    for number, (path, switch, numa_node) in enumerate(_places(spec, slots)):
        profiles = spec.mig[number] if number < len(spec.mig) else None
        function = pci.Function(
            path=path,
            vendor=_NVIDIA,
            device=model.device,
            pci_class=model.pci_class,
            driver="nvidia",
            numa_node=numa_node,
            virtual=tuple(pci.virtual_function(path, index) for index, _ in enumerate(spec.vgpu_types, 1)),
        )
        yield NvidiaGpu(
            number=number,
            minor=numbers.take("nvidia minor"),
            function=function,
            switch=switch,
            model=model,
            mig=None if profiles is None else tuple(mig_devices(function.address, model, profiles)),
            vgpu_types=tuple(spec.vgpu_types),
            is_initialised=number not in spec.uninitialised,
            is_excluded=number in spec.excluded,
        )


def _places(spec: NvidiaSpec, slots: Slots) -> Iterator[tuple[str, str | None, int]]:
    """Yields each GPU's path, the path of its switch or None, and its NUMA node."""
    nodes = [numa_node_of(index, spec.gpus, spec.numa_nodes) for index in range(spec.gpus)]
    for node in sorted(set(nodes)):
        left = nodes.count(node)
        while left > 0:
            count = min(left, spec.gpus_a_switch)
            left -= count
            yield from ((path, switch, node) for path, switch in _side_by_side(count, node, slots))


def _side_by_side(count: int, node: int, slots: Slots) -> Iterator[tuple[str, str | None]]:
    """Yields GPUs below one switch, which uses one bus for its upstream port and one for its downstream ports."""
    upstream = slots.take(node)
    if count == 1:
        yield upstream, None
        return
    inner = _bus(slots.take(node))
    for index in range(count):
        yield f"{upstream}/{inner}:{index:02x}.0/{_bus(slots.take(node))}:00.0", upstream


def _bus(path: str) -> str:
    """Domain and bus of a path: `0000:81` if it ends in `0000:81:00.0`."""
    return path.rpartition("/")[2].removesuffix(":00.0")


def _bridges(gpus: Sequence[NvidiaGpu]) -> list[Entry]:
    made: dict[str, list[Entry]] = {}
    for gpu in gpus:
        node = gpu.function.numa_node
        top = gpu.switch or gpu.function.path
        root_port = pci.bridge_above(top, node)
        made[root_port.path] = pci.entries(root_port)
        if gpu.switch is not None:
            for path in (gpu.switch, gpu.function.path.rpartition("/")[0]):
                made[path] = pci.entries(replace(_PLX_SWITCH, path=path, numa_node=node))
    return [entry for entries_of_one in made.values() for entry in entries_of_one]


def _driver() -> list[Entry]:
    version = (
        f"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {DRIVER_VERSION}  Release Build  (dvs-builder)\n"
        "GCC version:  gcc version 13.3.0"
    )
    params = "ModifyDeviceFiles: 1\nDeviceFileUID: 0\nDeviceFileGID: 0\nDeviceFileMode: 438\nImexChannelCount: 2048"
    control = {
        "nvidiactl": (MAJOR, 255),
        "nvidia-modeset": (MAJOR, 254),
        "nvidia-uvm": (_UVM_MAJOR, 0),
        "nvidia-uvm-tools": (_UVM_MAJOR, 1),
    }
    return [
        File.line("sys/module/nvidia/version", DRIVER_VERSION),
        File.line("proc/driver/nvidia/version", version),
        File.line("proc/driver/nvidia/params", params),
        *(DeviceNode(f"dev/{name}", "char", *number) for name, number in control.items()),
    ]


def _switches() -> list[Entry]:
    """The six NVSwitches of a baseboard, and two processes of the host: the fabric manager and a kernel thread."""
    return [
        *(
            File.line(f"{_SWITCHES}/{_switch(number)}/information", "BIOS Version: N/A")
            for number in range(_SWITCH_COUNT)
        ),
        File.line("proc/2/comm", "kthreadd"),
        File.line(f"{_FABRIC_MANAGER}/comm", "nv-fabricmanage"),
        File.line(f"{_FABRIC_MANAGER}/stat", "2939 (nv-fabricmanage) S 1 2939 2939 0 -1"),
    ]


def has_switches(root: Path) -> bool:
    """Whether the GPUs of the node below `root` are on NVLink switches."""
    return (root / _SWITCHES).is_dir()


def stop_fabric_manager(root: Path) -> None:
    """Remove the fabric manager's process. Raises UsageError when it does not run."""
    process = root / _FABRIC_MANAGER
    if not process.exists():
        raise UsageError("no fabric manager runs", f"no process {process}", "choose a node with `nvlink: switch`")
    shutil.rmtree(process)


def _gpu(gpu: NvidiaGpu, numbers: Numbers) -> list[Entry]:
    path = gpu.function.path
    card = numbers.take("drm card")
    return [
        *pci.entries(gpu.function),
        File.line(f"{path}/power/runtime_status", "active"),
        File(f"{path}/config", config_space(gpu.function.device)),
        *class_node(f"{path}/drm/card{card}", "drm", f"dri/card{card}", (_DRM_MAJOR, card)),
        *class_node(f"{path}/drm/renderD{128 + card}", "drm", f"dri/renderD{128 + card}", (_DRM_MAJOR, 128 + card)),
        File.line(information_path(gpu.function.address), _information(gpu)),
        DeviceNode(f"dev/nvidia{gpu.minor}", "char", MAJOR, gpu.minor),
        *(capability_entries(gpu.minor, gpu.mig or ()) if gpu.model.knows_mig else []),
        *(
            entry
            for place, kind in zip(gpu.function.virtual, gpu.vgpu_types, strict=True)
            for entry in _vgpu_function(gpu, place, kind)
        ),
    ]


def _vgpu_function(gpu: NvidiaGpu, path: str, kind: int) -> list[Entry]:
    """A virtual function as the driver of a virtualization host has it without mediated devices."""
    function = replace(gpu.function, path=path, physical=gpu.function.path, virtual=())
    return [*pci.entries(function), File.line(f"{path}/nvidia/current_vgpu_type", str(kind))]


def config_space(device: int) -> bytes:
    """The first 64 bytes of the configuration space, which every user may read."""
    return _NVIDIA.to_bytes(2, "little") + device.to_bytes(2, "little") + bytes(60)


def information_path(address: str) -> str:
    """The driver's information file of a GPU in procfs."""
    return f"proc/driver/nvidia/gpus/{address}/information"


def _information(gpu: NvidiaGpu) -> str:
    video_bios = "96.00.74.00.01" if gpu.is_initialised else "??.??.??.??.??"
    lines = [
        f"Model: \t\t {gpu.model.name}",
        f"IRQ:   \t\t {100 + gpu.minor}",
        *([f"GPU UUID: \t {gpu.uuid}"] if gpu.is_initialised else []),
        f"Video BIOS: \t {video_bios}",
        "Bus Type: \t PCIe",
        "DMA Size: \t 52 bits",
        "DMA Mask: \t 0xfffffffffffff",
        f"Bus Location: \t {gpu.function.address}",
        f"Device Minor: \t {gpu.minor}",
        f"GPU Firmware: \t {DRIVER_VERSION}",
        f"GPU Excluded:\t {'Yes' if gpu.is_excluded else 'No'}",
    ]
    return "\n".join(lines)


def _facts(spec: NvidiaSpec, gpus: Sequence[NvidiaGpu]) -> dict[str, Any]:
    """NVML's facts. NVML does not count excluded GPUs."""
    visible = [gpu for gpu in gpus if not gpu.is_excluded]
    return {
        "driver_version": DRIVER_VERSION,
        "cuda_version": "13.0",
        "gpus": [
            {
                "pci_address": gpu.function.address,
                "index": index,
                "uuid": gpu.uuid,
                "minor": gpu.minor,
                "model": gpu.model.name,
                "serial": f"15650230{10000 + gpu.number}",
                "memory_bytes": gpu.model.memory_bytes,
                "compute_capability": list(gpu.model.compute_capability),
                "brand": gpu.model.brand,
                "architecture": gpu.model.architecture,
                "addressing_mode": gpu.model.addressing_mode,
                "mig_mode": (gpu.mig is not None) if gpu.model.knows_mig else None,
                "mig_devices": [device.facts(place) for place, device in enumerate(gpu.mig or ())],
                "nvlinks": _nvlinks(gpu, visible) if spec.nvlink == "direct" else {},
                "switch_links": _SWITCH_LINKS if spec.nvlink == "switch" else 0,
                "switch_ports": switch_ports(gpu.number) if spec.nvlink == "switch" else {},
            }
            for index, gpu in enumerate(visible)
        ],
        "problems": [],
    }


def switch_ports(number: int) -> dict[str, str]:
    """The switch ports that a GPU's links lead to: the same number on each switch."""
    each = _SWITCH_LINKS // _SWITCH_COUNT
    places = [(switch, number * each + link) for switch in range(_SWITCH_COUNT) for link in range(each)]
    return {str(link): f"{_switch(switch)}/{port}" for link, (switch, port) in enumerate(places)}


def _switch(number: int) -> str:
    """The PCI address of a switch."""
    return f"0000:f{number}:00.0"


def _nvlinks(gpu: NvidiaGpu, gpus: Sequence[NvidiaGpu]) -> dict[str, int]:
    mesh = _CUBE_MESH if len(gpus) == 8 else {(first, first + 1): 4 for first in range(0, len(gpus), 2)}
    pairs = {other: mesh.get((min(gpu.number, other.number), max(gpu.number, other.number)), 0) for other in gpus}
    return {other.function.address: count for other, count in pairs.items() if count}
