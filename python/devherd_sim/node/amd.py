"""AMD GPUs: their spec, and the plan of each GPU's slot, partitions, numbers, hive and driver."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from devherd_sim.node import pci
from devherd_sim.node.entry import Entry, link, named_link
from devherd_sim.node.intel_fpga import Numbers
from devherd_sim.node.machine import class_node
from devherd_sim.node.pci import Slots, numa_node_of
from devherd_sim.node.written import Written

PRIMARY_MINORS = 64  # of DRM; later devices get no node (include/drm/drm_file.h, before Linux 6.13)
_FIRST_RENDER_MINOR = 128
_XCPS = 7  # amdgpu_xcp_drv.c: one partition is on the PCI function itself

Address = Annotated[
    str, Written(r"^[0-9a-f]{4,8}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7]$", "a PCI address in lower case", '"0000:19:00.0"')
]


class AmdSpec(BaseModel):
    """`cards` identical AMD GPUs, with their driver or without."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    model: Literal["vega10", "mi210", "mi300x", "mi308x"] = "mi210"
    """Their product."""
    cards: Annotated[int, Field(ge=1, le=64)] = 1
    """Their number."""
    addresses: list[Address] = []
    """PCI addresses; empty: the next free slots."""
    numa_nodes: Annotated[int, Field(ge=0, le=8)] = 1
    """Number of NUMA nodes that they are spread over; 0 = unknown."""
    hives: Annotated[int, Field(ge=0, le=64)] = 1
    """Groups that are linked by XGMI, of equal size; 0 = none is linked."""
    p2p: bool = True
    """Whether KFD lists direct PCIe paths between GPUs (HSA_AMD_P2P)."""
    compute_partition: Literal["SPX", "DPX", "TPX", "QPX", "CPX"] = "SPX"
    """Number of compute partitions of each GPU."""
    memory_partition: Literal["NPS1", "NPS2", "NPS4"] = "NPS1"
    """Number of memory partitions of each GPU."""
    xcp_name: Literal["amdgpu_xcp_", "amdgpu_xcp."] = "amdgpu_xcp_"
    """Name of the platform devices of partitions, which depends on the kernel."""
    first_xcp: Annotated[int, Field(ge=0)] = 0
    """Number of the first platform device: it grows with each repartitioning."""
    display: bool = False
    """Whether a management controller's display has the first DRM minor."""
    driver: Literal["amdgpu", "gim", "vfio-pci", "none"] = "amdgpu"
    """The bound driver: `gim` and `vfio-pci` are for virtual machines."""
    vfs: Annotated[int, Field(ge=0, le=8)] = 0
    """Number of virtual functions of each, under gim."""


@dataclass(frozen=True, slots=True)
class Model:
    """The facts of a product. `units`: number of dies that it can be split into, 1 if it cannot be split."""

    product_name: str
    device: int
    pci_class: int
    gfx_target_version: int
    simd_count: int
    memory: int
    units: int = 1
    xgmi_weight: int = 15
    far_processor_weight: int | None = 52
    """Weight of the p2p link to the other socket; None if KFD counts the GPU's p2p links and shows none."""


MODELS = {
    "vega10": Model("", 0x6860, 0x030000, 0, 256, 17163091968),
    "mi210": Model("AMD Instinct MI210", 0x740F, 0x038000, 90010, 416, 68702699520),
    "mi300x": Model("AMD Instinct MI300X OAM", 0x74A1, 0x120000, 90402, 1216, 206141652992, 8, 41, None),
    "mi308x": Model("AMD Instinct MI308X OAM", 0x74A2, 0x120000, 90402, 320, 206158430208, 4, 41, 41),
}
_PARTS = {"SPX": 1, "DPX": 2, "TPX": 3, "QPX": 4}


@dataclass(frozen=True, slots=True)
class DrmDevice:
    """A DRM device of a GPU: its PCI function (`xcp` empty) or a platform device. A spare one is not a partition."""

    card: int
    render: int
    xcp: str
    is_spare: bool


@dataclass(frozen=True, slots=True)
class AmdGpu:
    """One GPU. `number` counts on the host; `hive`: its group and its hive in the group, None without a hive."""

    spec: AmdSpec
    number: int
    path: str
    numa_node: int
    hive: tuple[int, int] | None
    parts: tuple[DrmDevice, ...]

    @property
    def model(self) -> Model:
        """The GPU's product."""
        return MODELS[self.spec.model]

    @property
    def address(self) -> str:
        """The PCI address, `0000:19:00.0`."""
        return self.path.rpartition("/")[2]


def gpus(groups: Sequence[AmdSpec], slots: Slots, numbers: Numbers) -> Iterator[AmdGpu]:
    """All GPUs in the order in which the driver finds them."""
    for group, spec in enumerate(groups):
        count = len(spec.addresses) or spec.cards
        for index in range(count):
            near = numa_node_of(index, count, spec.numa_nodes)
            path = _path_of(spec.addresses[index]) if spec.addresses else slots.take(near)
            hive = (group, index * spec.hives // count) if spec.hives else None
            parts = tuple(_parts(spec, numbers)) if spec.driver == "amdgpu" else ()
            yield AmdGpu(spec, numbers.take("amd gpu"), path, near, hive, parts)


def partitions(spec: AmdSpec) -> int:
    """The number of partitions of each GPU."""
    units = MODELS[spec.model].units
    return units if spec.compute_partition == "CPX" else min(units, _PARTS[spec.compute_partition])


def _parts(spec: AmdSpec, numbers: Numbers) -> Iterator[DrmDevice]:
    displays = int(spec.display)
    for index in range(1 + (_XCPS if MODELS[spec.model].units > 1 else 0)):
        card = numbers.take("drm card")
        if card >= PRIMARY_MINORS:
            return
        xcp = f"{spec.xcp_name}{spec.first_xcp + numbers.take('amdgpu xcp')}" if index else ""
        yield DrmDevice(card, _FIRST_RENDER_MINOR + card - displays, xcp, is_spare=index >= partitions(spec))


def _path_of(address: str) -> str:
    """The sysfs directory of a GPU, below a root port on the preceding bus."""
    domain, bus, _ = address.split(":")
    root = f"{domain}:{int(bus, 16) - 1 & 0xFF:02x}"
    return f"sys/devices/pci{root}/{root}:01.0/{address}"


_AMD = 0x1002
_VFIO_MAJOR = 511
_VIRTUAL_FUNCTION = 0x74B5


def passed_through(gpus: Sequence[AmdGpu], numbers: Numbers) -> list[Entry]:
    """The entries of GPUs that amdgpu does not drive; each function with a driver has its own IOMMU group."""
    made: list[Entry] = []
    if any(gpu.spec.driver != "none" for gpu in gpus):
        made += class_node("sys/devices/virtual/misc/vfio", "misc", "vfio/vfio", (10, 196))
    for gpu in gpus:
        for function in _functions(gpu):
            made += pci.entries(function)
            if function.driver is not None:
                made += _group(function, numbers.take("iommu group"))
    return made


def _functions(gpu: AmdGpu) -> list[pci.Function]:
    virtual = tuple(f"{gpu.path[:-4]}{index // 8:02x}.{index % 8}" for index in range(1, gpu.spec.vfs + 1))
    driver = None if gpu.spec.driver == "none" else gpu.spec.driver
    physical = pci.Function(
        path=gpu.path,
        vendor=_AMD,
        device=gpu.model.device,
        pci_class=gpu.model.pci_class,
        driver=driver,
        numa_node=gpu.numa_node,
        virtual=virtual,
    )
    return [
        physical,
        *(
            pci.Function(
                path=path,
                vendor=_AMD,
                device=_VIRTUAL_FUNCTION,
                pci_class=gpu.model.pci_class,
                driver="vfio-pci",
                numa_node=gpu.numa_node,
                physical=gpu.path,
            )
            for path in virtual
        ),
    ]


def _group(function: pci.Function, number: int) -> list[Entry]:
    group = f"sys/kernel/iommu_groups/{number}"
    made: list[Entry] = [link(f"{function.path}/iommu_group", group), named_link(f"{group}/devices", function.path)]
    if function.driver == "vfio-pci":
        made += class_node(f"sys/devices/virtual/vfio/{number}", "vfio", f"vfio/{number}", (_VFIO_MAJOR, number))
    return made
