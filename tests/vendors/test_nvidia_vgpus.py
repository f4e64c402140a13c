"""NVIDIA's vGPUs (mediated devices) for virtual machines, as NVIDIA's kubevirt-gpu-device-plugin gives them.

NVIDIA/kubevirt-gpu-device-plugin, v1.6.0 (commit d26f2374d3c3), pkg/device_plugin: `device_plugin.go` for ids, names
and NUMA nodes, `generic_vgpu_device_plugin.go` for nodes and variables. The nodes of one vGPU are those of KubeVirt's
own plugin, pkg/virt-handler/device-manager/mediated_device.go (commit 08306a550142).
"""

from pathlib import Path

import pytest
from nvidia_host import UUIDS, card, complaints, node_paths, observer, planted, scanned, scanner, vgpu

from devherd.health.findings import targets
from devherd.health.policy import FINE
from devherd.proto import health_pb2
from devherd_sim.node.entry import DeviceNode, Entry, File, attributes, link, named_link
from devherd_sim.node.nvidia import NvidiaSpec
from devherd_sim.node.simulated_node import SimulatedNode
from devherd_sim.node.spec import NodeSpec

GPU, VIRTUAL = "0000:41:00.0", "0000:41:02.4"
ONE = "aa618089-8b16-4d01-a136-25a0f3c73123"
TWO = "bb618089-8b16-4d01-a136-25a0f3c73123"
A40, T4 = "nvidia.com/NVIDIA_A40-48Q", "nvidia.com/GRID_T4-1Q"


def function_of(address: str) -> str:
    """Where `card` has a function."""
    return f"sys/devices/pci0000:00/0000:00:01.0/{address}"


def gpu(*, node: int = 1) -> list[Entry]:
    """A GPU under NVIDIA's driver."""
    return [*card(GPU, 0, uuid=UUIDS[0]), File.line(f"{function_of(GPU)}/numa_node", str(node))]


def virtual_function() -> list[Entry]:
    """One of the GPU, in another slot, as they all are after the first few."""
    function = function_of(VIRTUAL)
    facts = {"uevent": "DRIVER=nvidia\nPCI_CLASS=30200\nPCI_ID=10DE:27B8", "vendor": "0x10de", "class": "0x030200"}
    return [
        *attributes(function, facts),
        link(f"{function}/driver", "sys/bus/pci/drivers/nvidia"),
        link(f"{function}/physfn", function_of(GPU)),
        named_link("sys/bus/pci/devices", function),
    ]


def test_a_vgpu_is_given_as_nvidias_plugin_gives_it(tmp_path: Path):
    """By its UUID, as its type, whose letters keep their case; near its GPU; the variable in capitals."""
    one = vgpu(ONE, function_of(GPU))
    root = planted(tmp_path, gpu(), one, vgpu(TWO, function_of(GPU), "GRID \t T4-1Q", 22))

    scan = scanned(root, passthrough=True)

    assert complaints(scan) == []
    assert [(one.id, one.resource_name, one.numa_nodes) for one in scan.devices] == [(ONE, A40, [1]), (TWO, T4, [1])]
    assert [one.envs for one in scan.devices] == [
        {"MDEV_PCI_RESOURCE_NVIDIA_COM_NVIDIA_A40-48Q": ONE},
        {"MDEV_PCI_RESOURCE_NVIDIA_COM_GRID_T4-1Q": TWO},
    ]
    first = scan.devices[0]
    assert {node.permissions for node in first.nodes} == {"mrw"}
    assert (first.reasons, first.annotations, first.mounts, first.cdi_devices) == ([], {}, [], [])
    facts = {"mdev_uuid": ONE, "vgpu_type": "NVIDIA A40-48Q", "pci_address": GPU, "iommu_group": "21"}
    assert facts.items() <= first.attributes.items()


def test_a_vgpu_gets_its_own_nodes_where_nvidias_plugin_gives_those_of_all(tmp_path: Path):
    """The plugin gives /dev/vfio as a whole, with the groups of other virtual machines."""
    root = planted(tmp_path, gpu(), vgpu(ONE, function_of(GPU)), vgpu(TWO, function_of(GPU), group=22))
    (root / function_of(GPU) / ONE / "vfio-dev/vfio3").mkdir(parents=True)

    by_group = [node_paths(one) for one in scanned(root, passthrough=True).devices]
    planted(root, [DeviceNode("dev/iommu", "char", 10, 126)])
    by_file = node_paths(scanned(root, passthrough=True).devices[0])

    assert by_group == [["/dev/vfio/vfio", "/dev/vfio/21"], ["/dev/vfio/vfio", "/dev/vfio/22"]]
    assert by_file == ["/dev/vfio/devices/vfio3", "/dev/vfio/vfio", "/dev/vfio/21", "/dev/iommu"]


def test_the_variable_of_a_renamed_vgpu_is_the_one_that_kubevirt_reads(tmp_path: Path):
    """`ResourceNameToEnvVar` of KubeVirt."""
    native = scanner(planted(tmp_path, gpu(), vgpu(ONE, function_of(GPU))), passthrough=True).native
    [device] = [device for device in native.scan().devices if device.id == ONE]
    edits = native.edits(device, None, "device-plugin", "example.com/vgpu-large")
    assert edits is not None
    assert edits.envs == {"MDEV_PCI_RESOURCE_EXAMPLE_COM_VGPU-LARGE": ONE}


def test_an_xid_of_the_gpu_is_one_of_its_vgpus_also_on_virtual_functions(tmp_path: Path):
    """NVIDIA's plugin knows vGPUs by the function that they are on, and an Xid names the GPU."""
    on_virtual = vgpu(TWO, function_of(VIRTUAL), group=22)
    root = planted(tmp_path, gpu(), virtual_function(), vgpu(ONE, function_of(GPU)), on_virtual)
    watched = observer(root, passthrough=True)
    watched.scan(0.0)

    hit = targets(health_pb2.Target(pci_address=GPU.rpartition(".")[0]), watched.inventory.entries.values())

    assert {key[2] for key in hit} >= {ONE, TWO}
    [device] = [device for device in scanned(root, passthrough=True).devices if device.id == TWO]
    assert (device.attributes["pci_address"], device.numa_nodes) == (GPU, [1])
    assert [function.path for function in device.functions] == [f"/{function_of(GPU)}", f"/{function_of(VIRTUAL)}"]


def test_a_gpu_that_has_vgpus_is_not_offered_to_containers(tmp_path: Path):
    """Other GPUs are. The option is off by default, and then no vGPU is offered."""
    other = card("0000:c1:00.0", 1, uuid=UUIDS[1])
    root = planted(tmp_path, gpu(), other, vgpu(ONE, function_of(GPU)), vgpu(TWO, function_of(GPU), group=22))

    scan = scanned(root, passthrough=True)

    assert sorted(one.id for one in scan.devices) == sorted([UUIDS[1], ONE, TWO])
    assert scan.left_out == {UUIDS[0]: "its vGPUs are offered to virtual machines instead"}
    [left] = [device for device in scan.scan.devices if device.id == UUIDS[0]]
    assert left.attributes["vgpus"] == "2"
    assert sorted(one.id for one in scanned(root).devices) == UUIDS[:2]


@pytest.mark.parametrize(
    ("missing", "cause"),
    [
        ("iommu_group", "no IOMMU group: no VFIO driver has taken this vGPU; see the kernel log"),
        ("mdev_type", "No such file or directory"),
    ],
)
def test_a_vgpu_that_cannot_be_given_is_a_problem_and_others_are_served(missing: str, cause: str, tmp_path: Path):
    """Named by its UUID."""
    root = planted(tmp_path, gpu(), vgpu(ONE, function_of(GPU)), vgpu(TWO, function_of(GPU), group=22))
    (root / function_of(GPU) / ONE / missing).unlink()

    scan = scanned(root, passthrough=True)

    assert [one.id for one in scan.devices] == [TWO]
    assert [problem.device for problem in scan.problems] == [ONE]
    assert f"{ONE}/{missing}" in complaints(scan)[0]
    assert cause in complaints(scan)[0]


def test_only_mediated_devices_of_nvidias_gpus_are_given(tmp_path: Path):
    """NVIDIA's plugin gives Intel's too, as nvidia.com/…; and the kernel's samples, which are on no PCI function."""
    intel, sample = "sys/devices/pci0000:00/0000:00:02.0", "sys/devices/virtual/mtty/mtty"
    made = attributes(intel, {"uevent": "DRIVER=i915\nPCI_CLASS=30000\nPCI_ID=8086:5912", "vendor": "0x8086"})
    root = planted(tmp_path, made, vgpu(ONE, intel, "i915-GVTg_V5_4"), vgpu(TWO, sample, "Single port serial", 22))

    scan = scanned(root, passthrough=True)

    assert ([one.id for one in scan.devices], complaints(scan)) == ([], [])


def test_a_mediated_bus_that_cannot_be_read_is_a_problem(tmp_path: Path):
    """A host without one has no vGPUs, and no problem."""
    root = planted(tmp_path, gpu())
    assert complaints(scanned(root, passthrough=True)) == []

    (root / "sys/bus/mdev").mkdir()
    (root / "sys/bus/mdev/devices").symlink_to("devices")

    [complaint] = complaints(scanned(root, passthrough=True))
    assert complaint.startswith("/sys/bus/mdev/devices: ")


def test_a_vgpu_is_unhealthy_without_its_node_and_when_it_is_removed(tmp_path: Path):
    """Its GPU's driver holds the node of its group; `remove` of the mediated device takes both away."""
    root = planted(tmp_path, gpu(), vgpu(ONE, function_of(GPU)), vgpu(TWO, function_of(GPU), group=22))
    native = scanner(root, passthrough=True)
    native.scan()
    (root / "dev/vfio/21").unlink()
    assert native.poll() == [("nvidia", ONE, ONE, ["node-missing"])]

    watched = observer(root, passthrough=True)
    watched.scan(0.0)
    (root / "sys/bus/mdev/devices" / TWO).unlink()
    watched.scan(1.0)
    reasons = {key[2]: watched.policy.verdict(key).reasons for key in watched.inventory.entries}
    assert reasons[TWO] != ()


def test_a_vgpu_that_is_gone_is_not_kept_with_what_cannot_be_looked_at(tmp_path: Path):
    """The driver's list cannot be read, and so its GPUs are kept; the bus still says which vGPUs there are."""
    root = planted(tmp_path, gpu(), card("0000:c1:00.0", 1, uuid=UUIDS[1]))
    planted(root, vgpu(ONE, function_of(GPU)), vgpu(TWO, function_of(GPU), group=22))
    watched = observer(root, passthrough=True)
    watched.scan(0.0)
    (root / "proc/driver/nvidia/gpus").rename(root / "away")
    (root / "proc/driver/nvidia/gpus").symlink_to("gpus")
    (root / "sys/bus/mdev/devices" / TWO).unlink()

    watched.scan(1.0)

    healthy = {key[2] for key in watched.inventory.entries if watched.policy.verdict(key) == FINE}
    assert healthy == {UUIDS[0], UUIDS[1], ONE}


def test_vgpus_that_are_not_offered_are_named(tmp_path: Path):
    """Without the option: a line for each GPU that has some. Those of other makers are nobody's of NVIDIA's."""
    other = "0000:42:00.0"
    strange = attributes(function_of(other), {"vendor": "0x8086", "class": "0x030000"})
    others = [*strange, named_link("sys/bus/pci/devices", function_of(other)), *vgpu(TWO, function_of(other))]
    root = planted(tmp_path, gpu(), vgpu(ONE, function_of(GPU)), others)

    told = [(one.vendor, one.path, one.error) for one in scanner(root).scan().not_offered if "vGPU" in one.error]

    error = "1 vGPU is not offered: `vendors.nvidia.passthrough` offers vGPUs to virtual machines"
    assert told == [("nvidia", f"/sys/bus/pci/devices/{GPU}", error)]
    assert not [one for one in scanner(root, passthrough=True).scan().not_offered if "vGPU" in one.error]


def with_functions(*types: int | None, root: Path) -> Path:
    """A host with a GPU whose virtual functions have these vGPU types (None: a driver that has no such attribute)."""
    made: list[Entry] = [File.line(f"{function_of(GPU)}/sriov_numvfs", str(len(types)))]
    for number, kind in enumerate(types):
        function = function_of(f"0000:41:02.{number}")
        facts = {"uevent": "DRIVER=nvidia\nPCI_CLASS=30200\nPCI_ID=10DE:2335", "vendor": "0x10de", "class": "0x030200"}
        made += [
            *attributes(function, facts),
            link(f"{function}/physfn", function_of(GPU)),
            link(f"{function_of(GPU)}/virtfn{number}", function),
            named_link("sys/bus/pci/devices", function),
            *([] if kind is None else [File.line(f"{function}/nvidia/current_vgpu_type", str(kind))]),
        ]
    return planted(root, gpu(), card("0000:c1:00.0", 1, uuid=UUIDS[1]), made)


def notes(scan) -> list[str]:
    """What is said of hardware without being a problem."""
    return [f"{note.path}: {note.error}" for note in scan.scan.not_offered]


def test_a_gpu_whose_virtual_functions_have_a_vgpu_type_is_kept_from_containers(tmp_path: Path):
    """Defect: a GPU whose functions ran virtual machines was offered, with and without `passthrough`, without a note.

    kubevirt/kubevirt issue 17642. NVIDIA/go-nvlib, pkg/nvpci and vgpu-device-manager: a function whose
    `nvidia/current_vgpu_type` is not 0 is a vGPU.
    """
    root = with_functions(1133, 0, 1133, root=tmp_path)

    scan = scanned(root, passthrough=True)
    assert [one.id for one in scan.devices] == [UUIDS[1]]
    assert scan.left_out == {UUIDS[0]: "its virtual functions are vGPUs of virtual machines"}
    assert (complaints(scan), notes(scan)) == ([], [])

    scan = scanned(root)
    assert [one.id for one in scan.devices] == UUIDS[:2]
    [device] = [device for device in scan.scan.devices if device.id == UUIDS[0]]
    assert (device.attributes["vgpus"], device.attributes["vgpu_functions"]) == ("2", "3")
    assert complaints(scan) == []
    assert notes(scan) == [
        (
            f"/{function_of(GPU)}: 2 of 3 virtual functions are vGPUs of virtual machines, and containers are offered"
            " the whole GPU: `vendors.nvidia.passthrough` keeps it from them"
        )
    ]


@pytest.mark.parametrize("passthrough", [False, True])
def test_a_gpu_with_virtual_functions_without_a_type_is_offered_with_a_note(passthrough: bool, tmp_path: Path):
    """As after `sriov-manage -e`: no virtual machine has one yet."""
    scan = scanned(with_functions(0, 0, root=tmp_path), passthrough=passthrough)

    assert [one.id for one in scan.devices] == UUIDS[:2]
    assert notes(scan) == [
        (
            f"/{function_of(GPU)}: 2 virtual functions for vGPUs, of which none has a type: containers are offered the"
            f" whole GPU; if no virtual machine is to have them, remove them (`sriov-manage -d {GPU}`)"
        )
    ]


@pytest.mark.parametrize("types", [(), (None, None)])
def test_of_virtual_functions_that_can_be_no_vgpus_nothing_is_said(types: tuple[None, ...], tmp_path: Path):
    """Those of mediated devices, or none."""
    scan = scanned(with_functions(*types, root=tmp_path), passthrough=True)

    assert ([one.id for one in scan.devices], notes(scan)) == (UUIDS[:2], [])


def test_the_mig_devices_of_a_gpu_whose_functions_are_vgpus_are_kept_from_containers_too(tmp_path: Path):
    """The virtual machines have parts of the same GPU."""
    node = SimulatedNode.create(
        tmp_path / "node", NodeSpec(nvidia=NvidiaSpec(gpus=1, nvml=True, mig=[["1g.10gb"]], vgpu_types=[1133]))
    )

    scan = scanned(node.root, passthrough=True, mig_strategy="mixed")

    assert ([one.id for one in scan.devices], len(scan.left_out)) == ([], 2)
