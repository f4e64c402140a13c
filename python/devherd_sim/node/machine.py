"""Entries that every node has, and entries of class, platform, virtual and character devices."""

from collections.abc import Iterable
from dataclasses import dataclass

from devherd_sim.node.entry import DeviceNode, Entry, File, attributes, link, named_link

CPUS_PER_NODE = 16


def cpulist(numa_node: int) -> str:
    """The CPUs of a NUMA node, as the kernel lists them; for -1 (no node) the CPUs of the first node."""
    first = max(numa_node, 0) * CPUS_PER_NODE
    return f"{first}-{first + CPUS_PER_NODE - 1}"


def machine_entries(numa_nodes: int, modules: Iterable[str]) -> list[Entry]:
    """The entries of the machine without its devices."""
    count = max(numa_nodes, 1)
    return [
        *attributes("sys/devices/system/node", dict.fromkeys(("online", "possible", "has_cpu"), _range(count))),
        *attributes("sys/devices/system/cpu", {"online": _range(count * CPUS_PER_NODE)}),
        *(entry for node in range(count) for entry in _numa_node(node, count)),
        *(File.line(f"sys/module/{module}/initstate", "live") for module in sorted(modules)),
        File("proc/modules", "".join(f"{module} 16384 0 - Live 0x0\n" for module in sorted(modules)).encode()),
        *attributes("proc/sys/fs/inotify", {"max_user_instances": "128", "max_user_watches": "65536"}),
    ]


def _numa_node(node: int, count: int) -> list[Entry]:
    distances = " ".join("10" if other == node else "21" for other in range(count))
    return attributes(f"sys/devices/system/node/node{node}", {"cpulist": cpulist(node), "distance": distances})


def _range(count: int) -> str:
    return "0" if count == 1 else f"0-{count - 1}"


def character_device(sysfs: str, node: str, number: tuple[int, int]) -> list[Entry]:
    """The entries of a character device in its sysfs directory and in /dev. `node`: its name below /dev."""
    by_number = f"{number[0]}:{number[1]}"
    return [
        File.line(f"{sysfs}/dev", by_number),
        link(f"sys/dev/char/{by_number}", sysfs),
        DeviceNode(f"dev/{node}", "char", *number),
        link(f"dev/char/{by_number}", f"dev/{node}"),
    ]


def uevent(node: str, number: tuple[int, int]) -> str:
    """The lines of a character device's `uevent` file."""
    return f"MAJOR={number[0]}\nMINOR={number[1]}\nDEVNAME={node}"


def class_device(path: str, class_name: str, parent: str | None = None) -> list[Entry]:
    """A directory with a link in /sys/class. `parent`: the device it belongs to."""
    return [
        File(f"{path}/uevent", b""),
        *([link(f"{path}/device", parent)] if parent else []),
        link(f"{path}/subsystem", f"sys/class/{class_name}"),
        named_link(f"sys/class/{class_name}", path),
    ]


def class_node(path: str, class_name: str, node: str, number: tuple[int, int]) -> list[Entry]:
    """A class device with a character device node. `node`: its name below /dev, which may have slashes: `net/tun`."""
    return [
        *class_device(path, class_name),
        *character_device(path, node, number),
        File.line(f"{path}/uevent", uevent(node, number)),
    ]


def platform_node(path: str, driver: str, number: tuple[int, int]) -> list[Entry]:
    """A platform device with a driver and a character device node of its own name."""
    name = path.rpartition("/")[2]
    return [
        *character_device(path, name, number),
        File.line(f"{path}/uevent", f"{uevent(name, number)}\nDRIVER={driver}\nMODALIAS=platform:{driver}"),
        link(f"{path}/driver", f"sys/bus/platform/drivers/{driver}"),
        link(f"{path}/subsystem", "sys/bus/platform"),
        named_link("sys/bus/platform/devices", path),
        named_link(f"sys/bus/platform/drivers/{driver}", path),
    ]


@dataclass(frozen=True, slots=True)
class VirtualDevice:
    """A character device of a class. `node` is its name below /dev and may have slashes: `net/tun`."""

    node: str
    number: tuple[int, int]
    subsystem: str = "misc"


def virtual_entries(device: VirtualDevice) -> list[Entry]:
    """The entries of a virtual device: directory, class link and node."""
    name = device.node.rpartition("/")[2]
    path = f"sys/devices/virtual/{device.subsystem}/{name}"
    return class_node(path, device.subsystem, device.node, device.number)
