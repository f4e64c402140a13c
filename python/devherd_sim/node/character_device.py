"""Character devices: the attribute `dev`, the links by number, and the node itself.

<https://docs.kernel.org/admin-guide/sysfs-rules.html>; /dev/char is udev's work.
"""

from devherd_sim.node.entry import DeviceNode, Entry, File
from devherd_sim.node.link import link


def character_device(sysfs: str, node: str, number: tuple[int, int]) -> list[Entry]:
    """What a character device adds to its sysfs directory and to /dev. `node` is its name below /dev."""
    by_number = f"{number[0]}:{number[1]}"
    return [
        File.line(f"{sysfs}/dev", by_number),
        link(f"sys/dev/char/{by_number}", sysfs),
        DeviceNode(f"dev/{node}", "char", *number),
        link(f"dev/char/{by_number}", f"dev/{node}"),
    ]


def uevent(node: str, number: tuple[int, int]) -> str:
    """The lines that such a device has in its `uevent`."""
    return f"MAJOR={number[0]}\nMINOR={number[1]}\nDEVNAME={node}"
