"""AMD's and Intel's labels, devherd's own counts, and all labels of a node."""

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator

from devherd.inventory import Entry
from devherd.node_labels import nvidia
from devherd.node_labels.node import LabelFacts, Labels, fact

_GPU = "amd.com/gpu"
_BETA = "beta.amd.com/gpu"
_MEBIBYTE = 1 << 20
_COUNTED = ("device-id", "product-name", "vram", "simd-count", "cu-count", "family")
_FAMILIES = {
    70000: "KV",
    70001: "CI",
    **dict.fromkeys((80002, 80003), "VI"),
    80001: "CZ",
    **dict.fromkeys((90000, 90004, 90006, 90008, 90010, 90400, 90401, 90402, 90500), "AI"),
    **dict.fromkeys((90002, 90012), "RV"),
    **dict.fromkeys((100100, 100101, 100102, 100103, 100300, 100301, 100302, 100304), "NV"),
    100303: "VGH",
    100305: "YC",
    **dict.fromkeys((110000, 110001, 110002), "GC_11_0_0"),
    110003: "GC_11_0_1",
    **dict.fromkeys((110500, 110501, 110502, 110503), "GC_11_5_0"),
}
"""Family by `gfx_target_version`.

Sources in Linux: `kgd2kfd_probe` of amdkfd/kfd_device.c has the version of a chip, or of the IP version of its GC.
`amdgpu_discovery_set_ip_blocks` of amdgpu/amdgpu_discovery.c has the family of an IP version, and
`amdgpu_device_ip_early_init` of amdgpu/amdgpu_device.c the family of an older chip. The names come from AMD's node
labeller, `FamilyIDtoString` of internal/pkg/amdgpu/amdgpu.go in ROCm/k8s-device-plugin, which has none for GC 12.
100306 stands for two families.
"""
_VERSIONS = {"driver-version": "driver_version", "driver-src-version": "driver_src_version"}
_DISPLAY = ("0300", "0380")
"""PCI classes of GPUs."""
_PRODUCTS = {
    ("0380", "0bda"): "Max_1100",
    ("0380", "0bd5"): "Max_1550",
    ("0380", "56c0"): "Flex_170",
    ("0380", "56c1"): "Flex_140",
}
_MAX_SERIES = frozenset({"0bda", "0bd5", "0bd9", "0bdb", "0bd7", "0bd6", "0bd0"})
_FLEX_SERIES = frozenset({"56c0", "56c1"})
_A_SERIES = frozenset(
    {
        *("56a6", "56a5", "56a1", "56a0", "5694", "5693", "5692", "5691", "5690", "56b3", "56b2", "56a4"),
        *("56a3", "5697", "5696", "5695", "56b1", "56b0", "56a2", "56ba", "56bc", "56bd", "56bb"),
    }
)
_ARRIA_10 = ("1200", "09c4")
PREFIX = "devherd.io"
_SUFFIX = ".count"
_LONGEST_KEY = 63 - len(_SUFFIX)
_HASH_DIGITS = 8


def amd_labels(node: LabelFacts) -> Labels:
    """The labels of AMD GPUs; each partition counts as a GPU. None without a GPU."""
    labels, entries = Labels(), node.of("amd")
    if not entries:
        return labels
    for kind in _COUNTED:
        _put_counted(labels, kind, Counter(filter(None, (_value(kind, entry) for entry in entries))))
    for kind, name in _VERSIONS.items():
        version = next(filter(None, (fact(entry, name) for entry in entries)), "")
        if version:
            labels.put(f"{_GPU}.{kind}", version)
        else:
            labels.leave_out("the driver does not report it", f"{_GPU}.{kind}")
    _put_partitions(labels, entries)
    labels.leave_out("only libdrm reports it, which devherd does not use", f"{_BETA}.firmware")
    return labels


def _put_counted(labels: Labels, kind: str, counts: Counter[str]) -> None:
    """Label a value that all GPUs share, or the count of each of several values."""
    if not counts:
        labels.leave_out("no GPU's files have it", f"{_GPU}.{kind}")
    for value, count in sorted(counts.items()):
        labels.put(f"{_BETA}.{kind}.{value}", count)
        if len(counts) == 1:
            labels.put(f"{_BETA}.{kind}", value)
            labels.put(f"{_GPU}.{kind}", value)
        else:
            labels.put(f"{_GPU}.{kind}.{value}", count)


def _value(kind: str, entry: Entry) -> str:
    """The value as a part of a label's name; empty if unknown."""
    if kind in {"device-id", "family"}:
        # Partitions other than the first are not PCI functions, and have no file `device` or `vendor`.
        if fact(entry, "partition") not in {"", "0"}:
            return ""
        if kind == "family":
            return _FAMILIES.get(int(fact(entry, "gfx_target_version") or 0), "")
        return fact(entry, "device_id").removeprefix("0x")
    if kind == "product-name":
        return fact(entry, "product_name").strip().replace(" ", "_").replace("(", "").replace(")", "")
    if kind == "vram":
        size = fact(entry, "vram_bytes")
        return f"{int(int(size) // _MEBIBYTE / 1024 + 0.5)}G" if size else ""
    return fact(entry, kind.replace("-", "_"))


def _put_partitions(labels: Labels, entries: Iterable[Entry]) -> None:
    kinds = {(fact(entry, "compute_partition"), fact(entry, "memory_partition")) for entry in entries}
    named = {f"{compute}_{memory}" for compute, memory in kinds if compute and memory}
    label = f"{_GPU}.compute-memory-partition"
    if len(named) == 1:
        labels.put(label, named.pop())
    else:
        labels.leave_out(f"GPUs are partitioned in {len(named)} ways" if named else "no GPU can be partitioned", label)
    for which, position in (("compute", 0), ("memory", 1)):
        labels.put(f"{_GPU}.{which}-partitioning-supported", str(any(kind[position] for kind in kinds)).lower())


def intel_labels(node: LabelFacts) -> Labels:
    """The labels of Intel's GPUs and FPGAs; none without one."""
    labels = Labels()
    gpus = [kind for kind in _functions(node.of("intel-gpu")) if kind[0] in _DISPLAY]
    if gpus:
        labels.put("intel.feature.node.kubernetes.io/gpu", "true")
    for (pci_class, device), count in sorted(Counter(gpus).items()):
        labels.put(f"gpu.intel.com/device-id.{pci_class}-{device}.present", "true")
        labels.put(f"gpu.intel.com/device-id.{pci_class}-{device}.count", count)
    _put_products(labels, gpus)
    if _ARRIA_10 in _functions(node.of("intel-fpga")):
        labels.put("intel.feature.node.kubernetes.io/fpga-arria10", "true")
    return labels


def _functions(entries: Iterable[Entry]) -> Iterator[tuple[str, str]]:
    """Class and device id of each PCI function, as `lspci -n` shows them; once for a function with several devices."""
    by_address = {fact(entry, "pci_address"): entry for entry in entries}
    for entry in by_address.values():
        yield fact(entry, "pci_class").removeprefix("0x")[:4], fact(entry, "device_id").removeprefix("0x")


def _put_products(labels: Labels, gpus: list[tuple[str, str]]) -> None:
    """Label the commonest product: the label names have room for one."""
    products = Counter(_PRODUCTS[kind] for kind in gpus if kind in _PRODUCTS)
    families = Counter(filter(None, map(_family_of, gpus)))
    if products:
        name, count = min(products.items(), key=lambda item: (-item[1], item[0]))
        labels.put("gpu.intel.com/product", name)
        labels.put("gpu.intel.com/device.count", count)
        if len(products) > 1:
            why = f"only {name} is labelled, the commonest of {len(products)} products"
            labels.leave_out(why, "gpu.intel.com/product")
    elif gpus:
        why = "Intel's rules name no product for these device ids"
        labels.leave_out(why, "gpu.intel.com/product", "gpu.intel.com/device.count")
    if families:
        labels.put("gpu.intel.com/family", min(families, key=lambda name: (-families[name], name)))
    elif gpus:
        labels.leave_out("Intel's rules name no family for these device ids", "gpu.intel.com/family")


def _family_of(kind: tuple[str, str]) -> str:
    pci_class, device = kind
    if pci_class == "0300":
        return "A_Series" if device in _A_SERIES else ""
    return "Max_Series" if device in _MAX_SERIES else "Flex_Series" if device in _FLEX_SERIES else ""


def count_labels(node: LabelFacts) -> Labels:
    """The number of devices of each resource; a device counts once, also if shared or Unhealthy."""
    labels = Labels()
    for offer in node.offers:
        labels.put(f"{PREFIX}/{label_key_of(offer.name)}{_SUFFIX}", len(offer.devices))
    return labels


def label_key_of(resource_name: str) -> str:
    """A resource's name as a part of a label's name: `rdma/hca` is `rdma_hca`; one that is too long ends in a hash."""
    key = resource_name.replace("/", "_", 1)
    if len(key) <= _LONGEST_KEY:
        return key
    digits = hashlib.sha256(resource_name.encode()).hexdigest()[:_HASH_DIGITS]
    return f"{key[: _LONGEST_KEY - _HASH_DIGITS - 1]}-{digits}"


def labels_of_node(node: LabelFacts, omit: list[str]) -> Labels:
    """All labels of a node, without the names that the globs of `omit` match."""
    labels = Labels()
    for labels_of_vendor in (nvidia.nvidia_labels, amd_labels, intel_labels, count_labels):
        labels.add(labels_of_vendor(node))
    return labels.without(omit)
