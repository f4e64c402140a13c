"""NVIDIA's labels, as GPU feature discovery writes them."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from devherd.inventory import Entry
from devherd.node_labels.node import NOT_ANSWERED, LabelFacts, Labels, fact, is_answered

MEBIBYTE = 1 << 20
_GPU = "nvidia.com/gpu"
_VERSION = re.compile(r"\d+\.\d+(\.\d+)?")
_MODES = {"0x030000": "graphics", "0x030200": "compute"}
"""Mode by PCI class."""
_FAMILIES = {
    1: "tesla",
    2: "fermi",
    3: "kepler",
    5: "maxwell",
    6: "pascal",
    9: "hopper",
    10: "blackwell",
    12: "blackwell",
    13: "rubin",
}
"""Architecture by the major number of the compute capability, if that determines it."""
_OF_MIG = {"slices.gi": "gpu_slices", "slices.ci": "compute_slices", "multiprocessors": "multiprocessors"}
"""Facts of a MIG device, by the end of the label's name."""
_ENGINES = "engines_"
"""Prefix of facts: the number of engines of a kind that a MIG device shares with others of its GPU instance."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelledGpu:
    """A physical GPU with its MIG devices, however they are offered."""

    model: str
    memory_mebibytes: int
    compute_capability: str
    pci_class: str
    mig_mode: str
    """`enabled`, `disabled`; empty if the GPU has no such mode, or NVML has not answered."""
    migs: tuple[Entry, ...] = ()

    @property
    def in_mig_mode(self) -> bool:
        """Whether containers can only get parts of it."""
        return bool(self.migs) or self.mig_mode == "enabled"


def gpus_of(entries: Iterable[Entry]) -> Iterator[LabelledGpu]:
    """Each physical GPU once, sorted by PCI address."""
    by_address: dict[str, list[Entry]] = {}
    for entry in entries:
        by_address.setdefault(fact(entry, "pci_address") or entry.device.card, []).append(entry)
    for _, parts in sorted(by_address.items()):
        migs = tuple(entry for entry in parts if fact(entry, "mig_profile"))
        whole = next((entry for entry in parts if entry not in migs), None)
        yield LabelledGpu(
            model=fact(parts[0], "model"),
            memory_mebibytes=int(fact(whole, "memory_bytes") or 0) // MEBIBYTE if whole else 0,
            compute_capability=fact(parts[0], "compute_capability"),
            pci_class=fact(parts[0], "pci_class"),
            mig_mode=fact(whole, "mig_mode") if whole else "",
            migs=migs,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shared:
    """How containers share the devices of a resource."""

    replicas: int = 1
    """0 for GPUs in MIG mode, which cannot be shared."""
    strategy: str = "none"
    under_its_own_name: bool = False


def nvidia_labels(node: LabelFacts) -> Labels:
    """The labels of NVIDIA GPUs; none without a GPU."""
    labels, entries = Labels(), _gpus_of(node)
    if not entries:
        return labels
    gpus = list(gpus_of(entries))
    _put_machine(labels, node.machine)
    _put_versions(labels, entries)
    _put_mig(labels, node, gpus)
    _put_mode(labels, gpus)
    shares_by_mps = any(device.by_mps for _, device in node.offered(entries))
    labels.put("nvidia.com/mps.capable", str(shares_by_mps).lower())
    _put_gpus(labels, node, gpus)
    if node.mig_strategy == "single":
        _put_single(labels, node, gpus)
    elif node.mig_strategy == "mixed":
        _put_mixed(labels, node, gpus)
    labels.leave_out(
        "devherd does not write the time: the label would change with each update", "nvidia.com/gfd.timestamp"
    )
    _put_clique(labels, node)
    _put_vgpu(labels, entries)
    return labels


def _gpus_of(node: LabelFacts) -> list[Entry]:
    """The GPUs for containers; GPU feature discovery does not see those for virtual machines."""
    return [entry for entry in node.of("nvidia") if not fact(entry, "iommu_group")]


def _put_vgpu(labels: Labels, entries: list[Entry]) -> None:
    """Label the facts that virtual GPUs report about their host: NVIDIA/k8s-device-plugin, internal/lm/vgpu.go."""
    of_host = next((entry for entry in entries if fact(entry, "vgpu_host_driver_version")), None)
    if of_host is None:
        why = "no GPU is a vGPU, or the PCI configuration that says so cannot be read whole (CAP_SYS_ADMIN)"
        labels.leave_out(why, "nvidia.com/vgpu.*")
        return
    labels.put("nvidia.com/vgpu.present", "true")
    labels.put("nvidia.com/vgpu.host-driver-version", fact(of_host, "vgpu_host_driver_version"))
    labels.put("nvidia.com/vgpu.host-driver-branch", fact(of_host, "vgpu_host_driver_branch"))


def sanitised(text: str) -> str:
    """A name as a part of a label: illegal characters are dropped, blanks become dashes."""
    return "-".join(re.sub(r"[^A-Za-z0-9-_. ]", "", text).split())


def family_of(major: int, minor: int) -> str:
    """The architecture of a compute capability."""
    if major == 7:
        return "volta" if minor < 5 else "turing"
    if major == 8:
        return "ampere" if minor < 9 else "ada-lovelace"
    return _FAMILIES.get(major, "undefined")


def _put_machine(labels: Labels, machine: str) -> None:
    if machine:
        labels.put(f"{_GPU}.machine", sanitised(machine))
    else:
        labels.leave_out("the host has no sys/class/dmi/id/product_name", f"{_GPU}.machine")


def _put_versions(labels: Labels, entries: list[Entry]) -> None:
    driver = next(filter(None, (fact(entry, "driver_version") for entry in entries)), "")
    if _VERSION.fullmatch(driver):
        major, minor, revision = (*driver.split("."), "")[:3]
        for name, value in (("major", major), ("minor", minor), ("revision", revision), ("full", driver)):
            labels.put(f"nvidia.com/cuda.driver-version.{name}", value)
        for name, value in (("major", major), ("minor", minor), ("rev", revision)):
            labels.put(f"nvidia.com/cuda.driver.{name}", value)
    else:
        labels.leave_out("the driver does not report its version", "nvidia.com/cuda.driver-version.full")
    runtime = next(filter(None, (fact(entry, "cuda_version") for entry in entries)), "")
    if runtime:
        major, _, minor = runtime.partition(".")
        labels.put("nvidia.com/cuda.runtime-version.full", runtime)
        for name, value in (("major", major), ("minor", minor)):
            labels.put(f"nvidia.com/cuda.runtime-version.{name}", value)
            labels.put(f"nvidia.com/cuda.runtime.{name}", value)
    else:
        labels.leave_out(NOT_ANSWERED, "nvidia.com/cuda.runtime-version.full")


def _put_mig(labels: Labels, node: LabelFacts, gpus: list[LabelledGpu]) -> None:
    if node.mig_strategy != "none":
        labels.put("nvidia.com/mig.strategy", node.mig_strategy)
    if is_answered(_gpus_of(node)) or any(gpu.migs for gpu in gpus):
        is_capable = any(gpu.in_mig_mode or gpu.mig_mode for gpu in gpus)
        labels.put("nvidia.com/mig.capable", str(is_capable).lower())
    else:
        labels.leave_out(NOT_ANSWERED, "nvidia.com/mig.capable")


def _put_mode(labels: Labels, gpus: list[LabelledGpu]) -> None:
    classes = {gpu.pci_class for gpu in gpus if gpu.pci_class}
    if classes:
        labels.put(f"{_GPU}.mode", _MODES.get(classes.pop(), "unknown") if len(classes) == 1 else "unknown")
    else:
        labels.leave_out("the PCI class is unknown", f"{_GPU}.mode")


def _put_clique(labels: Labels, node: LabelFacts) -> None:
    """Label the clique of the GPUs that have joined an NVLink fabric, if it is the same for all."""
    entries = _gpus_of(node)
    cliques = {fact(entry, "fabric_clique") for entry in entries} - {""}
    label = f"{_GPU}.clique"
    if len(cliques) == 1:
        labels.put(label, cliques.pop())
    elif cliques:
        labels.leave_out(f"its GPUs are in {len(cliques)} cliques of the NVLink fabric", label)
    elif is_answered(entries):
        labels.leave_out("no GPU has joined an NVLink fabric", label)
    else:
        labels.leave_out(NOT_ANSWERED, label)


def _put_gpus(labels: Labels, node: LabelFacts, gpus: list[LabelledGpu]) -> None:
    """Label the commonest model: the label names have room for one."""
    models = Counter(gpu.model for gpu in gpus if gpu.model)
    if not models:
        labels.leave_out(
            "neither the driver nor NVML reports the model of the GPUs", f"{_GPU}.product", f"{_GPU}.count"
        )
        return
    model = min(models, key=lambda name: (-models[name], name))
    if len(models) > 1:
        labels.leave_out(f"only {model} is labelled, the commonest of {len(models)} models", f"{_GPU}.product")
    alike = [gpu for gpu in gpus if gpu.model == model]
    whole = [gpu for gpu in alike if not gpu.in_mig_mode]
    entries = [entry for entry in _gpus_of(node) if fact(entry, "model") == model and not fact(entry, "mig_profile")]
    _put_product(labels, _GPU, [model], len(alike), _shared(node, entries) if whole else _Shared(replicas=0))
    one = (whole or alike)[0]
    if one.memory_mebibytes:
        labels.put(f"{_GPU}.memory", one.memory_mebibytes)
    else:
        labels.leave_out(NOT_ANSWERED, f"{_GPU}.memory")
    _put_architecture(labels, one.compute_capability)


def _put_architecture(labels: Labels, capability: str) -> None:
    major, _, minor = capability.partition(".")
    if major.isdecimal() and minor.isdecimal():
        labels.put(f"{_GPU}.family", family_of(int(major), int(minor)))
        labels.put(f"{_GPU}.compute.major", major)
        labels.put(f"{_GPU}.compute.minor", minor)
    else:
        labels.leave_out(NOT_ANSWERED, f"{_GPU}.family", f"{_GPU}.compute.major", f"{_GPU}.compute.minor")


def _put_product(labels: Labels, prefix: str, product: list[str], count: int, shared: _Shared) -> None:
    """The labels that each resource has."""
    parts = [*filter(None, map(sanitised, product)), *(["SHARED"] if shared.under_its_own_name else [])]
    labels.put(f"{prefix}.product", "-".join(parts))
    labels.put(f"{prefix}.count", count)
    labels.put(f"{prefix}.replicas", shared.replicas)
    labels.put(f"{prefix}.sharing-strategy", shared.strategy)


def _shared(node: LabelFacts, entries: list[Entry]) -> _Shared:
    """How containers share these devices: the most frequent way among the shared ones."""
    shared = [(offer, device) for offer, device in node.offered(entries) if device.replicas]
    if not shared:
        return _Shared()
    return _Shared(
        replicas=Counter(device.replicas for _, device in shared).most_common(1)[0][0],
        strategy="mps" if any(device.by_mps for _, device in shared) else "time-slicing",
        under_its_own_name=all(offer.name == device.default_resource_name for offer, device in shared),
    )


def _put_single(labels: Labels, node: LabelFacts, gpus: list[LabelledGpu]) -> None:
    """Label MIG devices as GPUs, if all GPUs of the node are partitioned alike."""
    enabled = [gpu for gpu in gpus if gpu.in_mig_mode]
    if not enabled:
        return
    profiles = {fact(mig, "mig_profile") for gpu in enabled for mig in gpu.migs}
    if len(enabled) == len(gpus) and len(profiles) == 1 and all(gpu.migs for gpu in enabled):
        _put_migs(labels, node, _GPU, [mig for gpu in enabled for mig in gpu.migs])
        return
    labels.put(f"{_GPU}.product", "-".join([*filter(None, [sanitised(enabled[0].model)]), "MIG", "INVALID"]))
    for name, value in (("count", 0), ("replicas", 0), ("sharing-strategy", ""), ("memory", 0)):
        labels.put(f"{_GPU}.{name}", value)


def _put_mixed(labels: Labels, node: LabelFacts, gpus: list[LabelledGpu]) -> None:
    """Label the MIG devices of each profile under names of their own."""
    by_profile: dict[str, list[Entry]] = {}
    for mig in (mig for gpu in gpus for mig in gpu.migs):
        by_profile.setdefault(fact(mig, "mig_profile"), []).append(mig)
    for profile, migs in by_profile.items():
        _put_migs(labels, node, f"nvidia.com/mig-{profile.replace('+', '.')}", migs)


def _put_migs(labels: Labels, node: LabelFacts, prefix: str, migs: list[Entry]) -> None:
    first = migs[0]
    profile = fact(first, "mig_profile").replace("+", ".")
    _put_product(labels, prefix, [fact(first, "model"), "MIG", profile], len(migs), _shared(node, migs))
    memory = fact(first, "memory_bytes")
    if memory:
        labels.put(f"{prefix}.memory", int(memory) // MEBIBYTE)
    if not fact(first, "gpu_slices"):
        labels.leave_out(NOT_ANSWERED, *(f"{prefix}.{name}" for name in (*_OF_MIG, "engines.*")))
        return
    for name, known in _OF_MIG.items():
        labels.put(f"{prefix}.{name}", fact(first, known))
    for name, count in first.device.facts.items():
        if name.startswith(_ENGINES):
            labels.put(f"{prefix}.engines.{name.removeprefix(_ENGINES)}", count.text)
