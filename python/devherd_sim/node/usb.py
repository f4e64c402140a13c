"""USB devices: a controller, and plain devices, serial ports and cameras below it.

Documentation/ABI/testing/sysfs-bus-usb, sysfs-class-tty; the tty below an interface as drivers/usb/serial makes it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from devherd_sim.node import pci
from devherd_sim.node.entry import Entry, File, attributes, link, named_link
from devherd_sim.node.machine import character_device, class_node, uevent

UsbFunction = Literal["serial", "video"]

_CONTROLLER = "sys/devices/pci0000:00/0000:00:14.0"
_ROOT_HUB = f"{_CONTROLLER}/usb1"
_USB_MAJOR = 189


@dataclass(frozen=True, slots=True)
class UsbDevice:
    """A USB device: its ids, its serial number if it has one, and its function."""

    vendor: str
    product: str
    serial: str | None = None
    function: UsbFunction | None = None


def entries(devices: Sequence[UsbDevice]) -> list[Entry]:
    """One controller with these devices in its ports; empty without devices."""
    if not devices:
        return []
    made = [*_controller(), *_device(UsbDevice("1d6b", "0002"), _ROOT_HUB, 1)]
    counts = {"serial": 0, "video": 0}
    for port, device in enumerate(devices, start=1):
        path = f"{_ROOT_HUB}/1-{port}"
        made += _device(device, path, port + 1)
        if device.function is not None:
            made += _interface(f"{path}/1-{port}:1.0", device.function, counts[device.function])
            counts[device.function] += 1
    return made


def _controller() -> list[Entry]:
    return pci.entries(
        pci.Function(path=_CONTROLLER, device=0xA12F, pci_class=0x0C0330, driver="xhci_hcd", numa_node=0)
    )


def _device(device: UsbDevice, path: str, number: int) -> list[Entry]:
    node, character = f"bus/usb/001/{number:03}", (_USB_MAJOR, number - 1)
    facts = {
        "uevent": f"{uevent(node, character)}\nDEVTYPE=usb_device\nDRIVER=usb\n"
        f"PRODUCT={int(device.vendor, 16):x}/{int(device.product, 16):x}/100",
        "idVendor": device.vendor,
        "idProduct": device.product,
        "busnum": "1",
        "devnum": str(number),
        "speed": "480",
    }
    return [
        *attributes(path, facts | ({"serial": device.serial} if device.serial else {})),
        *character_device(path, node, character),
        link(f"{path}/subsystem", "sys/bus/usb"),
        named_link("sys/bus/usb/devices", path),
    ]


def _interface(path: str, function: UsbFunction, number: int) -> list[Entry]:
    made: list[Entry] = [
        File.line(f"{path}/uevent", "DEVTYPE=usb_interface"),
        link(f"{path}/subsystem", "sys/bus/usb"),
        named_link("sys/bus/usb/devices", path),
    ]
    if function == "serial":
        name = f"ttyUSB{number}"
        return made + class_node(f"{path}/{name}/tty/{name}", "tty", name, (188, number))
    name = f"video{number}"
    return made + class_node(f"{path}/video4linux/{name}", "video4linux", name, (81, number))
