"""Xilinx FPGA cards under XRT: a user function and, on bare metal, one for management.

<https://xilinx.github.io/XRT/master/html/platforms.html>; XRT's drivers xocl and xclmgmt.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from devherd_sim.node import amdgpu, pci
from devherd_sim.node.entry import Entry, attributes
from devherd_sim.node.intel_fpga import Numbers
from devherd_sim.node.machine import class_node
from devherd_sim.node.pci import Slots, numa_node_of
from devherd_sim.node.written import Written

_MANAGEMENT_MAJOR, _DMA_MAJOR = 235, 236
_USER_DEVICE, _MANAGEMENT_DEVICE = 0x5001, 0x5000


class XilinxFpgaSpec(BaseModel):
    """`cards` identical Xilinx FPGA cards."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    cards: Annotated[int, Field(ge=1, le=64)] = 1
    """Their number."""
    devices: Annotated[int, Field(ge=1, le=4)] = 1
    """Number of PCI devices of a card, which share its serial number; a U30 has two."""
    vendor: Annotated[str, Written(r"^0x[0-9a-f]{4}$", "a PCI vendor id in lower case", '"0x10ee"')] = "0x10ee"
    """PCI vendor id; AWS uses its own."""
    vbnv: Annotated[str, Written(r"^\S+$", "a name without blanks", "xilinx_u200_xdma_201830_2")] = (
        "xilinx_u200_xdma_201830_2"
    )
    """The shell's vendor, board, name and version."""
    timestamp: Annotated[str, Written(r"^\S+$", "a timestamp without blanks", '"1561465320"')] = "1561465320"
    """The shell's timestamp."""
    management: bool = True
    """Whether the management function is there; virtual machines have only the user function."""
    qdma: bool = False
    """Whether the shell moves data by queues."""
    serial_number: bool = True
    """Whether the cards have a serial number; AWS F1 has none."""
    numa_nodes: Annotated[int, Field(ge=0, le=8)] = 1
    """Number of NUMA nodes that they are spread over; 0 = unknown."""


@dataclass(frozen=True, slots=True)
class _Function:
    """A function. `instance`: the number that XRT computes from its domain, bus, device and function."""

    pci: pci.Function

    @property
    def instance(self) -> int:
        domain, bus, rest = self.pci.address.split(":")
        device, _, function = rest.partition(".")
        return int(domain, 16) * 65536 + int(bus, 16) * 256 + int(device, 16) * 8 + int(function)


def modules(specs: Sequence[XilinxFpgaSpec]) -> set[str]:
    """The kernel modules that these cards need."""
    return {"xocl", *(["xclmgmt"] if any(spec.management for spec in specs) else [])} if specs else set()


def entries(specs: Sequence[XilinxFpgaSpec], slots: Slots, numbers: Numbers) -> list[Entry]:
    """All cards, each device with its root port."""
    made: list[Entry] = []
    for spec in specs:
        for index in range(spec.cards):
            serial_number = f"2129048{numbers.take('xilinx card'):05}"
            for _ in range(spec.devices):
                numa_node = numa_node_of(index, spec.cards, spec.numa_nodes)
                made += _device(spec, slots.take(numa_node), numa_node, serial_number, numbers)
    return made


def _device(spec: XilinxFpgaSpec, path: str, numa_node: int, serial_number: str, numbers: Numbers) -> list[Entry]:
    """The entries of a PCI device; the management function comes first, as in XRT since 2018.3."""
    made = pci.entries(pci.bridge_above(path, numa_node))
    if spec.management:
        management = _function(spec, path, _MANAGEMENT_DEVICE, "xclmgmt", numa_node)
        made += [*pci.entries(management.pci), *_management(management)]
        path = f"{path[:-1]}1"
    user = _function(spec, path, _USER_DEVICE, "xocl", numa_node)
    return [
        *made,
        *pci.entries(user.pci),
        *amdgpu.card(user.pci, numbers.take("drm card")),
        *_user(spec, user, serial_number),
    ]


def _function(spec: XilinxFpgaSpec, path: str, device: int, driver: str, numa_node: int) -> _Function:
    vendor = int(spec.vendor, 16)
    return _Function(pci.Function(path=path, vendor=vendor, device=device, driver=driver, numa_node=numa_node))


def _management(function: _Function) -> list[Entry]:
    path, instance = function.pci.path, function.instance
    node = f"xclmgmt{instance}"
    return [
        *attributes(path, {"mgmt_pf": "", "instance": str(instance)}),
        *class_node(f"{path}/xrt_mgmt/{node}", "xrt_mgmt", node, (_MANAGEMENT_MAJOR, instance)),
    ]


def _user(spec: XilinxFpgaSpec, function: _Function, serial_number: str) -> list[Entry]:
    path, instance = function.pci.path, function.instance
    made = [
        *attributes(path, {"user_pf": "", "logic_uuids": "862c7020a250293e32036f19956669e5"}),
        *attributes(f"{path}/rom.u.{instance}", {"VBNV": spec.vbnv, "timestamp": spec.timestamp}),
    ]
    if spec.serial_number:
        made += attributes(f"{path}/xmc.u.{instance}", {"serial_num": serial_number, "xmc_fpga_temp": "45"})
    if spec.qdma:
        name = f"dma.qdma.u{instance}.0"
        made += class_node(f"{path}/dma.qdma.u.{instance}/{name}", "xrt_user", f"xfpga/{name}", (_DMA_MAJOR, instance))
    return made
