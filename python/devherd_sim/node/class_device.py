"""Devices by the way they hang in sysfs: members of a class, and platform devices with a node.

<https://docs.kernel.org/driver-api/driver-model/overview.html>
"""

from devherd_sim.node.character_device import character_device, uevent
from devherd_sim.node.entry import Entry, File
from devherd_sim.node.link import link, named_link


def class_device(path: str, class_name: str, parent: str | None = None) -> list[Entry]:
    """A directory that /sys/class leads to. `parent` is the device it belongs to."""
    return [
        File(f"{path}/uevent", b""),
        *([link(f"{path}/device", parent)] if parent else []),
        link(f"{path}/subsystem", f"sys/class/{class_name}"),
        named_link(f"sys/class/{class_name}", path),
    ]


def class_node(path: str, class_name: str, node: str, number: tuple[int, int]) -> list[Entry]:
    """The same with a character device node. `node` is its name below /dev and may have slashes: `net/tun`."""
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
