"""NVIDIA GPUs for virtual machines, as NVIDIA's kubevirt-gpu-device-plugin gives them: by function, named by pci.ids.

Names, ids, nodes and variables: NVIDIA/kubevirt-gpu-device-plugin, pkg/device_plugin/{,generic_}device_plugin.go.
"""

from pathlib import Path

import pytest
from nvidia_host import UUIDS, card, complaints, observer, planted, scanned, scanner

from devherd.config.loader import resolve
from devherd.config.model import Config
from devherd.proto import spool_pb2
from devherd.scanner.once import scan_once
from devherd_sim.node.entry import DeviceNode, Entry, File, attributes, link, named_link

GPU, SOUND, OTHER = "0000:41:00.0", "0000:41:00.1", "0000:c1:00.0"
H100 = "nvidia.com/GH100_H100_SXM5_80GB"
# https://pci-ids.ucw.cz/v2.2/pci.ids
PCI_IDS = (
    "8086  Intel Corporation\n\t2330  not this one\n10de  NVIDIA Corporation\n\t2330  GH100 [H100 SXM5 80GB]\n"
    "\t\t10de 16c1  H100 Tensor Core\n\t228b  GA104 High Definition Audio Controller\n"
)


def given(address: str, group: int, *, device: str = "2330", pci_class: str = "030200", node: int = 0) -> list[Entry]:
    """A function of NVIDIA's under vfio-pci."""
    function = f"sys/devices/pci{address[:7]}/{address[:8]}00.0/{address}"
    facts = {
        "uevent": f"DRIVER=vfio-pci\nPCI_CLASS={pci_class.lstrip('0')}\nPCI_ID=10DE:{device.upper()}",
        "vendor": "0x10de",
        "device": f"0x{device}",
        "class": f"0x{pci_class}",
        "numa_node": str(node),
    }
    return [
        *attributes(function, facts),
        link(f"{function}/driver", "sys/bus/pci/drivers/vfio-pci"),
        link(f"{function}/iommu_group", f"sys/kernel/iommu_groups/{group}"),
        named_link("sys/bus/pci/devices", function),
        DeviceNode(f"dev/vfio/{group}", "char", 511, group),
        DeviceNode("dev/vfio/vfio", "char", 10, 196),
    ]


def names_of_products(path: str = "usr/share/misc/pci.ids") -> list[Entry]:
    """The list as a distribution has it."""
    return [File(path, PCI_IDS.encode())]


def noted(root: Path, **options: object) -> list[spool_pb2.Problem]:
    """What `devherd scan` notes."""
    return scan_once(resolve(Config.model_validate({"host_root": root, "vendors": {"nvidia": options}}))).notices


def test_a_gpu_for_virtual_machines_is_given_as_nvidias_plugin_gives_it(tmp_path: Path):
    """Each function is a device of its product; the sound function of the same group is one of its own."""
    sound = given(SOUND, 7, device="228b", pci_class="040300")
    root = planted(tmp_path, given(GPU, 7), sound, given(OTHER, 9, node=1), names_of_products())

    scan = scanned(root, passthrough=True)

    assert complaints(scan) == []
    assert [(one.id, one.resource_name, one.numa_nodes) for one in scan.devices] == [
        (GPU, H100, [0]),
        (SOUND, "nvidia.com/GA104_HIGH_DEFINITION_AUDIO_CONTROLLER", [0]),
        (OTHER, H100, [1]),
    ]
    first = scan.devices[0]
    assert [(node.host_path, node.container_path, node.permissions) for node in first.nodes] == [
        (path, path, "mrw") for path in ("/dev/vfio/vfio", "/dev/vfio/7")
    ]
    assert first.envs == {"PCI_RESOURCE_NVIDIA_COM_GH100_H100_SXM5_80GB": GPU}
    assert (first.reasons, first.annotations, first.mounts, first.cdi_devices) == ([], {}, [], [])
    assert (first.attributes["iommu_group"], first.attributes["pci_driver"]) == ("7", "vfio-pci")


def test_a_kernel_with_iommufd_gives_the_devices_of_the_group_too(tmp_path: Path):
    """All functions of the group, then /dev/iommu."""
    root = planted(tmp_path, given(GPU, 7), given(SOUND, 7, device="228b", pci_class="040300"), names_of_products())
    for number, address in enumerate((GPU, SOUND)):
        (root / "sys/bus/pci/devices" / address / f"vfio-dev/vfio{number}").mkdir(parents=True)
    planted(root, [DeviceNode("dev/iommu", "char", 10, 126)])

    first, _ = scanned(root, passthrough=True).devices

    assert [node.host_path for node in first.nodes] == [
        *("/dev/vfio/devices/vfio0", "/dev/vfio/devices/vfio1", "/dev/vfio/vfio", "/dev/vfio/7", "/dev/iommu")
    ]


@pytest.mark.parametrize(
    ("path", "name"),
    [("usr/share/hwdata/pci.ids", H100), ("usr/pci.ids", H100), ("elsewhere/pci.ids", "nvidia.com/2330")],
)
def test_a_product_that_no_list_names_is_called_by_its_id(path: str, name: str, tmp_path: Path):
    """As in the plugin; lists are where distributions have them."""
    [device] = scanned(planted(tmp_path, given(GPU, 7), names_of_products(path)), passthrough=True).devices
    assert device.resource_name == name


def test_gpus_for_containers_and_for_virtual_machines_are_served_side_by_side(tmp_path: Path):
    """Each by its driver. The option is off by default, and what it would offer is noted."""
    root = planted(tmp_path, card("0000:01:00.0", 0, uuid=UUIDS[0]), given(GPU, 7), names_of_products())

    assert [one.resource_name for one in scanned(root, passthrough=True).devices] == [H100, "nvidia.com/gpu"]
    assert [one.resource_name for one in scanned(root).devices] == ["nvidia.com/gpu"]
    [note] = noted(root)
    assert note.device == GPU
    assert note.error.endswith("or offer it to virtual machines: `vendors.nvidia.passthrough`")
    assert noted(root, passthrough=True) == []


def test_a_function_without_a_group_is_a_problem_with_its_cure(tmp_path: Path):
    """The other is served."""
    root = planted(tmp_path, given(GPU, 7), given(OTHER, 9), names_of_products())
    (root / "sys/bus/pci/devices" / GPU / "iommu_group").unlink()

    scan = scanned(root, passthrough=True)

    assert [one.id for one in scan.devices] == [OTHER]
    [complaint] = complaints(scan)
    assert f"{GPU}/iommu_group: no IOMMU group: enable the IOMMU in the firmware" in complaint


def test_health_of_a_gpu_for_virtual_machines_is_its_own(tmp_path: Path):
    """Its node; the bus; a driver that it loses, with which it is none for virtual machines any more."""
    root = planted(tmp_path, given(GPU, 7), given(OTHER, 9), names_of_products())
    native = scanner(root, passthrough=True)
    native.scan()
    (root / "dev/vfio/7").unlink()
    assert native.poll() == [("nvidia", GPU, GPU, ["node-missing"])]

    watched = observer(root, passthrough=True)
    watched.scan(0.0)
    (root / "sys/bus/pci/devices" / OTHER / "driver").unlink()
    watched.scan(1.0)
    reasons = {key[2]: watched.policy.verdict(key).reasons for key in watched.inventory.entries}
    assert reasons[OTHER] != ()


def test_rules_give_gpus_and_nvswitches_the_names_of_nvidias_sandbox_plugin(tmp_path: Path):
    """NVIDIA/sandbox-device-plugin, v0.0.5 (commit edb816e5aeae), cmd/main.go: `pgpu` and `nvswitch` by default."""
    switch = given(OTHER, 9, device="22a3", pci_class="068000")
    root = planted(tmp_path, given(GPU, 7), switch, names_of_products())
    rules = [
        {"match": {"vendor": "nvidia", "device_id": device}, "name": name}
        for device, name in (("0x2330", "nvidia.com/pgpu"), ("0x22a3", "nvidia.com/nvswitch"))
    ]
    options = {"host_root": root, "vendors": {"nvidia": {"passthrough": True}}, "resources": rules}

    made = scan_once(resolve(Config.model_validate(options))).offers

    assert {one.name: [device.id for device in one.devices] for one in made} == {
        "nvidia.com/pgpu": [GPU],
        "nvidia.com/nvswitch": [OTHER],
    }
