"""KFD's topology of processors and AMD GPUs: drivers/gpu/drm/amd/amdkfd/kfd_topology.c.

Caches are left out: nobody here reads them, and they are most of a real topology's files.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from devherd_sim.node.amd import Gpu, Part, partitions
from devherd_sim.node.class_device import class_node
from devherd_sim.node.entry import Directory, Entry, File, attributes

_KFD = "sys/devices/virtual/kfd/kfd"
TOPOLOGY = f"{_KFD}/topology"
NODES = f"{TOPOLOGY}/nodes"
_HYPER_TRANSPORT, _PCIE, _XGMI = 1, 2, 11
_PROCESSOR_WEIGHT, _PCIE_WEIGHT, _WITHIN_WEIGHT, _OTHER_HIVE_WEIGHT = 32, 20, 13, 72
_HIVE_ID = 0xC06C_0F31_7A8D_1200  # above 2**63, as many are
_SOME_ID = 0xF0A1_0000_0000_0000


@dataclass(frozen=True, slots=True)
class Node:
    """A GPU or partition: its number in the topology, and which partition of its GPU it is."""

    number: int
    gpu: Gpu
    part: Part
    partition: int

    @property
    def processor(self) -> int:
        """The node of the processors near it."""
        return max(self.gpu.numa_node, 0)


@dataclass(frozen=True, slots=True)
class _Link:
    kind: int
    to: int
    weight: int


def entries(gpus: Sequence[Gpu], numa_nodes: int) -> list[Entry]:
    """KFD's device and its topology."""
    sockets = max(numa_nodes, 1)
    nodes = numbered(computing(gpus), sockets)
    return [
        *class_node(_KFD, "kfd", "kfd", (235, 0)),
        *attributes(TOPOLOGY, {"generation_id": str(len(nodes) + 1 + sum(gpu.spec.first_xcp for gpu in gpus))}),
        File.line(f"{TOPOLOGY}/system_properties", "platform_oem 0\nplatform_id 0\nplatform_rev 0"),
        *(entry for socket in range(sockets) for entry in processor_entries(socket, sockets, nodes)),
        *(entry for node in nodes for entry in node_entries(node, nodes, sockets)),
    ]


def computing(gpus: Iterable[Gpu]) -> Iterator[tuple[Gpu, int]]:
    """Each GPU with the number of each of its partitions in use."""
    for gpu in gpus:
        yield from ((gpu, partition) for partition, part in enumerate(gpu.parts) if not part.is_spare)


def numbered(parts: Iterable[tuple[Gpu, int]], sockets: int) -> list[Node]:
    """The nodes of these partitions, behind those of the processors."""
    return [Node(sockets + index, gpu, gpu.parts[partition], partition) for index, (gpu, partition) in enumerate(parts)]


def processor_entries(socket: int, sockets: int, nodes: Sequence[Node]) -> list[Entry]:
    """A node of processors: no SIMDs, no render node."""
    links = [_Link(_HYPER_TRANSPORT, other, _PROCESSOR_WEIGHT) for other in range(sockets) if other != socket]
    links += [_Link(_PCIE, node.number, _PCIE_WEIGHT) for node in nodes if node.processor == socket]
    facts = {
        "cpu_cores_count": 64,
        "simd_count": 0,
        "mem_banks_count": 1,
        "caches_count": 0,
        "io_links_count": len(links),
        "p2p_links_count": 0,
        "cpu_core_id_base": socket * 64,
        "simd_per_cu": 0,
        "gfx_target_version": 0,
        "vendor_id": 0,
        "device_id": 0,
        "location_id": 0,
        "domain": 0,
        "drm_render_minor": 0,
        "hive_id": 0,
        "unique_id": 0,
        "num_xcc": 0,
    }
    return [*_node(socket, 0, facts, 270 << 30), *_links(socket, "io_links", links)]


def node_entries(node: Node, nodes: Sequence[Node], sockets: int, *, is_filled_in: bool = True) -> list[Entry]:
    """A GPU or partition among all. One that is not filled in has neither render node nor place yet."""
    gpu, model = node.gpu, node.gpu.model
    io_links = [*_xgmi(node, nodes), _Link(_PCIE, node.processor, _PCIE_WEIGHT)]
    p2p_links = list(_p2p(node, nodes, sockets)) if gpu.spec.p2p and model.gfx_target_version else []
    shown = [] if model.far_processor_weight is None else p2p_links
    parts = partitions(gpu.spec)
    domain, bus, slot = gpu.address.split(":")
    facts = {
        "cpu_cores_count": 0,
        "simd_count": model.simd_count // parts,
        "mem_banks_count": 1,
        "caches_count": 0,
        "io_links_count": len(io_links),
        "p2p_links_count": len(p2p_links),
        "simd_id_base": 2147487744 + 256 * node.partition,
        "max_waves_per_simd": 8,
        "lds_size_in_kb": 64,
        "simd_per_cu": 4,
        "gfx_target_version": model.gfx_target_version,
        "vendor_id": 0x1002,
        "device_id": model.device,
        "location_id": int(bus, 16) << 8 | int(slot[:2], 16) << 3 | node.partition,
        "domain": int(domain, 16),
        "drm_render_minor": node.part.render,
        "hive_id": _HIVE_ID + gpu.hive[0] * 16 + gpu.hive[1] if gpu.hive else 0,
        "unique_id": _SOME_ID + gpu.number,
        "num_xcc": model.units // parts,
    }
    if not model.gfx_target_version:
        for unknown in ("p2p_links_count", "gfx_target_version", "domain", "hive_id", "num_xcc"):
            del facts[unknown]
    if not is_filled_in:
        facts |= dict.fromkeys(("drm_render_minor", "location_id"), 0)
    return [
        *_node(node.number, 4096 + node.number, facts, model.memory // parts),
        *_links(node.number, "io_links", io_links),
        *(_links(node.number, "p2p_links", shown) if model.gfx_target_version else []),
    ]


def _xgmi(node: Node, nodes: Sequence[Node]) -> Iterator[_Link]:
    for other in nodes:
        if other.gpu == node.gpu and other != node:
            yield _Link(_XGMI, other.number, _WITHIN_WEIGHT)
        elif other.gpu != node.gpu and node.gpu.hive is not None and other.gpu.hive == node.gpu.hive:
            yield _Link(_XGMI, other.number, node.gpu.model.xgmi_weight)


def _p2p(node: Node, nodes: Sequence[Node], sockets: int) -> Iterator[_Link]:
    for other in nodes:
        if other.gpu != node.gpu and (node.gpu.hive is None or other.gpu.hive != node.gpu.hive):
            yield _Link(_PCIE, other.number, _OTHER_HIVE_WEIGHT)
    for socket in range(sockets):
        if socket != node.processor:
            yield _Link(_PCIE, socket, node.gpu.model.far_processor_weight or _PCIE_WEIGHT)


def _node(number: int, gpu_id: int, facts: Mapping[str, int], memory: int) -> list[Entry]:
    path = f"{TOPOLOGY}/nodes/{number}"
    bank = {"heap_type": 1, "size_in_bytes": memory, "flags": 0, "width": 4096, "mem_clk_max": 1600}
    return [
        *attributes(path, {"gpu_id": str(gpu_id), "name": "ip discovery" if gpu_id else ""}),
        File(f"{path}/properties", _lines(facts)),
        File(f"{path}/mem_banks/0/properties", _lines(bank)),
    ]


def _links(number: int, kind: str, links: Sequence[_Link]) -> list[Entry]:
    directory = f"{TOPOLOGY}/nodes/{number}/{kind}"
    if not links:
        return [Directory(directory)]
    return [File(f"{directory}/{index}/properties", _record(number, link)) for index, link in enumerate(links)]


def _record(number: int, link: _Link) -> bytes:
    return _lines(
        {
            "type": link.kind,
            "version_major": 0,
            "version_minor": 0,
            "node_from": number,
            "node_to": link.to,
            "weight": link.weight,
            "min_latency": 0,
            "max_latency": 0,
            "min_bandwidth": 312 if link.kind != _XGMI else 50000,
            "max_bandwidth": 64000 if link.kind != _XGMI else 50000,
            "recommended_transfer_size": 0,
            "flags": 1,
        }
    )


def _lines(facts: Mapping[str, int]) -> bytes:
    return "".join(f"{name} {value}\n" for name, value in facts.items()).encode()
