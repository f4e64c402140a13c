"""Lost devices: which are, which are not, what they are remembered by, and what ends that. No I/O but for the files."""

import time
from dataclasses import dataclass, field, replace

import pytest

from devherd import spool
from devherd._native import Device, Fact, PciFunction
from devherd.health.lost import Host, LostDevices, LostFile, PresentFile, Vanished, forget_at_rest, present, renamed
from devherd.inventory import Entry
from devherd.proto import health_pb2

GONE = health_pb2.Held(source="inventory", reason="gone")
XID = health_pb2.Held(source="xid", reason="xid", detail="GPU has fallen off the bus", value="79", count=1)
CORDON = health_pb2.Held(source="cordon", reason="cordoned")
GPU = {"pci_address": "0000:83:00.0", "pci_driver": "nvidia", "slot": "7", "serial": "S1", "uuid": "GPU-1"}
PART = GPU | {"uuid": "MIG-1", "gpu_instance": "3", "compute_instance": "0"}


def device(name, /, vendor="nvidia", card="0000:83:00.0", gone_since=None, found_since=0.0, *, files=None, **facts):
    """A device as it is known; `files`: where facts are from."""
    files = files or {}
    made = Device(
        vendor=vendor,
        card=card,
        id=name,
        resource_name="a.b/c",
        first_sight_resource_name=None,
        shares=[],
        numa_nodes=[],
        numa_source="",
        paths=[],
        facts={key: Fact("text", value, files.get(key, "")) for key, value in facts.items()},
        distances={},
    )
    return Entry(made, "a.b/c", gone_since=gone_since, found_since=found_since)


def of_class(path, listed="class/widget", kind="widget", card="", **facts):
    """A device of a class: the directory below /sys/devices, and below /sys the one that lists it."""
    name = facts.pop("name", path.rpartition("/")[2])
    files = {"class": f"/sys/{listed}", "name": f"/sys/devices/{path}"}
    times = {key: facts.pop(key) for key in ("gone_since", "found_since") if key in facts}
    address = facts.get("pci_address", "")
    return device(name, "classes", card or address or name, files=files, **times, name=name, **{"class": kind}, **facts)


@dataclass
class Node:
    """A node on which devices vanish; `drivers` are those of its PCI functions."""

    lost: LostDevices = field(default_factory=LostDevices)
    drivers: dict = field(default_factory=dict)
    vendors: tuple = ("nvidia", "amd", "generic", "intel-gpu")
    dropped: tuple = ()

    def scan(self, *entries, pods=(), findings=(GONE,), now=1000.0):
        """What a scan says has become of lost devices; those that are gone are listed still."""
        known = {entry.key: entry for entry in entries}
        vanished = [Vanished(one, "a.b/c", 100.0, pods, findings) for one in entries if one.gone_since is not None]
        host = Host(known, self.vendors, self.dropped, self.drivers.get, now)
        return [(news.device.device, news.text, news.is_over) for news in self.lost.observe(vanished, host)]

    @property
    def names(self):
        """The devices that are missed."""
        return [one.device for one in self.lost.message().devices]


def test_a_lost_device_is_remembered_with_its_place_on_the_bus():
    """The bridges above it and its NUMA node, for the picture of the node; a pool of several functions has none."""
    function = "/sys/devices/pci0000:80/0000:80:01.0/0000:83:00.0"
    for address, known in (("0000:83:00.0", function), ("0000:83:00.0,0000:84:00.0", "")):
        made = Device(
            vendor="nvidia", card="0000:83:00.0", id="GPU-1", resource_name="a.b/c", numa_nodes=[1],
            facts={"pci_address": Fact("text", address, "")}, functions=[PciFunction(function, "nvidia", None)],
        )  # fmt: skip
        node = Node()
        node.scan(Entry(made, "a.b/c", gone_since=1.0))
        [lost] = node.lost.message().devices
        assert (lost.pci_path, list(lost.numa_nodes)) == (known, [1])


def test_a_lost_device_is_remembered_by_all_that_helps_to_find_it():
    """Where it was, its serial number, who held it, and what was held against it before, not only that it is gone."""
    node = Node()
    assert node.scan(device("GPU-1", gone_since=1.0, **GPU), findings=(GONE, XID), pods=("default/train",)) == []
    [known] = node.lost.message().devices
    assert (known.pci_address, known.slot, known.serial) == ("0000:83:00.0", "7", "S1")
    assert (list(known.pods), [held.value for held in known.findings]) == (["default/train"], ["79"])
    assert (known.since_timestamp_seconds, known.is_listed) == (100.0, True)
    node.scan(device("GPU-1", gone_since=1.0, **GPU))
    assert node.lost.message().devices[0] == known, "pods that have ended and findings that are over stay remembered"


def test_it_is_missing_when_it_leaves_the_list_and_back_by_itself():
    """One event each; none for a device that was away for less time than it stays listed."""
    node = Node()
    node.scan(device("GPU-1", gone_since=1.0, **GPU))
    assert node.scan(device("GPU-1", **GPU)) == []
    node.scan(device("GPU-1", gone_since=1.0, **GPU))
    assert node.scan() == [("GPU-1", "is missing: was at 0000:83:00.0, slot 7, serial S1", False)]
    assert node.scan() == []
    assert node.scan(device("GPU-1", **GPU), now=100.0 + 3 * 86400) == [("GPU-1", "is back after 3 d", True)]
    assert node.names == []


@pytest.mark.parametrize(
    ("back", "text"),
    [
        (device("GPU-1", card="0000:84:00.0", **GPU | {"pci_address": "0000:84:00.0"}), " at 0000:84:00.0"),
        (
            device("GPU-9", card="0000:84:00.0", **GPU | {"pci_address": "0000:84:00.0", "uuid": "GPU-9"}),
            " as GPU-9 at 0000:84:00.0",
        ),
        (device("GPU-1", **GPU | {"serial": "S2"}), ", with another serial number: S2"),
    ],
    ids=["by-its-uuid", "by-its-serial-number", "in-its-place"],
)
def test_a_device_is_back_at_another_place_too(back, text):
    """A card is put into another slot."""
    node = Node()
    node.scan(device("GPU-1", gone_since=1.0, **GPU))
    node.scan()
    assert node.scan(back) == [("GPU-1", f"is back after 15 min{text}", True)]


CARD = {"pci_address": "0000:01:00.0", "pci_driver": "i915"}
STICK = {"path": "/dev/bus/usb/001/002", "usb_id": "1a6e:089a", "usb_port": "1-1"}
OF_USB = {"usb_port": "1-2", "usb_interface": "1-2:1.0"}
SECOND = {"usb_interface": "1-2:1.2"}
PORT = {"path": "/dev/ttyUSB0"} | OF_USB
RENAMED = {
    "an Intel GPU that is bound again": (
        device("card0-0", "intel-gpu", "0000:01:00.0", gone_since=1.0, **CARD),
        device("card5-0", "intel-gpu", "0000:01:00.0", found_since=1.0, **CARD),
        "was at 0000:01:00.0",
    ),
    "an RDMA device that udev renames": (
        device("mlx5_0", "rdma", "0000:01:00.0", gone_since=1.0, **CARD),
        device("rocep1s0f1", "rdma", "0000:01:00.0", found_since=1.0, **CARD),
        "was at 0000:01:00.0",
    ),
    "a USB stick in the same port": (
        device("one", "generic", "a.b/c group 0", gone_since=1.0, **STICK),
        device("two", "generic", "a.b/c group 0", found_since=9.0, **STICK | {"path": "/dev/bus/usb/001/003"}),
        "was at USB port 1-1",
    ),
    "a Coral that has loaded its firmware": (
        device("one", "generic", "a.b/c group 0", gone_since=1.0, **STICK),
        device("two", "generic", "a.b/c group 0", found_since=1.0, **STICK | {"usb_id": "18d1:9302"}),
        "was at USB port 1-1",
    ),
    "two sticks that are one device, in another order": (
        device("one", "generic", "a.b/c group 0", gone_since=1.0, **STICK | {"usb_port": "1-1,1-2"}),
        device("two", "generic", "a.b/c group 0", found_since=1.0, **STICK | {"usb_port": "1-2,1-1"}),
        "was at USB port 1-1, 1-2",
    ),
    "a serial adapter": (
        device("one", "generic", "a.b/c group 0", gone_since=1.0, **PORT),
        device("two", "generic", "a.b/c group 0", found_since=1.0, **PORT | {"path": "/dev/ttyUSB1"}),
        "was at USB interface 1-2:1.0",
    ),
    "a serial adapter of a class": (
        of_class("pci0000:00/usb1/1-2/1-2:1.0/ttyUSB0/tty/ttyUSB0", gone_since=1.0, **OF_USB),
        of_class("pci0000:00/usb1/1-2/1-2:1.0/ttyUSB1/tty/ttyUSB1", found_since=1.0, **OF_USB),
        "was at USB interface 1-2:1.0",
    ),
    "a camera of a class, with all its nodes": (
        of_class("pci0000:00/usb1/1-2/1-2:1.0/v/video0", name="video0,video1", gone_since=1.0, **OF_USB),
        of_class("pci0000:00/usb1/1-2/1-2:1.2/v/video2", name="video2,video3", found_since=1.0, **OF_USB | SECOND),
        "was at USB port 1-2",
    ),
    "an accelerator of a class that is bound again": (
        of_class("pci0000:00/0000:01:00.0/accel/accel0", gone_since=1.0, **CARD),
        of_class("pci0000:00/0000:01:00.0/accel/accel3", found_since=1.0, **CARD),
        "was at 0000:01:00.0",
    ),
    "an accelerator of a class that is no PCI function": (
        of_class("platform/fdab0000.npu/accel/accel0", gone_since=1.0),
        of_class("platform/fdab0000.npu/accel/accel1", found_since=1.0),
        "was at /sys/devices/platform/fdab0000.npu/accel",
    ),
    "a part of a card of a class, by the way to it": (
        of_class("pci0000:00/0000:01:00.0/nvme/nvme0/generic/ng0n1", gone_since=1.0, **CARD),
        of_class("pci0000:00/0000:01:00.0/nvme/nvme0/generic/ng0n7", found_since=1.0, **CARD),
        "was at 0000:01:00.0",
    ),
    "an accelerator whose node is given by its path": (
        device("one", "generic", "a.b/c group 0", gone_since=1.0, pci_function="0000:05:00.0"),
        device("two", "generic", "a.b/c group 0", found_since=1.0, pci_function="0000:05:00.0"),
        "was at PCI function 0000:05:00.0",
    ),
}


@pytest.mark.parametrize("case", RENAMED)
def test_what_has_another_name_at_its_place_is_not_lost(case):
    """Defect: it was missed until somebody ran `devherd forget`, once for each time that it was plugged in."""
    gone, there, _ = RENAMED[case]
    node = Node(vendors=("intel-gpu", "rdma", "generic", "classes", "classes/widget"))
    node.scan(gone, there)
    assert node.names == []
    assert list(renamed([gone, there])) == [gone.key]


@pytest.mark.parametrize("case", RENAMED)
def test_what_was_lost_is_back_under_another_name(case):
    """Later, also after a boot, when nothing is known of it but what the state directory has."""
    gone, there, where = RENAMED[case]
    node = Node(vendors=("intel-gpu", "rdma", "generic", "classes", "classes/widget"))
    node.scan(gone)
    assert node.scan() == [(gone.device.id, f"is missing: {where}", False)]
    node = Node(LostDevices(node.lost.message()), vendors=("intel-gpu", "rdma", "generic", "classes", "classes/widget"))
    [(_, text, is_over)] = node.scan(there)
    assert (text.startswith("is back after 15 min as "), is_over, node.names) == (True, True, [])


NOT_RENAMED = {
    "another card in its slot, by its serial number": (
        device("card0-0", "intel-gpu", "0000:01:00.0", gone_since=1.0, **CARD, serial="1"),
        device("card5-0", "intel-gpu", "0000:01:00.0", found_since=1.0, **CARD, serial="2"),
    ),
    "another GPU in its slot, by its UUID": (
        device("GPU-1", gone_since=1.0, **GPU | {"serial": ""}),
        device("GPU-2", found_since=1.0, **GPU | {"serial": "", "uuid": "GPU-2"}),
    ),
    "another maker's device at its address": (
        device("card0-0", "intel-gpu", "0000:01:00.0", gone_since=1.0, **CARD),
        device("GPU-2", "nvidia", "0000:01:00.0", found_since=1.0, **CARD),
    ),
    "a camera's other node, which was there before": (
        device("one", "generic", "a.b/c group 0", gone_since=9.0, **PORT | {"path": "/dev/video0"}),
        device("two", "generic", "a.b/c group 0", **PORT | {"path": "/dev/video1"}),
    ),
    "the adapter's other interface": (
        device("one", "generic", "a.b/c group 0", gone_since=1.0, **PORT),
        device("two", "generic", "a.b/c group 0", found_since=1.0, **PORT | {"usb_interface": "1-2:1.1"}),
    ),
    "a stick in another port": (
        device("one", "generic", "a.b/c group 0", gone_since=1.0, **STICK),
        device("two", "generic", "a.b/c group 0", found_since=1.0, **STICK | {"usb_port": "1-4"}),
    ),
    "another stick with another serial number": (
        device("one", "generic", "a.b/c group 0", gone_since=1.0, **STICK, serial="1"),
        device("two", "generic", "a.b/c group 0", found_since=1.0, **STICK, serial="2"),
    ),
    "what another resource has of the same port": (
        device("one", "generic", "a.b/c group 0", gone_since=1.0, **STICK),
        device("two", "generic", "d.e/f group 0", found_since=1.0, **STICK),
    ),
    "what another class has of the same port": (
        of_class("pci0000:00/usb1/1-2/1-2:1.0/tty/ttyUSB0", gone_since=1.0, serial="1", **OF_USB),
        of_class("pci0000:00/usb1/1-2/1-2:1.0/x/x0", kind="x", found_since=1.0, serial="1", **OF_USB),
    ),
    "the other interface of an adapter of a class": (
        of_class("pci0000:00/usb1/1-2/1-2:1.0/tty/ttyUSB0", gone_since=1.0, **OF_USB),
        of_class("pci0000:00/usb1/1-2/1-2:1.2/tty/ttyUSB1", found_since=1.0, **OF_USB | SECOND),
    ),
    "a device of a class that no device is above": (
        of_class("virtual/misc/widget0", gone_since=1.0),
        of_class("virtual/misc/widget1", found_since=1.0),
    ),
    "another device of a bus, where a name is a place": (
        of_class("platform/fe000000.i2c/i2c-0/0-0050", "bus/i2c", gone_since=1.0),
        of_class("platform/fe000000.i2c/i2c-0/0-0051", "bus/i2c", found_since=1.0),
    ),
    "a device without a place": (
        device("one", "generic", "a.b/c group 0", gone_since=1.0),
        device("two", "generic", "a.b/c group 0", found_since=1.0),
    ),
}


@pytest.mark.parametrize("case", NOT_RENAMED)
def test_what_is_another_device_is_not_taken_for_the_lost_one(case):
    """What is lost is not forgotten because something else has come."""
    gone, there = NOT_RENAMED[case]
    node = Node(vendors=("intel-gpu", "nvidia", "generic", "classes", "classes/widget"))
    node.scan(gone, there)
    assert node.names == [gone.device.id]
    assert renamed([gone, there]) == {}
    node.scan(there)
    node.scan(there)
    assert node.names == [gone.device.id]


QUEUES = [f"pci0000:6a/0000:01:00.0/dsa0/wq0.{number}/dsa!wq0.{number}" for number in range(2)]


def test_a_queue_of_a_class_that_is_gone_is_no_other_queue_and_not_missed_while_its_card_has_others():
    """Somebody has divided the card otherwise. A fact that is called as a part of a vendor's card says nothing."""
    gone, other, new = (
        of_class(QUEUES[0], "bus/dsa", gone_since=1.0, port="1", **CARD),
        of_class(QUEUES[1], "bus/dsa", port="1", **CARD),
        of_class(QUEUES[1], "bus/dsa", found_since=1.0, port="1", **CARD),
    )
    assert renamed([gone, new]) == {}
    node = Node(vendors=("classes", "classes/widget"), drivers={"0000:01:00.0": "i915"})
    node.scan(gone)
    assert node.scan() == [(gone.device.id, "is missing: was at 0000:01:00.0", False)]
    assert node.scan(other) == [(gone.device.id, "is no longer lost: its card is there, divided otherwise", True)]

    whole = of_class("pci0000:00/0000:01:00.0/accel/accel0", gone_since=1.0, port="1", **CARD)
    second = of_class("pci0000:00/0000:01:00.0/accel/accel1", port="2", **CARD)
    node = Node(vendors=("classes", "classes/widget"), drivers={"0000:01:00.0": "i915"})
    node.scan(whole, second)
    node.scan(second)
    assert node.names == ["accel0"]


def test_a_queue_of_a_class_is_not_awaited_after_a_boot_and_a_card_of_a_class_is():
    """Queues are made by whoever starts the host; a card is there or lost."""
    queue, card = of_class(QUEUES[0], "bus/dsa", **CARD), of_class("pci0000:00/0000:01:00.0/accel/accel0", **CARD)
    assert [one.device for one in present([(queue, "a.b/c"), (card, "a.b/c")], ())] == ["accel0"]


VIRTUAL = {"pci_address": "0000:01:00.1", "pci_driver": "xe", "physfn": "0000:01:00.0"}
PORT_OF_CARD = {"pci_address": "0000:81:00.0", "pci_driver": "dfl-pci", "port": "1"}


@pytest.mark.parametrize(
    ("vendor", "facts", "other"),
    [
        ("intel-gpu", VIRTUAL, {"pci_address": "0000:01:00.2"}),
        ("intel-fpga", PORT_OF_CARD, {"port": "0"}),
    ],
    ids=["virtual function", "FPGA port"],
)
def test_a_part_that_is_tied_to_its_place_is_found_there_under_another_name(vendor, facts, other):
    """Its driver was bound again, and the kernel has counted on. Another part of the card is not it."""
    gone = device("a0", vendor, facts["pci_address"], gone_since=1.0, **facts)
    again = device("a7", vendor, facts["pci_address"], found_since=1.0, **facts)
    beside = device("a8", vendor, facts["pci_address"], found_since=1.0, **facts | other)
    assert {key: [one.device.id for one in there] for key, there in renamed([gone, again, beside]).items()} == {
        gone.key: ["a7"]
    }
    assert renamed([gone, beside]) == {}


def test_a_division_that_was_made_anew_is_not_the_one_before():
    """A MIG device, a partition: another one may have its number."""
    for facts in ({"gpu_instance": "3", "compute_instance": "0"}, {"partition": "1"}):
        gone = device("a", gone_since=1.0, **{"pci_address": "0000:83:00.0"} | facts)
        assert renamed([gone, device("b", found_since=1.0, **{"pci_address": "0000:83:00.0"} | facts)]) == {}


def test_a_subfunction_is_a_part_of_its_card():
    """It has the card's PCI address, and is no other name of the card."""
    card = device("mlx5_0", "rdma", "0000:01:00.0", found_since=5.0, **CARD)
    part = device("mlx5_2", "rdma", "0000:01:00.0", gone_since=1.0, **CARD, subfunction="mlx5_core.sf.2")
    assert renamed([card, part]) == {}
    node = Node(vendors=("rdma",))
    assert (node.scan(card, part), node.names) == ([], [])
    assert [one.device for one in present([(card, "a"), (replace(part, gone_since=None), "a")], ())] == ["mlx5_0"]


def test_a_board_that_changes_its_slot_between_two_scans_is_not_lost():
    """Defect: the same board at the new place counted as another one that had been there all the time."""
    there = device("b", "amd", "0000:84:00.0", found_since=1.0, serial="S1", pci_address="0000:84:00.0")
    node = Node()
    node.scan(device("a", "amd", gone_since=1.0, serial="S1", pci_address="0000:83:00.0"), there)
    assert node.names == []


def test_the_other_gpu_of_a_board_is_not_taken_for_the_lost_one():
    """Two GPUs of one board have one serial number."""
    other = device("GPU-2", card="0000:84:00.0", **GPU | {"uuid": "GPU-2", "pci_address": "0000:84:00.0"})
    node = Node()
    node.scan(device("GPU-1", gone_since=1.0, **GPU), other)
    node.scan(other)
    assert node.names == ["GPU-1"]


def test_parts_of_a_card_that_is_there_are_not_lost_and_those_of_a_lost_card_are():
    """MIG devices and partitions that somebody has destroyed; and those of a GPU that fell off the bus."""
    whole, part = device("GPU-1", **GPU), device("MIG-1", gone_since=1.0, **PART)
    node = Node()
    assert (node.scan(whole, part), node.names) == ([], [])
    node.scan(device("GPU-1", gone_since=1.0, **GPU), part)
    assert node.names == ["GPU-1", "MIG-1"]
    node.scan()
    other = device("MIG-7", **PART | {"uuid": "MIG-7", "gpu_instance": "5"})
    assert node.scan(whole, other)[1] == (
        "MIG-1",
        "is no longer lost: its card is there, divided otherwise",
        True,
    )


def test_virtual_functions_are_lost_with_their_physical_one_only():
    """The kernel removes them first: at that moment their physical function is there still."""
    virtual = {"pci_address": "0000:42:00.1", "pci_driver": "i915", "physfn": "0000:42:00.0"}
    gone = device("card1", "intel-gpu", "0000:42:00.1", gone_since=1.0, **virtual)
    node = Node(drivers={"0000:42:00.0": "i915"})
    node.scan(gone)
    assert node.names == []
    node.drivers.clear()
    node.scan(gone)
    assert node.names == ["card1"]


def test_a_gpu_that_is_given_to_a_virtual_machine_is_not_lost_and_one_without_its_driver_is():
    """vfio-pci has it; a driver that let go of it and did not come back is a loss."""
    gone = device("GPU-1", gone_since=1.0, **GPU)
    node = Node(drivers={"0000:83:00.0": ""})
    node.scan(gone)
    assert node.names == ["GPU-1"]
    node.drivers["0000:83:00.0"] = "vfio-pci"
    node.scan(gone)
    assert node.names == []


def test_what_was_cordoned_or_left_by_the_configuration_is_not_lost():
    """A vendor that is switched off takes along what it had lost; changed options do so without PCI functions."""
    node = Node()
    node.scan(device("GPU-1", gone_since=1.0, **GPU), findings=(GONE, CORDON))
    assert node.names == []
    node.scan(device("GPU-1", gone_since=1.0, **GPU), device("usb", "generic", "g", gone_since=1.0))
    node.scan()
    node.dropped = ("generic", "nvidia")
    assert [name for name, _, _ in node.scan()] == ["usb"]
    node.vendors = ("generic",)
    assert node.scan() == [("GPU-1", "is no longer lost: the configuration excludes it", True)]


def order(known, since=None):
    """What `devherd forget` writes."""
    return health_pb2.ForgetOrder(
        vendor=known.vendor,
        card=known.card,
        device=known.device,
        since_timestamp_seconds=known.since_timestamp_seconds if since is None else since,
    )


def test_a_forgotten_device_is_not_missed_again_until_it_is_lost_again():
    """It may be listed for a while because a pod holds it. An old order does not hold for the next loss."""
    gone = device("GPU-1", gone_since=1.0, **GPU)
    node = Node()
    node.scan(gone)
    [known] = node.lost.message().devices
    node.lost.forget([order(known, since=99.0)])
    assert node.names == ["GPU-1"]
    node.lost.forget([order(known)])
    node.scan(gone)
    assert node.names == []
    node = Node(LostDevices(node.lost.message()))
    node.scan(gone)
    assert node.names == [], "nor by the next scanner"
    node.scan(device("GPU-1", **GPU))
    node.scan(gone)
    assert node.names == ["GPU-1"]


def test_the_copy_counts_after_a_boot_and_both_files_go_with_the_last_device(tmp_path):
    """The run directory is in memory. Without lost devices there is no file."""
    live, kept = tmp_path / "run/lost.pb", tmp_path / "state/lost.pb"
    live.parent.mkdir()
    node = Node()
    node.scan(device("GPU-1", gone_since=1.0, **GPU))
    node.scan()
    LostFile(live, kept).write(node.lost.message())
    live.unlink()
    assert [one.device for one in LostFile(live, kept).read().devices] == ["GPU-1"]
    LostFile(live, kept).write(node.lost.message())
    forget_at_rest(live, kept, list(spool.read(kept, health_pb2.Lost).devices))
    assert (LostFile(live, kept).read(), live.exists(), kept.exists()) == (health_pb2.Lost(), False, False)


def test_a_state_directory_that_was_copied_from_another_machine_makes_no_card_lost(tmp_path, caplog):
    """Defect: the other one's cards were missed. On the same machine, and where nobody knows, they are."""
    kept, there = tmp_path / "lost.pb", tmp_path / "present.pb"
    node = Node()
    node.scan(device("GPU-1", gone_since=1.0, **GPU))
    LostFile(tmp_path / "run/lost.pb", kept, "one").write(node.lost.message())
    PresentFile(there, "boot", "one").write(present([(device("GPU-2", **GPU), "a.b/c")], ()), 0.0)

    def missed(machine):
        read = LostFile(tmp_path / "elsewhere/lost.pb", kept, machine).read().devices
        return [one.device for one in (*read, *PresentFile(there, "next", machine).of_another_boot())]

    assert {machine: missed(machine) for machine in ("one", "two", "")} == {
        "one": ["GPU-1", "GPU-2"],
        "two": [],
        "": ["GPU-1", "GPU-2"],
    }
    assert f"{kept} is of another machine (one, this is two): its devices are not missed here" in caplog.text


def test_a_card_that_a_boot_does_not_find_is_lost(tmp_path):
    """The run directory is empty after a boot, and nobody would know that it had ever been there."""
    first, second = (PresentFile(tmp_path / "present.pb", boot) for boot in ("one", "two"))
    entries = [
        device("GPU-1", **GPU),
        device("GPU-2", card="0000:84:00.0", **GPU | {"pci_address": "0000:84:00.0", "uuid": "GPU-2"}),
        device("GPU-3", card="0000:85:00.0", **GPU | {"pci_address": "0000:85:00.0", "uuid": "GPU-3"}),
        device("GPU-4", card="0000:86:00.0", **GPU | {"pci_address": "0000:86:00.0", "uuid": "GPU-4"}),
        device("MIG-1", **PART),
        device("usb", "generic", "g"),
    ]
    first.write(present([(one, "a.b/c") for one in entries], {entries[2].key}), 0.0)
    assert first.of_another_boot() == []
    node = Node()
    node.lost.await_all(second.of_another_boot())
    replaced = device(
        "GPU-9", card="0000:86:00.0", **GPU | {"pci_address": "0000:86:00.0", "uuid": "GPU-9", "serial": "9"}
    )
    there = entries[0], replaced
    assert (node.scan(*there), node.names, node.lost.is_waiting) == ([], [], True)
    host = Host({one.key: one for one in there}, node.vendors, (), node.drivers.get, 1000.0)
    [news] = node.lost.end_of_waiting(host)
    assert (news.device.device, news.text) == (
        "GPU-2",
        "is missing since the boot: was at 0000:84:00.0, slot 7, serial S1",
    )
    assert (node.names, node.lost.is_waiting) == (["GPU-2"], False)


def test_a_node_that_loses_half_of_a_thousand_devices_is_looked_at_quickly():
    """Each scan, until they are back: the facts of a device are asked once, not once for each that is lost."""
    made = [
        device(
            f"GPU-{number}",
            card=f"{number}",
            **GPU | {"pci_address": f"{number}", "uuid": f"GPU-{number}", "serial": f"S{number}"},
        )
        for number in range(1000)
    ]
    half = [replace(entry, gone_since=1.0) if number % 2 else entry for number, entry in enumerate(made)]
    node = Node()
    began = time.process_time()
    for _ in range(5):
        node.scan(*half)
    assert time.process_time() - began < 5
    assert len(node.names) == 500
