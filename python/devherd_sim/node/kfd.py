"""KFD's topology of processors and AMD GPUs, and its changes: amdkfd/kfd_topology.c of the kernel."""

import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from devherd_sim.node.amd import AmdGpu, DrmDevice, partitions
from devherd_sim.node.entry import Directory, Entry, File, attributes
from devherd_sim.node.machine import class_node
from devherd_sim.node.tree import put, rewrite

_KFD = "sys/devices/virtual/kfd/kfd"
TOPOLOGY = f"{_KFD}/topology"
NODES = f"{TOPOLOGY}/nodes"
_HYPER_TRANSPORT, _PCIE, _XGMI = 1, 2, 11
_PROCESSOR_WEIGHT, _PCIE_WEIGHT, _WITHIN_WEIGHT, _OTHER_HIVE_WEIGHT = 32, 20, 13, 72
_HIVE_ID = 0xC06C_0F31_7A8D_1200  # above 2**63, like many real ones
_SOME_ID = 0xF0A1_0000_0000_0000


@dataclass(frozen=True, slots=True)
class KfdNode:
    """A GPU or partition. `number`: its node's number in the topology; `partition`: its index within the GPU."""

    number: int
    gpu: AmdGpu
    part: DrmDevice
    partition: int

    @property
    def processor(self) -> int:
        """The number of the nearest processor node."""
        return max(self.gpu.numa_node, 0)


@dataclass(frozen=True, slots=True)
class _Link:
    kind: int
    to: int
    weight: int


def entries(gpus: Sequence[AmdGpu], numa_nodes: int) -> list[Entry]:
    """The entries of KFD's device and its topology."""
    sockets = max(numa_nodes, 1)
    nodes = numbered(computing(gpus), sockets)
    return [
        *class_node(_KFD, "kfd", "kfd", (235, 0)),
        *attributes(TOPOLOGY, {"generation_id": str(len(nodes) + 1 + sum(gpu.spec.first_xcp for gpu in gpus))}),
        File.line(f"{TOPOLOGY}/system_properties", "platform_oem 0\nplatform_id 0\nplatform_rev 0"),
        *(entry for socket in range(sockets) for entry in processor_entries(socket, sockets, nodes)),
        *(entry for node in nodes for entry in node_entries(node, nodes, sockets)),
    ]


def computing(gpus: Iterable[AmdGpu]) -> Iterator[tuple[AmdGpu, int]]:
    """Yields each GPU with the index of each of its partitions in use."""
    for gpu in gpus:
        yield from ((gpu, partition) for partition, part in enumerate(gpu.parts) if not part.is_spare)


def numbered(parts: Iterable[tuple[AmdGpu, int]], sockets: int) -> list[KfdNode]:
    """The nodes of these partitions, numbered after the processors' nodes."""
    return [
        KfdNode(sockets + index, gpu, gpu.parts[partition], partition) for index, (gpu, partition) in enumerate(parts)
    ]


def processor_entries(socket: int, sockets: int, nodes: Sequence[KfdNode]) -> list[Entry]:
    """The entries of a processor node: no SIMDs, no render node."""
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


def node_entries(node: KfdNode, nodes: Sequence[KfdNode], sockets: int, *, is_filled_in: bool = True) -> list[Entry]:
    """The entries of a GPU or partition. Unless `is_filled_in`, it has no render node and no location yet."""
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


def _xgmi(node: KfdNode, nodes: Sequence[KfdNode]) -> Iterator[_Link]:
    for other in nodes:
        if other.gpu == node.gpu and other != node:
            yield _Link(_XGMI, other.number, _WITHIN_WEIGHT)
        elif other.gpu != node.gpu and node.gpu.hive is not None and other.gpu.hive == node.gpu.hive:
            yield _Link(_XGMI, other.number, node.gpu.model.xgmi_weight)


def _p2p(node: KfdNode, nodes: Sequence[KfdNode], sockets: int) -> Iterator[_Link]:
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


class KfdRebuild:
    """Changes the topology from one set of GPUs to another; each step is a state that a reader could see."""

    def __init__(self, root: Path, before: Sequence[AmdGpu], after: Sequence[AmdGpu], sockets: int) -> None:
        self._root = root
        self._generation = root / TOPOLOGY / "generation_id"
        self._sockets = sockets
        self._gpus = before
        self._after = after
        self._computing = list(computing(before))

    def leave(self) -> Iterator[None]:
        """Remove the partitions of GPUs that are not in the new set, one after another."""
        for gpu, partition in list(self._computing):
            if gpu not in self._after:
                self._computing.remove((gpu, partition))
                self._raise_generation()
                yield from self._rebuild(len(self._computing))

    def come(self) -> Iterator[None]:
        """Add the partitions of new GPUs, one after another, each after all existing ones."""
        for gpu, partition in computing(self._after):
            if gpu not in self._gpus:
                self._computing.append((gpu, partition))
                yield from self._rebuild(len(self._computing) - 1)
                self._raise_generation()
                yield
                self._write(node_entries(self._nodes()[-1], self._nodes(), self._sockets))
                yield

    def _rebuild(self, filled_in: int) -> Iterator[None]:
        for directory in (self._root / NODES).iterdir():
            shutil.rmtree(directory)
        yield
        nodes = self._nodes()
        for socket in range(self._sockets):
            self._write(processor_entries(socket, self._sockets, nodes))
            yield
        for index, node in enumerate(nodes):
            self._write(node_entries(node, nodes, self._sockets, is_filled_in=index < filled_in))
            yield

    def _nodes(self) -> list[KfdNode]:
        return numbered(self._computing, self._sockets)

    def _raise_generation(self) -> None:
        rewrite(self._generation, f"{int(self._generation.read_text()) + 1}\n".encode())

    def _write(self, entries: list[Entry]) -> None:
        for entry in entries:
            put(entry, self._root)
