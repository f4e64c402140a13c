"""Devices of which no other DRA driver is known: devherd's own drivers, a fixed schema a type.

What a device does not have is an empty string or -1 where that is an answer (no serial number, no virtual function);
attributes that are not needed follow the rule of `pools`. `resourceName` is the name by the configuration's rules.
"""

from devherd.dra.tables import (
    BUS_ID,
    NODE,
    PCI_BUS_ID,
    ROOT,
    Attribute,
    DeviceType,
    Publishable,
    constant,
    number,
    text,
)
from devherd.dra.values import label

INTEL_FPGA = "fpga.intel.com"
AMD_FPGA = "fpga.amd.com"
RDMA = "rdma.devherd.io"
GENERIC = "generic.devherd.io"
SIMULATED = "simulated.devherd.io"
CLASSES = "classes.devherd.io"

_RESOURCE_NAME = Attribute("resourceName", "string", lambda subject: subject.resource_name)
_BY_NAME = ("resourceName",)
_OF_THE_FUNCTION = (
    text("vendorID", "vendor_id", is_needed=False),
    text("deviceID", "device_id", is_needed=False),
    text(PCI_BUS_ID, "pci_address", is_needed=False),
    ROOT,
    NODE,
)
"""Of devices that may have no PCI function."""
_PCI = (text("vendorID", "vendor_id"), text("deviceID", "device_id"), BUS_ID, ROOT, NODE)


def _by_id(subject: Publishable) -> str:
    return label(subject.entry.device.id)


PORT = DeviceType(
    INTEL_FPGA,
    "port",
    _by_id,
    (
        constant("type", "port"),
        _RESOURCE_NAME,
        text("afuID", "afu_id"),
        text("interfaceID", "interface_id"),
        text("bitstreamID", "bitstream_id", is_needed=False),
        text("driver", "driver"),
        text("fme", "fme", otherwise=""),
        number("port", "port_id", otherwise=-1),
        *_PCI,
    ),
    told_by=(_BY_NAME, ("afuID", "interfaceID")),
    is_own=True,
)

REGION = DeviceType(
    INTEL_FPGA,
    "region",
    _by_id,
    (
        constant("type", "region"),
        _RESOURCE_NAME,
        text("interfaceID", "interface_id"),
        text("bitstreamID", "bitstream_id", is_needed=False),
        text("driver", "driver"),
        *_PCI,
    ),
    told_by=(_BY_NAME, ("interfaceID",)),
    is_own=True,
)

_ALVEO = (text("deviceType", "device_type", otherwise=""), text("serial", "serial", otherwise=""))

CARD = DeviceType(
    AMD_FPGA,
    "fpga",
    _by_id,
    (
        constant("type", "fpga"),
        _RESOURCE_NAME,
        text("shell", "vbnv"),
        text("timestamp", "timestamp"),
        text("logicUUID", "logic_uuids", is_needed=False),
        text("driver", "driver"),
        *_ALVEO,
        *_PCI,
    ),
    told_by=(_BY_NAME, ("shell", "timestamp")),
    is_own=True,
)

TRANSCODER = DeviceType(
    AMD_FPGA,
    "transcoder",
    _by_id,
    (
        constant("type", "transcoder"),
        _RESOURCE_NAME,
        text("productName", "product_name", otherwise=""),
        *_ALVEO,
        text(PCI_BUS_ID, "pci_address", is_needed=False),
        ROOT,
        NODE,
    ),
    told_by=(_BY_NAME, ("deviceType",)),
    is_own=True,
)


def _physical(subject: Publishable) -> str | None:
    return subject.text("physfn") or subject.text("pci_address")


HCA = DeviceType(
    RDMA,
    "rdma",
    lambda subject: label(subject.text("ibdev") or "") or None,
    (
        constant("type", "rdma"),
        _RESOURCE_NAME,
        text("rdmaDevice", "ibdev"),
        text("ifName", "netdev", otherwise=""),
        text("linkLayer", "link_layer", otherwise=""),
        text("portState", "port_state", otherwise=""),
        text("nodeGUID", "node_guid", otherwise=""),
        text("hcaType", "hca_type", otherwise=""),
        text("boardID", "board_id", otherwise=""),
        text("firmware", "fw_ver", otherwise=""),
        text("driver", "driver", otherwise=""),
        text("subfunction", "subfunction", otherwise=""),
        Attribute("virtual", "bool", lambda subject: "physfn" in subject.facts, ("physfn",)),
        # A physical function is its own, so that one constraint finds the functions of a card.
        Attribute("physicalFunction", "string", _physical, ("physfn", "pci_address")),
        number("vfIndex", "vf_index", otherwise=-1),
        *_PCI,
    ),
    label_of=("ibdev",),
    told_by=(_BY_NAME, ("hcaType", "virtual")),
    is_own=True,
)


def _generic_label(subject: Publishable) -> str:
    """`kvm-59cda87680f1`: the last part of the name in the configuration, and the beginning of the id."""
    name = label(subject.entry.resource_name.rpartition("/")[2])[:40]
    return label(f"{name}-{subject.entry.device.id[:12]}")


NODES = DeviceType(
    GENERIC,
    "generic",
    _generic_label,
    (
        constant("type", "generic"),
        _RESOURCE_NAME,
        number("group", "group", otherwise=-1),
        text("path", "path", is_needed=False),
        text("usbID", "usb_id", otherwise=""),
        text("usbPort", "usb_port", otherwise=""),
        text("serial", "serial", otherwise=""),
        text("pciFunction", "pci_function", otherwise=""),
        NODE,
    ),
    told_by=(_BY_NAME,),
    is_own=True,
)

MOCK = DeviceType(
    SIMULATED,
    "simulated",
    _by_id,
    (constant("type", "simulated"), _RESOURCE_NAME, NODE),
    told_by=(_BY_NAME,),
    is_own=True,
)


def intel_fpga(subject: Publishable) -> DeviceType | str:
    """The type, by what a port always has: its accelerator's id cannot be read while the port is disabled."""
    return REGION if subject.facts.keys().isdisjoint(("port", "port_id")) else PORT


def xilinx_fpga(subject: Publishable) -> DeviceType | str:
    """The type. A class describes MA35D cards alone; the others have no shell while they are flashed or reset."""
    return TRANSCODER if "class" in subject.facts else CARD


def rdma(subject: Publishable) -> DeviceType | str:
    """The type, or why the device has none."""
    if "," in (subject.text("pci_address") or "") or "device_id" not in subject.facts:
        return "it is a pool of the device plugin's: by DRA each of its members is a device"
    return HCA


def generic(_: Publishable) -> DeviceType | str:
    """The type."""
    return NODES


def simulated(_: Publishable) -> DeviceType | str:
    """The type."""
    return MOCK


_OF_EVERY_CLASS = frozenset(
    {
        *("class", "numa_node", "pcie_root", "slot", "pci_address", "pci_class", "pci_driver"),
        *("vendor_id", "device_id", "subsystem_vendor_id", "subsystem_device_id"),
    }
)
"""Facts that have an attribute of their own here, or none."""


def classes(subject: Publishable) -> DeviceType | str:
    """The type of a device class: its name, with the facts that its file declares, under their names."""
    name = subject.text("class") or ""
    facts = sorted(subject.facts.keys() - _OF_EVERY_CLASS)
    return DeviceType(
        CLASSES,
        name,
        _by_id,
        (
            constant("type", name),
            _RESOURCE_NAME,
            *(_of_a_class(fact, subject.facts[fact].kind) for fact in facts),
            *_OF_THE_FUNCTION,
        ),
        told_by=(_BY_NAME,),
        is_own=True,
    )


def _of_a_class(fact: str, kind: str) -> Attribute:
    if kind == "number":
        return number(fact, fact, is_needed=False)
    if kind == "version":
        return version(fact, fact, is_needed=False)
    return flag(fact, fact) if kind == "boolean" else text(fact, fact, is_needed=False)
