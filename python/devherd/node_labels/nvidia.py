"""NVIDIA's labels, as GPU feature discovery has them.

<https://github.com/NVIDIA/k8s-device-plugin/tree/main/docs/gpu-feature-discovery>
"""

import re
from collections import Counter
from dataclasses import dataclass

from devherd.inventory import Entry
from devherd.node_labels.labels import Labels
from devherd.node_labels.node import Node, fact
from devherd.node_labels.nvidia_gpu import MEBIBYTE, Gpu, gpus_of
from devherd.node_labels.nvml_facts import NvmlMig

_GPU = "nvidia.com/gpu"
_VERSION = re.compile(r"\d+\.\d+(\.\d+)?")
_MODES = {"0x030000": "graphics", "0x030200": "compute"}
"""By PCI class."""
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
"""By the major number of the compute capability, where that decides."""
_OF_MIG = {"slices.gi": "gpu_slices", "slices.ci": "compute_slices", "multiprocessors": "multiprocessors"}
"""What NVML says of a MIG device, by the label's name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shared:
    """How containers share the devices of a resource."""

    replicas: int = 1
    """0 for GPUs in MIG mode: nobody can share them."""
    strategy: str = "none"
    under_its_own_name: bool = False


def labels_of(node: Node) -> Labels:
    """The labels of NVIDIA GPUs; none without a GPU."""
    labels, entries = Labels(), node.of("nvidia")
    if not entries:
        return labels
    gpus = list(gpus_of(entries, node.nvml.gpus))
    _say_machine(labels, node.machine)
    _say_versions(labels, node, entries)
    _say_mig(labels, node, gpus)
    _say_mode(labels, gpus)
    shares_by_mps = any(one.by_mps for _, one in node.offered(entries))
    labels.say("nvidia.com/mps.capable", str(shares_by_mps).lower())
    _say_gpus(labels, node, gpus)
    if node.mig_strategy == "single":
        _say_single(labels, node, gpus)
    elif node.mig_strategy == "mixed":
        _say_mixed(labels, node, gpus)
    labels.leave_out(
        "devherd does not write the time: the label would change with each look", "nvidia.com/gfd.timestamp"
    )
    _say_clique(labels, node)
    labels.leave_out(
        "devherd does not read the capability in which a vGPU says so",
        "nvidia.com/vgpu.*",
    )
    return labels


def sanitised(text: str) -> str:
    """A name as a part of a label: other characters go, blanks become dashes."""
    return "-".join(re.sub(r"[^A-Za-z0-9-_. ]", "", text).split())


def family_of(major: int, minor: int) -> str:
    """The architecture of a compute capability."""
    if major == 7:
        return "volta" if minor < 5 else "turing"
    if major == 8:
        return "ampere" if minor < 9 else "ada-lovelace"
    return _FAMILIES.get(major, "undefined")


def _say_machine(labels: Labels, machine: str) -> None:
    if machine:
        labels.say(f"{_GPU}.machine", sanitised(machine))
    else:
        labels.leave_out("the host has no sys/class/dmi/id/product_name", f"{_GPU}.machine")


def _say_versions(labels: Labels, node: Node, entries: list[Entry]) -> None:
    driver = next(filter(None, (fact(entry, "driver_version") for entry in entries)), "")
    if _VERSION.fullmatch(driver):
        major, minor, revision = (*driver.split("."), "")[:3]
        for name, value in (("major", major), ("minor", minor), ("revision", revision), ("full", driver)):
            labels.say(f"nvidia.com/cuda.driver-version.{name}", value)
        for name, value in (("major", major), ("minor", minor), ("rev", revision)):
            labels.say(f"nvidia.com/cuda.driver.{name}", value)
    else:
        labels.leave_out("the driver does not say its version", "nvidia.com/cuda.driver-version.full")
    runtime = next(filter(None, (fact(entry, "cuda_version") for entry in entries)), "")
    if runtime:
        major, _, minor = runtime.partition(".")
        labels.say("nvidia.com/cuda.runtime-version.full", runtime)
        for name, value in (("major", major), ("minor", minor)):
            labels.say(f"nvidia.com/cuda.runtime-version.{name}", value)
            labels.say(f"nvidia.com/cuda.runtime.{name}", value)
    else:
        labels.leave_out(node.nvml.why_none, "nvidia.com/cuda.runtime-version.full")


def _say_mig(labels: Labels, node: Node, gpus: list[Gpu]) -> None:
    if node.mig_strategy != "none":
        labels.say("nvidia.com/mig.strategy", node.mig_strategy)
    modes = [gpu.mig_mode for gpu in node.nvml.gpus]
    if modes or any(gpu.migs for gpu in gpus):
        is_capable = any(gpu.in_mig_mode for gpu in gpus) or any(mode is not None for mode in modes)
        labels.say("nvidia.com/mig.capable", str(is_capable).lower())
    else:
        labels.leave_out(node.nvml.why_none, "nvidia.com/mig.capable")


def _say_mode(labels: Labels, gpus: list[Gpu]) -> None:
    classes = {gpu.pci_class for gpu in gpus if gpu.pci_class}
    if classes:
        labels.say(f"{_GPU}.mode", _MODES.get(classes.pop(), "unknown") if len(classes) == 1 else "unknown")
    else:
        labels.leave_out("the PCI class is unknown", f"{_GPU}.mode")


def _say_clique(labels: Labels, node: Node) -> None:
    """That of all GPUs which have joined an NVLink fabric; the others have none."""
    cliques = {gpu.fabric_clique for gpu in node.nvml.gpus if gpu.fabric_clique}
    label = f"{_GPU}.clique"
    if len(cliques) == 1:
        labels.say(label, cliques.pop())
    elif cliques:
        labels.leave_out(f"its GPUs are in {len(cliques)} cliques of the NVLink fabric", label)
    elif node.nvml.gpus:
        labels.leave_out("no GPU has joined an NVLink fabric", label)
    else:
        labels.leave_out(node.nvml.why_none, label)


def _say_gpus(labels: Labels, node: Node, gpus: list[Gpu]) -> None:
    """Of the commonest model: the names have room for one."""
    models = Counter(gpu.model for gpu in gpus if gpu.model)
    if not models:
        labels.leave_out("neither the driver nor NVML says what the GPUs are", f"{_GPU}.product", f"{_GPU}.count")
        return
    model = min(models, key=lambda name: (-models[name], name))
    if len(models) > 1:
        labels.leave_out(f"of {len(models)} models the commonest is named, {model}", f"{_GPU}.product")
    alike = [gpu for gpu in gpus if gpu.model == model]
    whole = [gpu for gpu in alike if not gpu.in_mig_mode]
    entries = [entry for entry in node.of("nvidia") if fact(entry, "model") == model and not fact(entry, "mig_profile")]
    _say_product(labels, _GPU, [model], len(alike), _shared(node, entries) if whole else _Shared(replicas=0))
    one = (whole or alike)[0]
    if one.memory_mebibytes:
        labels.say(f"{_GPU}.memory", one.memory_mebibytes)
    else:
        labels.leave_out(node.nvml.why_none, f"{_GPU}.memory")
    _say_architecture(labels, node, one.compute_capability)


def _say_architecture(labels: Labels, node: Node, capability: str) -> None:
    major, _, minor = capability.partition(".")
    if major.isdecimal() and minor.isdecimal():
        labels.say(f"{_GPU}.family", family_of(int(major), int(minor)))
        labels.say(f"{_GPU}.compute.major", major)
        labels.say(f"{_GPU}.compute.minor", minor)
    else:
        labels.leave_out(node.nvml.why_none, f"{_GPU}.family", f"{_GPU}.compute.major", f"{_GPU}.compute.minor")


def _say_product(labels: Labels, prefix: str, product: list[str], count: int, shared: _Shared) -> None:
    """What is said of each resource."""
    parts = [*filter(None, map(sanitised, product)), *(["SHARED"] if shared.under_its_own_name else [])]
    labels.say(f"{prefix}.product", "-".join(parts))
    labels.say(f"{prefix}.count", count)
    labels.say(f"{prefix}.replicas", shared.replicas)
    labels.say(f"{prefix}.sharing-strategy", shared.strategy)


def _shared(node: Node, entries: list[Entry]) -> _Shared:
    """How containers share these devices: as most of those that are shared."""
    shared = [(offer, one) for offer, one in node.offered(entries) if one.replicas]
    if not shared:
        return _Shared()
    return _Shared(
        replicas=Counter(one.replicas for _, one in shared).most_common(1)[0][0],
        strategy="mps" if any(one.by_mps for _, one in shared) else "time-slicing",
        under_its_own_name=all(offer.name == one.entry.resource_name for offer, one in shared),
    )


def _say_single(labels: Labels, node: Node, gpus: list[Gpu]) -> None:
    """MIG devices take the names of whole GPUs, if all of the node's are alike."""
    enabled = [gpu for gpu in gpus if gpu.in_mig_mode]
    if not enabled:
        return
    profiles = {fact(mig, "mig_profile") for gpu in enabled for mig in gpu.migs}
    if len(enabled) == len(gpus) and len(profiles) == 1 and all(gpu.migs for gpu in enabled):
        _say_migs(labels, node, _GPU, [mig for gpu in enabled for mig in gpu.migs])
        return
    labels.say(f"{_GPU}.product", "-".join([*filter(None, [sanitised(enabled[0].model)]), "MIG", "INVALID"]))
    for name, value in (("count", 0), ("replicas", 0), ("sharing-strategy", ""), ("memory", 0)):
        labels.say(f"{_GPU}.{name}", value)


def _say_mixed(labels: Labels, node: Node, gpus: list[Gpu]) -> None:
    """The MIG devices of each profile have names of their own."""
    by_profile: dict[str, list[Entry]] = {}
    for mig in (mig for gpu in gpus for mig in gpu.migs):
        by_profile.setdefault(fact(mig, "mig_profile"), []).append(mig)
    for profile, migs in by_profile.items():
        _say_migs(labels, node, f"nvidia.com/mig-{profile.replace('+', '.')}", migs)


def _say_migs(labels: Labels, node: Node, prefix: str, migs: list[Entry]) -> None:
    first = migs[0]
    profile = fact(first, "mig_profile").replace("+", ".")
    _say_product(labels, prefix, [fact(first, "model"), "MIG", profile], len(migs), _shared(node, migs))
    asked = {one.uuid: one for gpu in node.nvml.gpus for one in gpu.mig_devices}
    one = asked.get(fact(first, "uuid"), NvmlMig())
    memory = fact(first, "memory_bytes")
    if memory:
        labels.say(f"{prefix}.memory", int(memory) // MEBIBYTE)
    if not one.gpu_slices:
        labels.leave_out(node.nvml.why_none, *(f"{prefix}.{name}" for name in (*_OF_MIG, "engines.*")))
        return
    for name, known in _OF_MIG.items():
        labels.say(f"{prefix}.{name}", getattr(one, known))
    for kind, count in one.engines.items():
        labels.say(f"{prefix}.engines.{kind}", count)
