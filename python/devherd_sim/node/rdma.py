"""RDMA cards under mlx5: the classes infiniband, infiniband_verbs and infiniband_mad, and their network interfaces.

Documentation/ABI/stable/sysfs-class-infiniband; numbers as in the kernel's drivers/infiniband/core.
"""

from collections.abc import Iterator, Sequence
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from devherd_sim.node import machine, pci
from devherd_sim.node.entry import Entry, File, attributes
from devherd_sim.node.intel_fpga import Numbers
from devherd_sim.node.machine import class_device, class_node
from devherd_sim.node.pci import Slots, numa_node_of, virtual_function

_MELLANOX = 0x15B3
_DRIVER = "mlx5_core"
_NETWORK_CLASSES = {"InfiniBand": 0x020700, "Ethernet": 0x020000}
_MAJOR, _DYNAMIC_MAJOR = 231, 509
_FIXED_MINORS = 32
_VERBS_BASE, _ISSM_BASE = 192, 64
_INTERFACE_TYPES = {"InfiniBand": 32, "Ethernet": 1}
"""Hardware types of the kernel's if_arp.h."""
LINK_COUNTERS = (
    "link_downed",
    "link_error_recovery",
    "symbol_error",
    "port_rcv_errors",
    "port_xmit_discards",
    "excessive_buffer_overrun_errors",
    "local_link_integrity_errors",
)
"""The counters of a port in `counters`."""
HARDWARE_COUNTERS = ("rnr_nak_retry_err", "local_ack_timeout_err", "roce_slow_restart")
"""The counters of a port in `hw_counters`, under mlx5."""
_RATES = {"InfiniBand": "200 Gb/sec (4X HDR)", "Ethernet": "100 Gb/sec (4X EDR)"}


class RdmaSpec(BaseModel):
    """`cards` identical one-port cards; virtual functions are RDMA devices in addition to the physical one."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    cards: Annotated[int, Field(ge=1, le=32)] = 1
    """Their number."""
    vfs: Annotated[int, Field(ge=0, le=31)] = 0
    """Number of virtual functions of each."""
    vf_driver: Literal["own", "vfio-pci"] = "own"
    """Driver of the virtual functions: the card's own, or vfio-pci, as for virtual machines."""
    numa_nodes: Annotated[int, Field(ge=0, le=8)] = 1
    """Number of NUMA nodes that they are spread over; 0 = unknown."""
    link_layer: Literal["InfiniBand", "Ethernet"] = "InfiniBand"
    """Link layer of the port."""


def modules(specs: Sequence[RdmaSpec]) -> set[str]:
    """The kernel modules that these cards need."""
    return {"mlx5_core", "mlx5_ib", "ib_core", "ib_uverbs", "ib_umad", "rdma_cm", "rdma_ucm"} if specs else set()


def entries(specs: Sequence[RdmaSpec], slots: Slots, numbers: Numbers) -> list[Entry]:
    """All cards, each with its root port, and the device rdma_cm that they share."""
    if not specs:
        return []
    made = machine.virtual_entries(machine.VirtualDevice("infiniband/rdma_cm", (10, 123)))
    for spec in specs:
        for index in range(spec.cards):
            numa_node = numa_node_of(index, spec.cards, spec.numa_nodes)
            path = slots.take(numa_node)
            made += pci.entries(pci.bridge_above(path, numa_node))
            for function in _functions(spec, path, numa_node):
                made += pci.entries(function)
                made += _device(spec, function, numbers.take("rdma device")) if function.driver == _DRIVER else []
    return made


def _functions(spec: RdmaSpec, path: str, numa_node: int) -> Iterator[pci.Function]:
    """The physical function, then its virtual ones."""
    virtual = tuple(virtual_function(path, index) for index in range(1, spec.vfs + 1))
    for place in (path, *virtual):
        yield pci.Function(
            path=place,
            vendor=_MELLANOX,
            device=0x101B if place == path else 0x101C,
            pci_class=_NETWORK_CLASSES[spec.link_layer],
            driver=_DRIVER if place == path or spec.vf_driver == "own" else spec.vf_driver,
            numa_node=numa_node,
            physical=None if place == path else path,
            virtual=virtual if place == path else (),
        )


def _device(spec: RdmaSpec, function: pci.Function, number: int) -> list[Entry]:
    name = f"mlx5_{number}"
    path = f"{function.path}/infiniband/{name}"
    guid = f"b859:9f03:00a1:{number:04x}"
    facts = {
        "node_type": "1: CA",
        "node_guid": guid,
        "sys_image_guid": guid,
        "node_desc": name,
        "hca_type": f"MT{function.device}",
        "fw_ver": "20.31.1014",
        "hw_rev": "0",
        "board_id": "MT_0000000223",
    }
    port = {
        "state": "4: ACTIVE",
        "phys_state": "5: LinkUp",
        "link_layer": spec.link_layer,
        "rate": _RATES[spec.link_layer],
        "lid": f"0x{number + 1:x}",
    }
    return [
        *class_device(path, "infiniband", function.path),
        *attributes(path, facts),
        *attributes(f"{path}/ports/1", port),
        File.line(f"{path}/ports/1/pkeys/0", "0xffff"),
        *_counters(f"{path}/ports/1", is_physical=function.physical is None),
        *_character_device(function, "infiniband_verbs", f"uverbs{number}", name, _verbs_number(number)),
        *_character_device(function, "infiniband_mad", f"umad{number}", name, (_MAJOR, number)),
        *_character_device(function, "infiniband_mad", f"issm{number}", name, (_MAJOR, _ISSM_BASE + number)),
        *_interface(spec, function, number),
    ]


def _counters(port: str, *, is_physical: bool) -> list[Entry]:
    """The counters of a card that has been in use; the link counters of a virtual function are unavailable."""
    link, hardware = (f"{port}/{name}" for name in ("counters", "hw_counters"))
    if not is_physical:
        return attributes(link, dict.fromkeys(LINK_COUNTERS, "N/A (no PMA)"))
    return [
        *attributes(link, {name: "2" if name == "link_downed" else "0" for name in LINK_COUNTERS}),
        *attributes(hardware, dict.fromkeys(HARDWARE_COUNTERS, "0")),
    ]


def _verbs_number(number: int) -> tuple[int, int]:
    """The major and minor number of a verbs device; the first 32 have fixed numbers."""
    if number < _FIXED_MINORS:
        return _MAJOR, _VERBS_BASE + number
    return _DYNAMIC_MAJOR, number - _FIXED_MINORS


def _character_device(
    function: pci.Function, class_name: str, node: str, device: str, number: tuple[int, int]
) -> list[Entry]:
    path = f"{function.path}/{class_name}/{node}"
    return [*class_node(path, class_name, f"infiniband/{node}", number), File.line(f"{path}/ibdev", device)]


def _interface(spec: RdmaSpec, function: pci.Function, number: int) -> list[Entry]:
    path = f"{function.path}/net/{'ib' if spec.link_layer == 'InfiniBand' else 'eth'}{number}"
    facts = {"operstate": "up", "carrier": "1", "type": str(_INTERFACE_TYPES[spec.link_layer])}
    return [*class_device(path, "net", function.path), *attributes(path, facts)]
