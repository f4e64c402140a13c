"""Intel's labels: those that its NodeFeatureRules make."""

from types import SimpleNamespace

from labelled import below, entry_of, labelled

from devherd.inventory import Entry
from devherd.node_labels import others
from devherd.node_labels.node import LabelFacts


def test_gpus_are_counted_by_class_and_device(tmp_path):
    """Each PCI function once, however many containers share it."""
    labels = labelled(tmp_path, "intel-gpu-2", vendors={"intel_gpu": {"shared_devices": 3}})

    assert below(labels, "gpu.intel.com/", "intel.feature") == {
        "intel.feature.node.kubernetes.io/gpu": "true",
        "gpu.intel.com/device-id.0300-56c0.present": "true",
        "gpu.intel.com/device-id.0300-56c0.count": "1",
        "gpu.intel.com/device-id.0300-e20b.present": "true",
        "gpu.intel.com/device-id.0300-e20b.count": "1",
    }
    assert "gpu.intel.com/product" in labels.missing


def test_products_and_families_are_those_of_intels_rules():
    """A model that no rule names has neither."""
    assert products(("0380", "0bd5"), ("0380", "0bd5")) == ("Max_1550", "Max_Series", "2")
    assert products(("0380", "56c0"), ("0380", "56c1"), ("0380", "56c1")) == ("Flex_140", "Flex_Series", "2")
    assert products(("0300", "5690")) == (None, "A_Series", None)
    assert products(("0300", "e20b")) == (None, None, None)


def test_an_arria_10_is_named_and_other_fpgas_are_not(tmp_path):
    """Intel's rule knows 8086:09c4 of class 1200 alone."""
    assert fpga("0x120000", "0x09c4").values == {"intel.feature.node.kubernetes.io/fpga-arria10": "true"}
    assert fpga("0x120000", "0x0b30").values == {}


def entry(vendor: str, address: int, pci_class: str, device_id: str) -> Entry:
    facts = {"pci_address": f"0000:{address:02x}:00.0", "pci_class": pci_class, "device_id": device_id}
    return entry_of("gpu.intel.com/xe", vendor, {name: SimpleNamespace(text=text) for name, text in facts.items()})


def fpga(pci_class: str, device_id: str):
    return others.intel_labels(LabelFacts(entries=[entry("intel-fpga", 1, pci_class, device_id)]))


def products(*kinds: tuple[str, str]) -> tuple[str | None, ...]:
    """Product, family and count."""
    entries = [entry("intel-gpu", n, f"0x{kind}00", f"0x{device}") for n, (kind, device) in enumerate(kinds)]
    values = others.intel_labels(LabelFacts(entries=entries)).values
    return tuple(values.get(f"gpu.intel.com/{name}") for name in ("product", "family", "device.count"))
