"""Hosts with devices of the shipped classes, as the kernel lays them out.

Directories below their PCI functions, links of classes, buses and drivers, `uevent` and `dev`.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

from devherd_sim.node.tree import write_tree

NPU, GAUDI = "pci0000:00/0000:00:0b.0", "pci0000:17/0000:17:01.0/0000:18:00.0"
DSA, IAA = "pci0000:6a/0000:6a:01.0", "pci0000:6a/0000:6a:02.0"
DLB, DLB_PF, DLB_VF = (f"pci0000:6d/0000:{address}" for address in ("6d:00.0", "72:00.0", "72:00.1"))
QAT, QAT_VF, QAT_OTHER = (f"pci0000:70/0000:{address}" for address in ("70:00.0", "70:00.1", "70:00.2"))
CARD, MEDIA = "pci0000:40/0000:40:01.0/0000:41:00.0", "pci0000:c0/0000:c0:01.0/0000:c1:00.0"


def address_of(place: str) -> str:
    """The address of a function."""
    return place.rpartition("/")[2]


def up(path: str, to: str) -> str:
    """A link at `path` to a directory below sys/, as the kernel writes it."""
    return "../" * (path.count("/") - 1) + to


def function(place: str, vendor: str, device: str, driver: str, numa: int = 0, **files: str) -> Iterator[str]:
    """A PCI function under a driver, with its links on the bus."""
    address, at = address_of(place), f"sys/devices/{place}"
    near = {"numa_node": str(numa), "local_cpulist": "0-3"}
    known = {"vendor": vendor, "device": device, "class": "0x088000", **near, **files}
    yield from (f"{at}/{name.replace('__', '/')} = {text}" for name, text in known.items())
    yield f"{at}/uevent ="
    yield from (f"    DRIVER={driver}", f"    PCI_SLOT_NAME={address}")
    for link, to in (
        (f"{at}/driver", f"bus/pci/drivers/{driver}"),
        (f"{at}/subsystem", "bus/pci"),
        (f"sys/bus/pci/devices/{address}", f"devices/{place}"),
        (f"sys/bus/pci/drivers/{driver}/{address}", f"devices/{place}"),
    ):
        yield f"{link} -> {up(link, to)}"


def entry(place: str, listed: str, number: str = "", node: str = "", **files: str) -> Iterator[str]:
    """An entry of a class or a bus: `listed` is where its link is below sys/. With a node it has a number."""
    name, at = place.rpartition("/")[2], f"sys/devices/{place}"
    major, _, minor = number.partition(":")
    yield f"{at}/uevent ="
    if node:
        yield from (f"    MAJOR={major}", f"    MINOR={minor}", f"    DEVNAME={node}")
        yield f"{at}/dev = {number}"
        yield f"dev/{node} char {number}"
        yield f"dev/char/{number} -> ../{node}"
        yield f"sys/dev/char/{number} -> ../../devices/{place}"
    else:
        yield "    MODALIAS=x"
    yield from (f"{at}/{key} = {text}" for key, text in files.items())
    link = f"sys/{listed}/{name}"
    yield f"{link} -> {up(link, f'devices/{place}')}"


def accelerators() -> Iterator[str]:
    """An NPU, and a Gaudi beside it, of which the same class has entries."""
    yield from function(NPU, "0x8086", "0x7d1d", "intel_vpu")
    yield from entry(f"{NPU}/accel/accel0", "class/accel", "261:0", "accel/accel0")
    yield f"sys/devices/{NPU}/accel/accel0/device -> ../../../0000:00:0b.0"
    yield from function(GAUDI, "0x1da3", "0x1020", "habanalabs", 1)
    yield from entry(f"{GAUDI}/accel/accel1", "class/accel", "261:1", "accel/accel1")
    yield from entry(f"{GAUDI}/accel/accel_controlD1", "class/accel", "261:2", "accel/accel_controlD1")


def queue(device: str, number: int, name: str, **files: str) -> Iterator[str]:
    """A work queue of a DSA or an IAA; one of type user that is enabled has a character device below."""
    place, listed = f"{device}/{name}", "bus/dsa/devices"
    yield from entry(place, listed, **files)
    if files["type"] == "user" and files["state"] == "enabled":
        prefix = device.rpartition("/")[2].rstrip("0123456789")
        yield from entry(
            f"{place}/{prefix}!{name}", listed, f"{508 if prefix == 'dsa' else 507}:{number}", f"{prefix}/{name}"
        )


def data_streaming() -> Iterator[str]:
    """A DSA with queues of each kind, of which one is open, and an IAA: drivers/dma/idxd of Linux."""
    yield from function(DSA, "0x8086", "0x0b25", "idxd", 1)
    yield from entry(f"{DSA}/dsa0", "bus/dsa/devices", state="enabled")
    for other in ("group0.0", "engine0.0"):
        yield from entry(f"{DSA}/dsa0/{other}", "bus/dsa/devices")
    kinds = [("shared", "user", "enabled"), ("dedicated", "user", "enabled"), ("dedicated", "kernel", "enabled")]
    for number, (mode, kind, state) in enumerate([*kinds, ("shared", "user", "disabled")]):
        yield from queue(f"{DSA}/dsa0", number, f"wq0.{number}", mode=mode, type=kind, state=state)
    yield from entry(f"{DSA}/dsa0/wq0.0/dsa!wq0.0/file0", "bus/dsa/devices")
    yield from function(IAA, "0x8086", "0x0cfe", "idxd", 1)
    yield from entry(f"{IAA}/iax1", "bus/dsa/devices", state="enabled")
    yield from queue(f"{IAA}/iax1", 0, "wq1.0", mode="dedicated", type="user", state="enabled")


def load_balancers() -> Iterator[str]:
    """A DLB by itself, and one with a virtual function."""
    cards = [(DLB, "0x2710", {"sriov_numvfs": "0"}), (DLB_PF, "0x2710", {"sriov_numvfs": "1"}), (DLB_VF, "0x2711", {})]
    for number, (place, device, files) in enumerate(cards):
        yield from function(place, "0x8086", device, "dlb2", **files)
        yield from entry(f"{place}/dlb2/dlb{number}", "class/dlb2", f"240:{number}", f"dlb{number}")
        yield f"sys/devices/{place}/dlb2/dlb{number}/device -> ../../../{address_of(place)}"
    yield f"sys/devices/{DLB_VF}/physfn -> ../{address_of(DLB_PF)}"


def misc(names: Mapping[str, str]) -> Iterator[str]:
    """Devices of the class misc, by their nodes."""
    for minor, (name, node) in enumerate(names.items()):
        yield from entry(f"virtual/misc/{name}", "class/misc", f"10:{minor + 100}", node)


def crypto(services: str = "sym;asym") -> Iterator[str]:
    """A QAT of which one virtual function is under vfio-pci and one under the kernel's driver."""
    yield from function(QAT, "0x8086", "0x4940", "4xxx", 1, qat__state="up", qat__cfg_services=services)
    yield "sys/kernel/debug/qat_4xxx_0000:70:00.0/heartbeat/status = 0"
    for number, (place, driver) in enumerate([(QAT_VF, "vfio-pci"), (QAT_OTHER, "4xxxvf")]):
        yield from function(place, "0x8086", "0x4941", driver, 1)
        yield f"sys/devices/{place}/physfn -> ../{address_of(QAT)}"
        yield f"sys/devices/{place}/iommu_group -> ../../../kernel/iommu_groups/{201 + number}"
        yield f"sys/kernel/iommu_groups/{201 + number}/devices/{address_of(place)} -> ../../../../devices/{place}"
        yield f"sys/devices/{QAT}/virtfn{number} -> ../{address_of(place)}"
        yield from entry(f"virtual/vfio/{201 + number}", "class/vfio", f"242:{number}", f"vfio/{201 + number}")
    yield from entry("virtual/misc/vfio", "class/misc", "10:196", "vfio/vfio")


def cards() -> Iterator[str]:
    """A Tenstorrent card."""
    yield from function(CARD, "0x1e52", "0x401e", "tenstorrent", 1)
    place = f"{CARD}/tenstorrent/tenstorrent!0"
    yield from entry(place, "class/tenstorrent", "235:0", "tenstorrent/0", tt_card_type="n150", tt_heartbeat="5")


def media() -> Iterator[str]:
    """An MA35D card, whose misc devices have no PCI function above them."""
    yield from function(MEDIA, "0x10ee", "0x5070", "ama_transcoder", 1)
    for minor, name in enumerate(["ama_transcoder0", "ama_transcoder0_control"]):
        files = {"bus_id": address_of(MEDIA)}
        yield from entry(f"virtual/misc/{name}", "class/misc", f"10:{minor + 50}", name, **files)
    yield "sys/devices/virtual/misc/ama_transcoder0/device_info ="
    yield from ("    Product Name = Alveo MA35D", "    Product serial number = XFL1ABC")


def written(root: Path, *trees: Iterator[str]) -> Path:
    """The root of a host with these devices."""
    write_tree("\n".join(line for tree in trees for line in tree), root)
    return root
