"""AMD GPUs as a spec and as a plan: which GPU has which partitions, numbers and neighbours.

A GPU that can be partitioned has a platform device for each partition but the first, spare ones included: the driver
makes as many as there can ever be, and KFD's topology lists those in use.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from devherd_sim.node.fpga_card import Numbers
from devherd_sim.node.pci_slots import Slots, numa_node_of
from devherd_sim.node.written import Written

PRIMARY_MINORS = 64  # of DRM; who comes later has no node (include/drm/drm_file.h, before Linux 6.13)
_FIRST_RENDER_MINOR = 128
_XCPS = 7  # amdgpu_xcp_drv.c: one partition is on the PCI function itself

Address = Annotated[
    str, Written(r"^[0-9a-f]{4,8}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7]$", "a PCI address in lower case", '"0000:19:00.0"')
]


class AmdSpec(BaseModel):
    """A number of equal AMD GPUs, with their driver or without."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    model: Literal["vega10", "mi210", "mi300x", "mi308x"] = "mi210"
    """Their product."""
    cards: Annotated[int, Field(ge=1, le=64)] = 1
    """How many there are."""
    addresses: list[Address] = []
    """Where they sit; the next free slots when empty."""
    numa_nodes: Annotated[int, Field(ge=0, le=8)] = 1
    """Over how many NUMA nodes they are spread; 0 = none is known."""
    hives: Annotated[int, Field(ge=0, le=64)] = 1
    """Groups that are linked by XGMI, of equal size; 0 = none is linked."""
    p2p: bool = True
    """Whether KFD lists direct PCIe paths between GPUs (HSA_AMD_P2P)."""
    compute_partition: Literal["SPX", "DPX", "TPX", "QPX", "CPX"] = "SPX"
    """Into how many each GPU is split."""
    memory_partition: Literal["NPS1", "NPS2", "NPS4"] = "NPS1"
    """Likewise its memory."""
    xcp_name: Literal["amdgpu_xcp_", "amdgpu_xcp."] = "amdgpu_xcp_"
    """What the kernel calls the platform devices of partitions."""
    first_xcp: Annotated[int, Field(ge=0)] = 0
    """The kernel counts on with each repartitioning."""
    display: bool = False
    """Whether a management controller's display has the first DRM minor."""
    driver: Literal["amdgpu", "gim", "vfio-pci", "none"] = "amdgpu"
    """Who has them: `gim` and `vfio-pci` give them to virtual machines."""
    vfs: Annotated[int, Field(ge=0, le=8)] = 0
    """Virtual functions of each, under gim."""


@dataclass(frozen=True, slots=True)
class Model:
    """What a product is; `units` is how many dies it can be split into, 1 for one that cannot be."""

    product_name: str
    device: int
    pci_class: int
    gfx_target_version: int
    simd_count: int
    memory: int
    units: int = 1
    xgmi_weight: int = 15
    far_processor_weight: int | None = 52
    """Of the p2p_link to the other socket; None where KFD counts it and shows none."""


MODELS = {
    "vega10": Model("", 0x6860, 0x030000, 0, 256, 17163091968),
    "mi210": Model("AMD Instinct MI210", 0x740F, 0x038000, 90010, 416, 68702699520),
    "mi300x": Model("AMD Instinct MI300X OAM", 0x74A1, 0x120000, 90402, 1216, 206141652992, 8, 41, None),
    "mi308x": Model("AMD Instinct MI308X OAM", 0x74A2, 0x120000, 90402, 320, 206158430208, 4, 41, 41),
}
_PARTS = {"SPX": 1, "DPX": 2, "TPX": 3, "QPX": 4}


@dataclass(frozen=True, slots=True)
class Part:
    """A DRM device of a GPU: its PCI function (`xcp` empty) or a platform device. A spare one computes nothing."""

    card: int
    render: int
    xcp: str
    is_spare: bool


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU under amdgpu. `number` and `hive` count on the host; a GPU of no hive has None."""

    spec: AmdSpec
    number: int
    path: str
    numa_node: int
    hive: tuple[int, int] | None
    parts: tuple[Part, ...]

    @property
    def model(self) -> Model:
        """What product it is."""
        return MODELS[self.spec.model]

    @property
    def address(self) -> str:
        """`0000:19:00.0`."""
        return self.path.rpartition("/")[2]


def gpus(groups: Sequence[AmdSpec], slots: Slots, numbers: Numbers) -> Iterator[Gpu]:
    """All GPUs in the order in which the driver finds them."""
    for group, spec in enumerate(groups):
        count = len(spec.addresses) or spec.cards
        for index in range(count):
            near = numa_node_of(index, count, spec.numa_nodes)
            path = _path_of(spec.addresses[index]) if spec.addresses else slots.take(near)
            hive = (group, index * spec.hives // count) if spec.hives else None
            parts = tuple(_parts(spec, numbers)) if spec.driver == "amdgpu" else ()
            yield Gpu(spec, numbers.take("amd gpu"), path, near, hive, parts)


def partitions(spec: AmdSpec) -> int:
    """How many partitions each GPU has."""
    units = MODELS[spec.model].units
    return units if spec.compute_partition == "CPX" else min(units, _PARTS[spec.compute_partition])


def _parts(spec: AmdSpec, numbers: Numbers) -> Iterator[Part]:
    displays = int(spec.display)
    for index in range(1 + (_XCPS if MODELS[spec.model].units > 1 else 0)):
        card = numbers.take("drm card")
        if card >= PRIMARY_MINORS:
            return
        xcp = f"{spec.xcp_name}{spec.first_xcp + numbers.take('amdgpu xcp')}" if index else ""
        yield Part(card, _FIRST_RENDER_MINOR + card - displays, xcp, is_spare=index >= partitions(spec))


def _path_of(address: str) -> str:
    """Below a root port on a bus of its own, the one before."""
    domain, bus, _ = address.split(":")
    root = f"{domain}:{int(bus, 16) - 1 & 0xFF:02x}"
    return f"sys/devices/pci{root}/{root}:01.0/{address}"
