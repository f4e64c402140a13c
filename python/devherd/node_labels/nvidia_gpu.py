"""NVIDIA's physical GPUs, from their devices and NVML's answer."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from devherd.inventory import Entry
from devherd.node_labels.node import fact
from devherd.node_labels.nvml_facts import NvmlGpu

MEBIBYTE = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """A physical GPU, whether it is offered whole or in parts."""

    model: str
    memory_mebibytes: int
    compute_capability: str
    pci_class: str
    in_mig_mode: bool
    migs: tuple[Entry, ...] = ()


def gpus_of(entries: Iterable[Entry], nvml_gpus: Iterable[NvmlGpu]) -> Iterator[Gpu]:
    """Each physical GPU once: whole ones, those with MIG devices, and those in MIG mode without any.

    The latter are no devices, so NVML alone knows them. What else it knows and no scan finds is gone.
    """
    by_address: dict[str, list[Entry]] = {}
    for entry in entries:
        by_address.setdefault(fact(entry, "pci_address") or entry.device.card, []).append(entry)
    asked = {gpu.pci_address: gpu for gpu in nvml_gpus}
    empty = {address for address, gpu in asked.items() if gpu.mig_mode}
    for address in sorted(by_address.keys() | empty):
        parts = by_address.get(address, [])
        migs = tuple(entry for entry in parts if fact(entry, "mig_profile"))
        yield _gpu(parts, migs, asked.get(address, NvmlGpu()))


def _gpu(parts: list[Entry], migs: tuple[Entry, ...], asked: NvmlGpu) -> Gpu:
    whole = parts[0] if parts and not migs else None
    memory = (fact(whole, "memory_bytes") if whole else "") or asked.memory_bytes
    return Gpu(
        model=(fact(parts[0], "model") if parts else "") or asked.model,
        memory_mebibytes=int(memory) // MEBIBYTE,
        compute_capability=(fact(parts[0], "compute_capability") if parts else "") or asked.compute_capability,
        pci_class=fact(parts[0], "pci_class") if parts else "",
        in_mig_mode=bool(migs) or bool(asked.mig_mode),
        migs=migs,
    )
