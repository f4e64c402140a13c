"""Where a device is and which part of its card: what stays when the kernel or udev gives it another name. Pure."""

from collections.abc import Mapping

from devherd.inventory import CLASSES, Entry, class_key
from devherd.proto import health_pb2

GENERIC = "generic"
_PARTS = ("gpu_instance", "compute_instance", "partition", "port", "fme", "mdev_uuid", "vf_index", "subfunction")
"""Facts that say which part of its card a device is."""
_DIVISIONS = ("gpu_instance", "compute_instance", "partition", "mdev_uuid", "subfunction")
"""Facts of parts that an operator makes and removes."""
_WHOLES = ("physfn", "physical_function")
"""Facts of a virtual function: the PCI address of its physical function."""
_PORTS = {"usb_interface": "USB interface", "usb_port": "USB port", "pci_function": "PCI function"}
"""Facts of a generic device, or of a class, that tell where it is plugged in, in words; the first is the most exact."""
_COUNTED_BELOW = "/sys/class/"
"""Where a class finds names that the kernel counts. On a bus a name is a place."""
_NO_PARENT = "/sys/devices/virtual/"


def kind_of(device: health_pb2.LostDevice) -> str:
    """`Entry.configured_by` of a lost device: its vendor, or its class."""
    return class_key(device.model) if device.vendor == CLASSES else device.vendor


def place_of(entry: Entry) -> tuple[str, str] | None:
    """What tells where a device is: group and port of a generic one; vendor or class of others, with port or address.

    None for what is not tied to a place: pools, and the divisions of a card, which are made anew.
    """
    if port := port_of(entry):
        return entry.device.card if entry.vendor == GENERIC else entry.configured_by, port
    facts, address = entry.device.attributes, entry.pci_address
    is_division = entry.vendor != CLASSES and any(name in facts for name in _DIVISIONS)
    if address is None or "," in address or is_division:
        return None
    return entry.configured_by, f"{address} {part_of(entry, facts)}"


def port_of(entry: Entry) -> str:
    """The port of a generic device or of a class, in words; empty for a device without one.

    Of a class also the directory above a device that is neither on PCI nor on USB.
    """
    if entry.vendor not in {GENERIC, CLASSES}:
        return ""
    facts = entry.device.attributes
    if entry.vendor == CLASSES:
        of_usb = {name: facts[name] for name in _PORTS if name in facts and name.startswith("usb_")}
        if "," in facts.get("name", ""):  # of several entries, which may be of several interfaces
            of_usb.pop("usb_interface", None)
        if not of_usb and "pci_address" not in facts:
            above, _, is_counted = _way_to(entry)
            return above if is_counted and not f"{above}/".startswith(_NO_PARENT) else ""
        facts = of_usb
    ports = ((word, facts[name].split(",")) for name, word in _PORTS.items() if name in facts)
    return next((f"{word} {', '.join(sorted(values))}" for word, values in ports), "")


def _way_to(entry: Entry) -> tuple[str, str, bool]:
    """The directory of a class device: the one above it, its name, and whether the kernel counts such names."""
    sources = entry.device.sources
    above, _, name = sources.get("name", "").rpartition("/")
    return above, name, sources.get("class", "").startswith(_COUNTED_BELOW)


def part_of(entry: Entry, facts: Mapping[str, str]) -> str:
    """Which part of its card a device with these facts is, in words; empty for a whole card."""
    if entry.vendor == CLASSES:  # whose facts have any names: the way from the function to the device says it
        above, name, is_counted = _way_to(entry)
        _, _, below = (above if is_counted else f"{above}/{name}").partition(f"/{entry.pci_address}/")
        # A function has a folder for each kind of its class devices.
        named = "" if is_counted and "/" not in below else below
    else:
        named = ", ".join(f"{name} {facts[name]}" for name in _PARTS if name in facts)
    return named or ("virtual function" if whole_of(entry, facts) else "")


def whole_of(entry: Entry, facts: Mapping[str, str]) -> str:
    """The PCI address of the card that the device is a part of; a mediated device has its GPU's address as its own."""
    if entry.vendor == CLASSES:
        return next((one.physical.rpartition("/")[2] for one in entry.device.functions if one.physical), "")
    if "mdev_uuid" in facts:
        return facts.get("pci_address", "")
    return next((facts[name] for name in _WHOLES if name in facts), "")
