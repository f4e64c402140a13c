"""AMD GPUs for virtual machines: by IOMMU group, whole or as virtual functions."""

from pathlib import Path

import pytest
from amd_host import function, host, names, scanned, scanner

from devherd_sim.node.amd import AmdSpec
from devherd_sim.node.tree import write_tree

WHOLE = AmdSpec(cards=2, numa_nodes=2, driver="vfio-pci")
VIRTUAL = AmdSpec(model="mi300x", cards=2, numa_nodes=2, driver="gim", vfs=2)
ADDRESSES = "PCI_RESOURCE_AMD_COM_GPU"
FIRST, SECOND = "0000:01:00.0", "0000:81:00.0"


def move_into_group(root: Path, address: str, group: str) -> None:
    """Put a function into another IOMMU group."""
    link = function(root, address) / "iommu_group"
    target = link.readlink().parent / group
    link.unlink()
    link.symlink_to(target)


def test_a_whole_gpu_is_its_iommu_group(tmp_path: Path):
    """Id, nodes, permissions and environment are those of the vendor's plugin."""
    scan = scanned(host(tmp_path, WHOLE))
    first, second = scan.devices
    assert [(node.host_path, node.container_path, node.permissions) for node in first.nodes] == [
        ("/dev/vfio/0", "/dev/vfio/0", "mrw"),
        ("/dev/vfio/vfio", "/dev/vfio/vfio", "mrw"),
    ]
    assert (first.id, first.card, first.envs) == ("0", FIRST, {ADDRESSES: FIRST})
    assert (second.id, second.card, second.envs) == ("1", SECOND, {ADDRESSES: SECOND})
    assert (first.reasons, first.annotations, first.mounts) == ([], {}, [])
    assert scan.problems == []


def test_the_numa_node_is_that_of_the_function(tmp_path: Path):
    """Number 28: the vendor's plugin tells none."""
    assert [device.numa_nodes for device in scanned(host(tmp_path, WHOLE)).devices] == [[0], [1]]


def test_health_is_each_groups_own(tmp_path: Path):
    """Number 28: to the vendor's plugin all are well while the driver's directory is there."""
    root = host(tmp_path, WHOLE)
    native = scanner(root)
    native.scan()
    (root / "dev/vfio/0").unlink()
    assert native.poll() == [("amd", FIRST, "0", ["node-missing"])]
    assert [device.reasons for device in native.scan().devices] == [["node-missing"], []]


def test_virtual_functions_are_given_and_physical_ones_are_not(tmp_path: Path):
    """Under gim; what hangs as one is the physical function."""
    scan = scanned(host(tmp_path, VIRTUAL))
    assert [(device.id, device.card, device.envs[ADDRESSES]) for device in scan.devices] == [
        ("1", FIRST, "0000:01:00.1"),
        ("2", FIRST, "0000:01:00.2"),
        ("4", SECOND, "0000:81:00.1"),
        ("5", SECOND, "0000:81:00.2"),
    ]


def test_functions_of_one_group_are_one_device(tmp_path: Path):
    """Number 25: all addresses are told, where the vendor's plugin tells the last; number 26: /dev/vfio/vfio once."""
    root = host(tmp_path, WHOLE)
    move_into_group(root, SECOND, "0")
    (device,) = scanned(root).devices
    assert (device.id, device.envs, device.numa_nodes) == ("0", {ADDRESSES: f"{FIRST},{SECOND}"}, [0, 1])
    assert [node.host_path for node in device.nodes] == ["/dev/vfio/0", "/dev/vfio/vfio"]


@pytest.mark.parametrize(
    "uevent", ["PCI_CLASS=40300\n    PCI_ID=1002:AB28", "PCI_CLASS=20000\n    PCI_ID=1002:1458", "PCI_ID=10DE:2330"]
)
def test_only_gpus_of_amd_are_given(uevent: str, tmp_path: Path):
    """Number 27: the vendor's plugin gives its sound and network functions as GPUs; vfio-pci has other makers' too."""
    root = host(tmp_path, WHOLE)
    write_tree(f"{function(root, FIRST).relative_to(root)}/uevent =\n    {uevent}\n", root)
    scan = scanned(root)
    assert [device.card for device in scan.devices] == [SECOND]
    assert scan.problems == []


def test_the_sound_function_in_a_gpus_group_goes_with_it(tmp_path: Path):
    """As the vendor's plugin passes it; what else AMD made and is in a group without a GPU is none of ours."""
    root = host(tmp_path, WHOLE.model_copy(update={"cards": 3}))
    first, sound, third = (function.name for function in sorted((root / "sys/bus/pci/drivers/vfio-pci").glob("0*")))
    uevent = "uevent =\n    PCI_CLASS=40300\n    PCI_ID=1002:AB28\n"
    write_tree(f"{function(root, sound).relative_to(root)}/{uevent}", root)
    assert [device.id for device in scanned(root).devices] == ["0", "2"]
    for gpu, group in ((first, "0"), (third, "2")):
        move_into_group(root, sound, group)
        device = {device.id: device for device in scanned(root).devices}[group]
        assert (device.card, device.envs[ADDRESSES], device.attributes["device_id"]) == (
            gpu,
            ",".join(sorted([gpu, sound])),
            "0x740f",
        )


def test_the_variable_of_a_renamed_resource_is_the_one_that_kubevirt_reads(tmp_path: Path):
    """Only slashes and dots become underscores in `ResourceNameToEnvVar`."""
    native = scanner(host(tmp_path, WHOLE)).native
    device = native.scan().devices[0]
    edits = native.edits(device, None, "device-plugin", "amd.com/mi300x-vf_2")
    assert edits is not None
    assert edits.envs == {"PCI_RESOURCE_AMD_COM_MI300X-VF_2": FIRST}


def test_a_gpu_without_an_iommu_group_is_a_problem_of_its_own(tmp_path: Path):
    """It names what to switch on, and the other GPU is served."""
    root = host(tmp_path, WHOLE)
    (function(root, FIRST) / "iommu_group").unlink()
    scan = scanned(root)
    assert [device.card for device in scan.devices] == [SECOND]
    assert [(problem.device, problem.error[:14]) for problem in scan.problems] == [(FIRST, "no IOMMU group")]


@pytest.mark.parametrize(
    ("groups", "driver_type", "expected"),
    [
        ([WHOLE, AmdSpec()], "auto", {"amd.com/gpu": 1}),
        ([WHOLE, VIRTUAL], "auto", {"amd.com/gpu_vf": 4}),
        ([WHOLE], "auto", {"amd.com/gpu_pf": 2}),
        ([WHOLE, AmdSpec()], "pf_passthrough", {"amd.com/gpu_pf": 2}),
        ([WHOLE, VIRTUAL], "pf_passthrough", {"amd.com/gpu_pf": 6}),
        ([WHOLE, VIRTUAL], "vf_passthrough", {"amd.com/gpu_vf": 4}),
        ([WHOLE, AmdSpec()], "vf_passthrough", {}),
        ([WHOLE], "container", {}),
    ],
)
def test_the_first_driver_that_is_there_decides(
    groups: list[AmdSpec], driver_type: str, expected: dict[str, int], tmp_path: Path
):
    """amdgpu, then gim, then vfio-pci, unless the option says which."""
    root = host(tmp_path, *groups)
    assert names(scanned(root, driver_type=driver_type, naming="mixed")) == expected
