"""Hardware that is no device: cards without their driver or under another one, and accelerators that nobody serves."""

import re
import shutil
from pathlib import Path

import pytest
from answering import core_settings

from devherd._native import Scanner
from devherd.config.classes import shipped_names
from devherd.config.loader import resolve
from devherd.config.model import Config
from devherd.proto import spool_pb2
from devherd.scanner.core import problem_messages
from devherd.scanner.observer import Observer
from devherd.scanner.once import ScanReport, scan_once
from devherd_sim.node import faults
from devherd_sim.node.entry import DeviceNode, Entry, File, attributes, link, named_link
from devherd_sim.node.presets import PRESETS
from devherd_sim.node.simulated_node import SimulatedNode
from devherd_sim.node.tree import write_tree

CURES = {
    "fpga-8": ("intel-fpga", "load `dfl-pci`, or `intel-fpga-pci` of OPAE"),
    "fpga-opae-2": ("intel-fpga", "load `dfl-pci`, or `intel-fpga-pci` of OPAE"),
    "nvidia-1": ("nvidia", "load `nvidia`"),
    "amd-8": ("amd", "load `amdgpu`"),
    "intel-gpu-2": ("intel-gpu", "load `i915` or `xe`"),
    "xilinx-2": ("xilinx-fpga", "load `xocl` or `xclmgmt` of XRT"),
    "rdma-2": ("rdma", "load `mlx5_core`"),
}


NOT_OFFERED: dict[str, list[str]] = {}
"""The functions of a preset that are not offered."""


def freshly_installed(root: Path, preset: str) -> Path:
    """The node before any driver is loaded: no function has one, and what drivers make is not there."""
    SimulatedNode.create(root, PRESETS[preset].spec)
    for driver in root.rglob("driver"):
        if driver.is_symlink():
            driver.unlink()
    for made in ("proc/driver", "sys/bus/pci/drivers", "sys/class", "dev"):
        shutil.rmtree(root / made, ignore_errors=True)
    return root


def problems(root: Path, **vendors: object) -> list[spool_pb2.Problem]:
    """Of a scan by `devherd scan`."""
    return scan_once(resolve(Config.model_validate({"host_root": root, "vendors": vendors}))).problems


@pytest.mark.parametrize("preset", CURES)
def test_each_card_without_a_driver_is_a_problem_with_its_cure(tmp_path, preset):
    """On a freshly installed node there was not one line: no device, no problem."""
    root = freshly_installed(tmp_path / "node", preset)
    vendor, cure = CURES[preset]
    said = [problem for problem in problems(root) if problem.error.endswith(f" has no driver: {cure}")]

    assert said
    for problem in said:
        assert (problem.vendor, problem.path) == (vendor, f"/sys/bus/pci/devices/{problem.device}")
    assert problems(root, **{vendor.replace("-", "_"): {"enabled": False}}) == []


@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_no_card_of_a_working_node_is_said_to_lack_its_driver(tmp_path, preset):
    """Nor a virtual function, which may be meant for a virtual machine; and each card is offered."""
    SimulatedNode.create(tmp_path / "node", PRESETS[preset].spec)
    scan = Scanner(str(tmp_path / "node"), core_settings(tmp_path / "node")).scan()

    assert scan.driverless == []
    assert [problem.device for problem in scan.not_offered] == NOT_OFFERED.get(preset, [])


def test_a_driver_that_is_loaded_later_ends_the_problem(tmp_path):
    """The identifiers are known by then; the driver is looked at in each scan."""
    root = tmp_path / "node"
    SimulatedNode.create(root, PRESETS["nvidia-1"].spec)
    scanner = Scanner(str(root), core_settings(root))
    [gpu] = scanner.scan().devices
    link = root / "sys/bus/pci/devices" / gpu.attributes["pci_address"] / "driver"
    target = link.readlink()
    link.unlink()
    before = scanner.scan()
    link.symlink_to(target)

    assert [problem.device for problem in before.driverless] == [gpu.attributes["pci_address"]]
    assert scanner.scan().driverless == []


def test_a_device_that_is_known_has_its_driver_missing_held_against_it_and_is_no_problem_beside(tmp_path):
    """It is said once."""
    root = tmp_path / "node"
    SimulatedNode.create(root, PRESETS["nvidia-1"].spec)
    config = resolve(Config.model_validate({"host_root": root}))
    observer = Observer(config)
    observer.scan(0.0)
    [entry] = observer.inventory.entries.values()
    link = root / "sys/bus/pci/devices" / entry.device.attributes["pci_address"] / "driver"
    link.unlink()
    scan = observer.scan(1.0)

    assert len(scan.driverless) == 1
    assert problem_messages(scan, config, observer.inventory.entries.values()) == []


def under(root: Path, preset: str, driver: str) -> str:
    """A node whose first GPU has this driver, in place of its vendor's; the address of the GPU."""
    node = SimulatedNode.create(root, PRESETS[preset].spec)
    address = node.nvidia.addresses()[0]
    faults.inject(node, "unbind", address)
    (root / "sys/bus/pci/devices" / address / "driver").symlink_to(f"../../../../../bus/pci/drivers/{driver}")
    return address


def report(root: Path, **vendors: object) -> ScanReport:
    """What `devherd scan` reports."""
    return scan_once(resolve(Config.model_validate({"host_root": root, "vendors": vendors})))


def test_a_gpu_under_nouveau_is_a_problem_with_its_cure(tmp_path):
    """The first question of those who install: no device was found, and not a line."""
    address = under(tmp_path, "nvidia-1", "nouveau")

    [problem] = report(tmp_path).problems
    assert (problem.vendor, problem.device, problem.path) == ("nvidia", address, f"/sys/bus/pci/devices/{address}")
    assert problem.error == (
        "the PCI function (10de:2330) is driven by nouveau, under which it is no device for containers: "
        "blacklist nouveau, and load `nvidia`"
    )
    assert report(tmp_path, nvidia={"enabled": False}).problems == []


def test_a_gpu_under_vfio_pci_is_noted_and_no_problem(tmp_path):
    """It may well be meant for a virtual machine. One that must be there is a problem that says where to look."""
    address = under(tmp_path, "nvidia-1", "vfio-pci")

    [note] = report(tmp_path).notices
    assert (note.vendor, note.device) == ("nvidia", address)
    assert note.error.startswith("the PCI function (10de:2330) is driven by vfio-pci, and not offered: load `nvidia`")
    assert report(tmp_path).problems == []
    [problem] = report(tmp_path, nvidia={"enabled": True}).problems
    assert problem.error.endswith("is true, but no device was found: the notes say what drives them")
    assert report(tmp_path, nvidia={"enabled": False}).notices == []


# Ids and drivers: Linux, drivers/accel/ivpu/ivpu_drv.h; drivers/crypto/intel/qat, qat_common/adf_accel_devices.h and
# qat_4xxx/adf_drv.c; drivers/accel/habanalabs/common, habanalabs_drv.c and habanalabs.h;
# drivers/accel/amdxdna/amdxdna_pci_drv.c. The class is the function's own: as `lspci -nn` of such machines shows it, as
# ipu_pci.c of amd/xdna-driver asks for it (0x1180).
ACCELERATORS = {
    "0000:00:0b.0": ("8086", "7d1d", "120000", "intel_vpu"),
    "0000:6b:00.0": ("8086", "4940", "0b4000", "4xxx"),
    "0000:19:00.0": ("1da3", "1020", "120000", "habanalabs"),
    "0000:c5:00.1": ("1022", "1502", "118000", "amdxdna"),
    "0000:6d:00.0": ("8086", "4940", "0b4000", None),
}


def with_accelerators(root: Path) -> Path:
    """A host with accelerators of which devherd serves none, two of them in the class accel."""
    made: list[Entry] = []
    for address, (vendor, device, pci_class, driver) in ACCELERATORS.items():
        path = f"sys/devices/pci{address[:7]}/{address}"
        made += attributes(path, {"vendor": f"0x{vendor}", "device": f"0x{device}", "class": f"0x{pci_class}"})
        made.append(named_link("sys/bus/pci/devices", path))
        if driver is not None:
            made.append(link(f"{path}/driver", f"sys/bus/pci/drivers/{driver}"))
    for number, address in enumerate(["0000:00:0b.0", "0000:c5:00.1"]):
        path = f"sys/devices/pci{address[:7]}/{address}"
        made += [
            File.line(f"{path}/accel/accel{number}/dev", f"261:{number}"),
            link(f"sys/dev/char/261:{number}", f"{path}/accel/accel{number}"),
            link(f"{path}/accel/accel{number}/device", path),
            named_link("sys/class/accel", f"{path}/accel/accel{number}"),
            DeviceNode(f"dev/accel/accel{number}", "char", 261, number),
        ]
    path = "sys/devices/platform/rknn"  # of Rockchip's NPU: rocket_register in drivers/accel/rocket/rocket_drv.c
    made += [
        File.line(f"{path}/accel/accel2/dev", "261:2"),
        named_link("sys/class/accel", f"{path}/accel/accel2"),
    ]
    write_tree(made, root)
    return root


def test_an_accelerator_that_nobody_serves_is_named_with_its_driver(tmp_path):
    """Ten bound accelerators were "no device was found: load the devices' drivers"."""
    root = with_accelerators(tmp_path)
    found = report(root)

    assert (found.offers, found.problems) == ([], [])
    assert {note.device or note.path: note.error.partition(",")[0] for note in found.notices} == {
        "0000:00:0b.0": "an accelerator (8086:7d1d) driven by intel_vpu",
        "0000:19:00.0": "an accelerator (1da3:1020) driven by habanalabs",
        "0000:6b:00.0": "an accelerator (8086:4940) driven by 4xxx",
        "0000:6d:00.0": "an accelerator (8086:4940) without a driver",
        "0000:c5:00.1": "an accelerator driven by amdxdna",
        "/sys/class/accel/accel2": "an accelerator (rknn)",
    }
    assert {note.vendor for note in found.notices} == {"none"}


def test_an_accelerator_whose_node_is_offered_is_not_noted(tmp_path):
    """By a rule of the user's own for its node."""
    root = with_accelerators(tmp_path)
    generic = [{"name": "example.com/npu", "groups": [{"paths": [{"path": "/dev/accel/accel0"}]}]}]

    config = Config.model_validate({"host_root": root, "generic": generic})
    noted = {note.device for note in scan_once(resolve(config)).notices}
    assert "0000:00:0b.0" not in noted
    assert "0000:c5:00.1" in noted


def function(address: str, ids: str, pci_class: str, driver: str | None = None) -> list[Entry]:
    """A PCI function of a card that no preset has."""
    vendor, device = ids.split(":")
    path = f"sys/devices/pci{address[:7]}/{address}"
    made = attributes(path, {"vendor": f"0x{vendor}", "device": f"0x{device}", "class": f"0x{pci_class}"})
    return [
        *made,
        named_link("sys/bus/pci/devices", path),
        *([link(f"{path}/driver", f"sys/bus/pci/drivers/{driver}")] if driver else []),
    ]


@pytest.mark.parametrize(
    ("driver", "said"), [("ami", "driven by ami: "), (None, "without a driver: load `ami` of AVED, and ")]
)
def test_a_versal_card_is_no_problem_of_xrt_and_told_once(tmp_path, driver, said):
    """Defect: `load xocl of XRT`, which has no driver for a V80, and a failed `scan --fail-on-problem`.

    Ids, driver and node: https://github.com/Xilinx/AVED, sw/AMI; functions 1 and 2 have no driver there.
    """
    write_tree(
        [
            *function("0000:af:00.0", "10ee:50b4", "120000", driver),
            *function("0000:af:00.1", "10ee:50b5", "120000"),
            *function("0000:af:00.2", "10ee:50b6", "120000"),
        ],
        tmp_path,
    )
    found = report(tmp_path)
    assert found.problems == []
    [note] = found.notices
    assert (note.vendor, note.device) == ("xilinx-fpga", "0000:af:00.0")
    assert note.error == f"an Alveo V80 (10ee:50b4) {said}offer the node that `ami` makes, /dev/ami0, by `generic`"
    assert report(tmp_path, xilinx_fpga={"enabled": False}).notices == []


@pytest.mark.parametrize(
    ("ids", "pci_class"), [("10ee:903f", "070001"), ("10ee:abcd", "070001"), ("10ee:d004", "120000")]
)
def test_a_card_without_a_shell_is_noted(tmp_path, ids, pci_class):
    """Defect: a U200 or U30 that shows its serial controller alone was not mentioned at all.

    https://github.com/Xilinx/XRT/issues/9454, https://github.com/Xilinx/video-sdk/issues/99; the last is the factory
    image of a U250 (devices.h of XRT).
    """
    write_tree(function("0000:b1:00.0", ids, pci_class), tmp_path)
    found = report(tmp_path)
    [note] = found.notices
    assert (found.problems, note.vendor, note.device) == ([], "xilinx-fpga", "0000:b1:00.0")
    assert note.error.startswith(f"a Xilinx card without a shell ({ids}, without a driver): flash one")
    [problem] = report(tmp_path, xilinx_fpga={"enabled": True}).problems
    assert problem.error.endswith("is true, but no device was found: the notes say what drives them")


def test_a_factory_image_under_its_driver_is_a_problem_and_not_noted_beside(tmp_path):
    """XRT's driver for management has it; there is nothing for containers."""
    write_tree(function("0000:b1:00.0", "10ee:d004", "120000", "xclmgmt"), tmp_path)
    write_tree("sys/devices/pci0000:b1/0000:b1:00.0/mgmt_pf ==", tmp_path)
    found = report(tmp_path)
    [problem] = found.problems
    assert (found.notices, problem.device) == ([], "0000:b1:00.0")
    assert "flash a shell" in problem.error


def test_a_design_of_one_s_own_on_an_fpga_is_not_taken_for_a_card_without_a_shell(tmp_path):
    """Xilinx's DMA cores have the same id, as network cards and memory controllers: OpenNIC, Coyote."""
    write_tree(
        [
            *function("0000:b1:00.0", "10ee:903f", "028000", "onic"),
            *function("0000:b2:00.0", "10ee:903f", "058000"),
            *function("0000:b3:00.0", "8086:0a01", "070002", "serial"),
        ],
        tmp_path,
    )
    assert (report(tmp_path).problems, report(tmp_path).notices) == ([], [])


OWN_NODES = {
    "hailo0": [
        *function("0000:05:00.0", "1e60:2864", "0b4000", "hailo"),
        File.line("sys/devices/pci0000:05/0000:05:00.0/hailo_chardev/hailo0/dev", "510:0"),
        link("sys/dev/char/510:0", "sys/devices/pci0000:05/0000:05:00.0/hailo_chardev/hailo0"),
    ],
    "ami0": [
        *function("0000:05:00.0", "10ee:50b4", "120000", "ami"),
        File.line("sys/devices/pci0000:05/0000:05:00.0/ami/ami0/dev", "510:0"),
        link("sys/dev/char/510:0", "sys/devices/pci0000:05/0000:05:00.0/ami/ami0"),
        File.line("sys/devices/pci0000:05/0000:05:00.0/ami/ami0/uevent", "MAJOR=510\nMINOR=0\nDEVNAME=ami0"),
    ],
    "wq/deep": [
        *function("0000:05:00.0", "1e60:2864", "0b4000", "hailo"),
        File.line("sys/devices/pci0000:05/0000:05:00.0/unit0/queue0/wq!deep/dev", "510:0"),
        link("sys/dev/char/510:0", "sys/devices/pci0000:05/0000:05:00.0/unit0/queue0/wq!deep"),
    ],
    "habana/hl0": [
        *function("0000:05:00.0", "1da3:1020", "120000", "habanalabs"),
        File.line("sys/devices/pci0000:05/0000:05:00.0/misc/hl/dev", "510:0"),
        link("sys/dev/char/510:0", "sys/devices/pci0000:05/0000:05:00.0/misc/hl"),
        File.line("sys/devices/pci0000:05/0000:05:00.0/misc/hl/uevent", "DEVNAME=habana/hl0"),
    ],
}
"""Accelerators with their node: named as its class device, at any depth, or as the kernel's event of it names it."""


@pytest.mark.parametrize("node", OWN_NODES)
def test_an_accelerator_whose_own_node_is_offered_is_not_noted_any_more(tmp_path, node):
    """Defect: the note said to offer its node by `generic`, and stayed when that was done; it knew /dev/accel alone."""
    write_tree([*OWN_NODES[node], DeviceNode(f"dev/{node}", "char", 510, 0)], tmp_path)
    assert [note.device for note in report(tmp_path).notices] == ["0000:05:00.0"]
    generic = [{"name": "example.com/npu", "groups": [{"paths": [{"path": f"/dev/{node}"}]}]}]
    config = Config.model_validate({"host_root": tmp_path, "generic": generic})
    assert scan_once(resolve(config)).notices == []


def test_an_accelerator_is_served_whatever_link_generic_offers_to_its_node(tmp_path):
    """A name that udev gives to the node."""
    node = [*OWN_NODES["hailo0"], DeviceNode("dev/hailo0", "char", 510, 0), link("dev/by-id/first", "dev/hailo0")]
    write_tree(node, tmp_path)
    generic = [{"name": "example.com/npu", "groups": [{"paths": [{"path": "/dev/by-id/first"}]}]}]
    config = Config.model_validate({"host_root": tmp_path, "generic": generic})
    assert scan_once(resolve(config)).notices == []


def test_an_accelerator_that_a_class_serves_is_noted_with_its_class_until_that_is_switched_on(tmp_path):
    """By driver or id; classes of the wheel."""
    root = with_accelerators(tmp_path)
    named = {
        note.device: found[1] for note in report(root).notices if (found := re.search("the class `(.*?)`", note.error))
    }
    assert named == {"0000:00:0b.0": "intel-npu", "0000:6b:00.0": "intel-qat", "0000:6d:00.0": "intel-qat"}
    assert set(named.values()) <= set(shipped_names())
    config = Config.model_validate({"host_root": root, "classes": {"enable": ["intel-npu"]}})
    found = scan_once(resolve(config))
    assert [offer.name for offer in found.offers] == ["npu.intel.com/accel"]
    assert "0000:00:0b.0" not in {note.device for note in found.notices}


def said_of(root: Path, device: str, **classes: object) -> list[str]:
    """What the notes say of a device's cure, with these classes."""
    found = scan_once(resolve(Config.model_validate({"host_root": root, "classes": classes})))
    return [note.error.partition("no vendor here serves: ")[2] for note in found.notices if note.device == device]


def virtual_functions(number: int, driver: str) -> list[Entry]:
    """Those of the QAT at 0000:6b:00.0, each in a slot of its own."""
    entries: list[Entry] = []
    for one in range(number):
        address = f"0000:6b:{one + 1:02x}.0"
        path = f"sys/devices/pci0000:6b/{address}"
        entries += [
            *function(address, "8086:4941", "0b4000", driver),
            link(f"{path}/physfn", "sys/devices/pci0000:6b/0000:6b:00.0"),
            link(f"sys/bus/pci/drivers/{driver}/{address}", path),
            link(f"{path}/iommu_group", f"sys/kernel/iommu_groups/{one}"),
            link(f"sys/devices/pci0000:6b/0000:6b:00.0/virtfn{one}", path),
            DeviceNode(f"dev/vfio/{one}", "char", 242, one),
        ]
    return entries


def test_a_qat_whose_class_is_on_is_noted_with_what_its_virtual_functions_lack(tmp_path):
    """Defect: the note fell back to `generic`, as for hardware that no class knows."""
    qat = "sys/devices/pci0000:6b/0000:6b:00.0"
    write_tree(
        [*function("0000:6b:00.0", "8086:4940", "0b4000", "4xxx"), DeviceNode("dev/vfio/vfio", "char", 1, 1)], tmp_path
    )
    write_tree(attributes(f"{qat}/qat", {"state": "up", "cfg_services": "sym"}), tmp_path)
    on = {"enable": "intel-qat"}
    assert said_of(tmp_path, "0000:6b:00.0") == ["switch the class `intel-qat` on: `classes: {enable: [intel-qat]}`"]
    assert said_of(tmp_path, "0000:6b:00.0", **on) == [
        (
            "the class `intel-qat` is on and serves virtual functions, and there are none: `echo NUMBER >"
            " /sys/bus/pci/devices/0000:6b:00.0/sriov_numvfs` makes them, and they belong under `vfio-pci`"
        )
    ]
    write_tree(virtual_functions(2, "4xxxvf"), tmp_path)
    assert said_of(tmp_path, "0000:6b:00.0", **on) == [
        "the class `intel-qat` is on and serves virtual functions under `vfio-pci`: bind them to it"
    ]


def test_a_qat_whose_virtual_functions_are_served_is_not_noted_wherever_these_are(tmp_path):
    """Also in another slot than their physical function. Where the class makes no device of them, it says so."""
    qat = "sys/devices/pci0000:6b/0000:6b:00.0"
    write_tree([*function("0000:6b:00.0", "8086:4940", "0b4000", "4xxx"), *virtual_functions(2, "vfio-pci")], tmp_path)
    write_tree(attributes(f"{qat}/qat", {"state": "up", "cfg_services": "sym"}), tmp_path)
    assert said_of(tmp_path, "0000:6b:00.0", enable="intel-qat") == []
    (tmp_path / qat / "qat/state").write_text("down\n")
    assert said_of(tmp_path, "0000:6b:00.0", enable="intel-qat") == [
        "class `intel-qat` is for it and makes no device of it: `devherd classes check intel-qat` says why"
    ]


@pytest.mark.parametrize(
    ("find", "is_named"),
    [
        ({"class": "accel", "name": "npu{n}"}, True),
        ({"class": "misc", "vendor": "0x1da3", "device": "0x1020"}, True),
        ({"class": "misc", "driver": "habanalabs"}, True),
        ({"class": "accel", "vendor": "0x8086"}, False),
        ({"class": "misc", "vendor": "0x1da3", "device": "0x0001"}, False),
        ({"class": "misc"}, False),
        (None, False),
    ],
)
def test_a_class_of_ones_own_that_is_for_an_accelerator_and_makes_no_device_of_it_is_named(tmp_path, find, is_named):
    """Defect: the note did not mention classes of one's own, neither this one nor that one could be written."""
    path = "sys/devices/pci0000:05/0000:05:00.0/accel/accel0"
    node = File.line(f"{path}/uevent", "MAJOR=261\nMINOR=0\nDEVNAME=accel/accel0")
    tree = [*function("0000:05:00.0", "1da3:1020", "120000", "habanalabs"), node, named_link("sys/class/accel", path)]
    write_tree([*tree, link("sys/dev/char/261:0", path), DeviceNode("dev/accel/accel0", "char", 261, 0)], tmp_path)
    define = {"own": {"find": find}} if find else {}
    assert said_of(tmp_path, "0000:05:00.0", define=define) == [
        "class `own` is for it and makes no device of it: `devherd classes check FILE` says why"
        if is_named
        else "describe it by a class of your own, offer its nodes by `generic`, or run its maker's own plugin"
    ]
    served = {"own": {"find": {"class": "accel", "driver": "habanalabs"}}}
    assert said_of(tmp_path, "0000:05:00.0", define=served) == []


def queue(function_path: str, unit: str, number: int) -> list[Entry]:
    """A work queue of idxd that is enabled for users, and its node below it: drivers/dma/idxd/cdev.c of Linux."""
    kind = unit[:3]
    major = 509 if kind == "dsa" else 510
    path = f"{function_path}/{unit}/wq{unit[3:]}.{number}"
    node = f"{path}/{kind}!wq{unit[3:]}.{number}"
    return [
        *attributes(path, {"state": "enabled", "type": "user", "mode": "shared"}),
        File.line(f"{node}/dev", f"{major}:{number}"),
        File.line(f"{node}/uevent", f"MAJOR={major}\nMINOR={number}\nDEVNAME={kind}/wq{unit[3:]}.{number}"),
        named_link("sys/bus/dsa/devices", path),
        named_link("sys/bus/dsa/devices", node),
        DeviceNode(f"dev/{kind}/wq{unit[3:]}.{number}", "char", major, number),
    ]


def test_work_queues_that_nobody_offers_are_noted_with_their_class(tmp_path):
    """DSA and IAA are no accelerators by their PCI class; without a queue for users there is nothing to offer."""
    dsa, iaa = "sys/devices/pci0000:6a/0000:6a:01.0", "sys/devices/pci0000:6a/0000:6a:02.0"
    made = [
        *function("0000:6a:01.0", "8086:0b25", "088000", "idxd"),
        *function("0000:6a:02.0", "8086:0cfe", "088000", "idxd"),
    ]
    write_tree(made, tmp_path)
    assert report(tmp_path).notices == []
    write_tree([*queue(dsa, "dsa0", 0), *queue(dsa, "dsa0", 1), *queue(iaa, "iax1", 0)], tmp_path)
    assert [(note.device, *note.error.split(": ", 1)) for note in report(tmp_path).notices] == [
        (address, f"{them} not offered", f"switch the class `{name}` on: `classes: {{enable: [{name}]}}`")
        for address, them, name in (
            ("0000:6a:01.0", "2 work queues for users are", "intel-dsa"),
            ("0000:6a:02.0", "1 work queue for users is", "intel-iaa"),
        )
    ]
    config = Config.model_validate({"host_root": tmp_path, "classes": {"enable": ["intel-dsa", "intel-iaa"]}})
    found = scan_once(resolve(config))
    assert [offer.name for offer in found.offers] == ["dsa.intel.com/wq-user-shared", "iaa.intel.com/wq-user-shared"]
    assert found.notices == []
