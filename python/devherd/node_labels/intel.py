"""Intel's labels, as the NodeFeatureRules of its device plugins have them.

<https://github.com/intel/intel-device-plugins-for-kubernetes/tree/main/deployments/nfd/overlays/node-feature-rules>
"""

from collections import Counter
from collections.abc import Iterable, Iterator

from devherd.inventory import Entry
from devherd.node_labels.labels import Labels
from devherd.node_labels.node import Node, fact

_DISPLAY = ("0300", "0380")
"""Classes of PCI functions that are GPUs."""
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


def labels_of(node: Node) -> Labels:
    """The labels of Intel's GPUs and FPGAs; none without one."""
    labels = Labels()
    gpus = [kind for kind in _functions(node.of("intel-gpu")) if kind[0] in _DISPLAY]
    if gpus:
        labels.say("intel.feature.node.kubernetes.io/gpu", "true")
    for (pci_class, device), count in sorted(Counter(gpus).items()):
        labels.say(f"gpu.intel.com/device-id.{pci_class}-{device}.present", "true")
        labels.say(f"gpu.intel.com/device-id.{pci_class}-{device}.count", count)
    _say_products(labels, gpus)
    if _ARRIA_10 in _functions(node.of("intel-fpga")):
        labels.say("intel.feature.node.kubernetes.io/fpga-arria10", "true")
    return labels


def _functions(entries: Iterable[Entry]) -> Iterator[tuple[str, str]]:
    """Class and device of each PCI function once, as `lspci -n` has them, however many devices it is offered as."""
    by_address = {fact(entry, "pci_address"): entry for entry in entries}
    for entry in by_address.values():
        yield fact(entry, "pci_class").removeprefix("0x")[:4], fact(entry, "device_id").removeprefix("0x")


def _say_products(labels: Labels, gpus: list[tuple[str, str]]) -> None:
    """The names have room for one product: of several the commonest is said."""
    products = Counter(_PRODUCTS[kind] for kind in gpus if kind in _PRODUCTS)
    families = Counter(filter(None, map(_family_of, gpus)))
    if products:
        name, count = min(products.items(), key=lambda item: (-item[1], item[0]))
        labels.say("gpu.intel.com/product", name)
        labels.say("gpu.intel.com/device.count", count)
        if len(products) > 1:
            why = f"of {len(products)} products the commonest is named, {name}"
            labels.leave_out(why, "gpu.intel.com/product")
    elif gpus:
        why = "Intel's rules name no product for these device ids"
        labels.leave_out(why, "gpu.intel.com/product", "gpu.intel.com/device.count")
    if families:
        labels.say("gpu.intel.com/family", min(families, key=lambda name: (-families[name], name)))
    elif gpus:
        labels.leave_out("Intel's rules name no family for these device ids", "gpu.intel.com/family")


def _family_of(kind: tuple[str, str]) -> str:
    pci_class, device = kind
    if pci_class == "0300":
        return "A_Series" if device in _A_SERIES else ""
    return "Max_Series" if device in _MAX_SERIES else "Flex_Series" if device in _FLEX_SERIES else ""
