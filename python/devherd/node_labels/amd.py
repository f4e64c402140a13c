"""AMD's labels, as the node labeller of its device plugin has them with every option on.

<https://github.com/ROCm/k8s-device-plugin/tree/master/cmd/k8s-node-labeller>
"""

from collections import Counter
from collections.abc import Iterable

from devherd.inventory import Entry
from devherd.node_labels.labels import Labels
from devherd.node_labels.node import Node, fact

_GPU = "amd.com/gpu"
_BETA = "beta.amd.com/gpu"
_MEBIBYTE = 1 << 20
_COUNTED = ("device-id", "product-name", "vram", "simd-count", "cu-count")
_VERSIONS = {"driver-version": "driver_version", "driver-src-version": "driver_src_version"}


def labels_of(node: Node) -> Labels:
    """The labels of AMD GPUs, a partition counting as one; none without a GPU."""
    labels, entries = Labels(), node.of("amd")
    if not entries:
        return labels
    for kind in _COUNTED:
        _say_counted(labels, kind, Counter(filter(None, (_value(kind, entry) for entry in entries))))
    for kind, name in _VERSIONS.items():
        version = next(filter(None, (fact(entry, name) for entry in entries)), "")
        if version:
            labels.say(f"{_GPU}.{kind}", version)
        else:
            labels.leave_out("the driver does not say it", f"{_GPU}.{kind}")
    _say_partitions(labels, entries)
    labels.leave_out(
        "devherd does not ask libdrm, which alone knows it", f"{_GPU}.family", f"{_BETA}.family", f"{_BETA}.firmware"
    )
    return labels


def _say_counted(labels: Labels, kind: str, counts: Counter[str]) -> None:
    """One value has a label of its own; of several, each has its count."""
    if not counts:
        labels.leave_out("no GPU's files say it", f"{_GPU}.{kind}")
    for value, count in sorted(counts.items()):
        labels.say(f"{_BETA}.{kind}.{value}", count)
        if len(counts) == 1:
            labels.say(f"{_BETA}.{kind}", value)
            labels.say(f"{_GPU}.{kind}", value)
        else:
            labels.say(f"{_GPU}.{kind}.{value}", count)


def _value(kind: str, entry: Entry) -> str:
    """As a part of a name; empty when it is unknown."""
    if kind == "device-id":
        is_function = fact(entry, "partition") in {
            "",
            "0",
        }  # other partitions are no PCI function, and have no such file
        return fact(entry, "device_id").removeprefix("0x") if is_function else ""
    if kind == "product-name":
        return fact(entry, "product_name").strip().replace(" ", "_").replace("(", "").replace(")", "")
    if kind == "vram":
        size = fact(entry, "vram_bytes")
        return f"{int(int(size) // _MEBIBYTE / 1024 + 0.5)}G" if size else ""
    return fact(entry, kind.replace("-", "_"))


def _say_partitions(labels: Labels, entries: Iterable[Entry]) -> None:
    kinds = {(fact(entry, "compute_partition"), fact(entry, "memory_partition")) for entry in entries}
    named = {f"{compute}_{memory}" for compute, memory in kinds if compute and memory}
    label = f"{_GPU}.compute-memory-partition"
    if len(named) == 1:
        labels.say(label, named.pop())
    else:
        labels.leave_out(f"GPUs are partitioned in {len(named)} ways" if named else "no GPU can be partitioned", label)
    for which, position in (("compute", 0), ("memory", 1)):
        labels.say(f"{_GPU}.{which}-partitioning-supported", str(any(kind[position] for kind in kinds)).lower())
