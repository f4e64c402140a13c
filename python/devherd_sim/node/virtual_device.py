"""Devices without hardware behind them, such as /dev/kvm: they live below /sys/devices/virtual."""

from dataclasses import dataclass

from devherd_sim.node.class_device import class_node
from devherd_sim.node.entry import Entry


@dataclass(frozen=True, slots=True)
class VirtualDevice:
    """A character device of a class. `node` is its name below /dev and may have slashes: `net/tun`."""

    node: str
    number: tuple[int, int]
    subsystem: str = "misc"


def entries(device: VirtualDevice) -> list[Entry]:
    """Its directory, its place in its class and its node."""
    name = device.node.rpartition("/")[2]
    path = f"sys/devices/virtual/{device.subsystem}/{name}"
    return class_node(path, device.subsystem, device.node, device.number)
