"""The device that a node belongs to, by the node's number."""

import os
import stat
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from devherd.inventory import DeviceKey
from devherd.proto import devices_pb2

Number = tuple[int, int]
"""Major and minor number of a device node."""

_OF_DRIVERS = frozenset(
    {
        "/dev/kfd",
        "/dev/nvidiactl",
        "/dev/nvidia-modeset",
        "/dev/nvidia-uvm",
        "/dev/nvidia-uvm-tools",
        "/dev/vfio/vfio",
        "/dev/infiniband/rdma_cm",
    }
)
"""Nodes of a driver, which whoever uses any of its devices has open: a device may be the only one that has it."""


def own_nodes(inventory: devices_pb2.Inventory, host_root: Path) -> dict[Number, tuple[DeviceKey, str]]:
    """The device of each node that belongs to one device alone, and the node's path, by number.

    MIG devices of one GPU have its node together: who has it open says nothing of any of them.
    """
    found: dict[Number, dict[DeviceKey, str]] = defaultdict(dict)
    for known in inventory.devices:
        device = known.device
        for path in device.paths:
            if path.is_node and not any(path.path.endswith(name) for name in _OF_DRIVERS):
                for number in _numbers(path, host_root):
                    found[number][device.vendor, device.card, device.id] = path.path
    return {number: next(iter(devices.items())) for number, devices in found.items() if len(devices) == 1}


def _numbers(path: devices_pb2.HostPath, host_root: Path) -> Iterator[Number]:
    if path.HasField("number"):
        yield path.number.major, path.number.minor
        return
    try:
        status = (host_root / path.path.lstrip("/")).stat()
    except OSError:
        return
    if stat.S_ISCHR(status.st_mode) or stat.S_ISBLK(status.st_mode):
        yield os.major(status.st_rdev), os.minor(status.st_rdev)
