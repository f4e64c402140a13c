"""AMD's labels: those of the node labeller of its device plugin."""

import pytest
from labelled import below, labelled, labels_of

from devherd._native import Device, Fact
from devherd.inventory import Entry
from devherd.node_labels.node import LabelFacts
from devherd.node_labels.others import amd_labels

PARTITION = "compute-memory-partition"


def kinds(*prefixes: str, **values: str) -> dict[str, str]:
    return {f"{prefix}/gpu.{kind.replace('_', '-')}": value for prefix in prefixes for kind, value in values.items()}


def test_gpus_of_one_kind_say_it_once_and_count_it_under_the_experimental_prefix(tmp_path):
    """Eight MI210."""
    labels = labelled(tmp_path, "amd-8")

    said = {"device_id": "740f", "product_name": "AMD_Instinct_MI210", "vram": "64G"}
    said |= {"simd_count": "416", "cu_count": "104", "family": "AI"}
    counted = {f"beta.amd.com/gpu.{kind.replace('_', '-')}.{value}": "8" for kind, value in said.items()}
    assert below(labels, "amd.com/", "beta.amd.com/") == {
        **kinds("amd.com", "beta.amd.com", **said),
        **counted,
        "amd.com/gpu.driver-version": "6.8.5",
        "amd.com/gpu.driver-src-version": "8D5A2B3C4E5F60718293A4B",
        "amd.com/gpu.compute-partitioning-supported": "false",
        "amd.com/gpu.memory-partitioning-supported": "false",
    }
    assert set(labels.missing) == {
        "amd.com/gpu.compute-memory-partition",
        "beta.amd.com/gpu.firmware",
    }


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("amd-8-spx", {PARTITION: "spx_nps1", "vram": "192G", "cu-count.304": "8", "device-id.74a1": "8"}),
        ("amd-8-cpx", {PARTITION: "cpx_nps4", "vram": "24G", "cu-count.38": "63", "device-id.74a1": "8"}),
        ("amd-8-mi308", {PARTITION: "cpx_nps1", "vram": "48G", "cu-count.20": "32", "device-id.74a2": "8"}),
    ],
)
def test_partitions_count_as_devices(tmp_path, name, said):
    """But by PCI id, which only a GPU's first partition has. The node says how all are partitioned."""
    labels = labelled(tmp_path, name)

    found = {label.partition("/gpu.")[2]: value for label, value in labels.values.items()}
    assert {kind: found.get(kind) for kind in said} == said


def test_several_kinds_are_counted_under_both_prefixes(tmp_path):
    """There is no one value then, and no one partition."""
    labels = labelled(tmp_path, "amd-mixed")

    assert below(labels, "amd.com/gpu.vram", "beta.amd.com/gpu.vram") == {
        f"{prefix}/gpu.vram.{size}": count
        for prefix in ("amd.com", "beta.amd.com")
        for size, count in (("24G", "16"), ("64G", "1"), ("192G", "1"))
    }
    assert labels.missing["amd.com/gpu.compute-memory-partition"] == "GPUs are partitioned in 2 ways"


def test_what_a_function_for_virtual_machines_does_not_tell_is_left_out(tmp_path):
    """Its driver is vfio-pci: there is neither memory nor a product to read."""
    labels = labelled(tmp_path, "amd-vf-passthrough", vendors={"amd": {"driver_type": "vf_passthrough"}})

    assert "amd.com/gpu.device-id" in labels.values
    assert {"amd.com/gpu.vram", "amd.com/gpu.product-name", "amd.com/gpu.driver-version"} <= set(labels.missing)


def test_the_family_is_counted_once_a_gpu(tmp_path):
    """ROCm/k8s-device-plugin, `GetCardFamilyName`: the card of a further partition has no vendor."""
    labels = labelled(tmp_path, "amd-8-cpx")
    assert below(labels, "amd.com/gpu.family", "beta.amd.com/gpu.family") == {
        "amd.com/gpu.family": "AI",
        "beta.amd.com/gpu.family": "AI",
        "beta.amd.com/gpu.family.AI": "8",
    }


@pytest.mark.parametrize(
    ("version", "family"),
    [
        ("70000", "KV"),
        ("90500", "AI"),
        ("100303", "VGH"),
        ("110003", "GC_11_0_1"),
        ("110503", "GC_11_5_0"),
        ("100306", None),
        ("120001", None),
    ],
)
def test_a_family_has_the_word_of_amds_labeller_and_none_where_that_has_none(version, family):
    """Kaveri, MI350, Van Gogh, Phoenix, Krackan; two families with one number; Navi 48. Sources: `_FAMILIES`."""
    facts = {"gfx_target_version": Fact("text", version, "/sys")}
    gpu = Entry(Device(vendor="amd", card="0000:03:00.0", id="it", facts=facts), "amd.com/gpu")
    assert amd_labels(LabelFacts([gpu])).values.get("amd.com/gpu.family") == family


def test_a_gpu_without_a_name_of_its_own_has_that_of_libdrms_list(tmp_path):
    """By device and revision; without the list the label is left out."""
    assert below(labelled(tmp_path, "amd-1"), "amd.com/gpu.product-name") == {}
    ids = tmp_path / "usr/share/libdrm/amdgpu.ids"
    ids.parent.mkdir(parents=True)
    # freedesktop.org, libdrm, data/amdgpu.ids
    ids.write_text("6860,\t00,\tAMD Radeon Instinct MI25\n6860,\t01,\tAMD Radeon Instinct MI25\n")
    assert labels_of(tmp_path).values["amd.com/gpu.product-name"] == "AMD_Radeon_Instinct_MI25"
