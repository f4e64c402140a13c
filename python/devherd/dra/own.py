"""Devices of which no other DRA driver is known: devherd's own drivers, a fixed schema a type.

What a device does not have is an empty string or -1 where that is an answer (no serial number, no virtual function);
attributes that are not needed follow the rule of `pools`. `resourceName` is the name by the configuration's rules.
"""

import hashlib
import re

from devherd.dra.tables import (
    BUS_ID,
    NODE,
    PCI_BUS_ID,
    ROOT,
    Attribute,
    DeviceType,
    Publishable,
    constant,
    flag,
    number,
    text,
    version,
)
from devherd.dra.values import LONGEST_LABEL, label

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


_NUMBERED = re.compile(r"(.*)-(\d+)", re.ASCII)
_ADDRESS = re.compile(r"([0-9a-f]{4,})-([0-9a-f]{2})-([01][0-9a-f])-([0-7])")


def _named(subject: Publishable, text: str, known_as: str | None) -> str:
    """The text as a name: its label, where `known_as`, what the label stands for, is the text; else with a suffix.

    So the name of a device follows from itself, whatever stands beside it, and two texts never have one name.
    """
    name = label(text)
    if known_as == text and 0 < len(name) <= LONGEST_LABEL:
        return name
    digest = hashlib.sha256("\n".join(subject.entry.key).encode()).hexdigest()[:8]
    return f"{name[: LONGEST_LABEL - 9].strip('-') or 'device'}-{digest}"


def _numbered(text: str, mark: str) -> str:
    """What the label of a numbered text stands for: `mlx5_0` for `mlx5-0`."""
    return _NUMBERED.sub(rf"\1{mark}\2", label(text))


def _of_a_port(subject: Publishable) -> str:
    """`dfl-port-0` of `dfl-port.0`; the management engine's alike."""
    name = subject.entry.device.id
    return _named(subject, name, _numbered(name, "."))


def _of_an_address(subject: Publishable) -> str:
    """`0000-3b-00-1` of `0000:3b:00.1`."""
    name = subject.entry.device.id
    return _named(subject, name, _ADDRESS.sub(r"\1:\2:\3.\4", label(name)))


def _of_an_hca(subject: Publishable) -> str | None:
    """`mlx5-0` of `mlx5_0`."""
    name = subject.text("ibdev")
    return None if not name else _named(subject, name, _numbered(name, "_"))


def _of_an_id(subject: Publishable) -> str:
    """Always with the suffix: another resource name, or another class, may have the id, too."""
    return _named(subject, subject.entry.device.id, None)


PORT = DeviceType(
    INTEL_FPGA,
    "port",
    _of_a_port,
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
)

REGION = DeviceType(
    INTEL_FPGA,
    "region",
    _of_a_port,
    (
        constant("type", "region"),
        _RESOURCE_NAME,
        text("interfaceID", "interface_id"),
        text("bitstreamID", "bitstream_id", is_needed=False),
        text("driver", "driver"),
        *_PCI,
    ),
    told_by=(_BY_NAME, ("interfaceID",)),
)

_ALVEO = (text("deviceType", "device_type", otherwise=""), text("serial", "serial", otherwise=""))

CARD = DeviceType(
    AMD_FPGA,
    "fpga",
    _of_an_address,
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
)

TRANSCODER = DeviceType(
    AMD_FPGA,
    "transcoder",
    _of_an_address,
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
)


HCA = DeviceType(
    RDMA,
    "rdma",
    _of_an_hca,
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
        flag("virtual", "virtual"),
        # A physical function is its own, so that one constraint finds the functions of a card.
        text("physicalFunction", "pf_address"),
        number("vfIndex", "vf_index", otherwise=-1),
        *_PCI,
    ),
    label_of=("ibdev",),
    told_by=(_BY_NAME, ("hcaType", "virtual")),
)


def _of_a_generic_device(subject: Publishable) -> str:
    """`kvm-59cda876`: the last part of the name in the configuration; its id is a hash of its paths."""
    return _named(subject, subject.entry.resource_name.rpartition("/")[2], None)


NODES = DeviceType(
    GENERIC,
    "generic",
    _of_a_generic_device,
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
)

MOCK = DeviceType(
    SIMULATED,
    "simulated",
    _of_an_id,
    (constant("type", "simulated"), _RESOURCE_NAME, NODE),
    told_by=(_BY_NAME,),
)


def intel_fpga(subject: Publishable) -> DeviceType:
    """The type, by what a port always has: its accelerator's id cannot be read while the port is disabled."""
    return REGION if subject.facts.keys().isdisjoint(("port", "port_id")) else PORT


def xilinx_fpga(subject: Publishable) -> DeviceType:
    """The type. A class describes MA35D cards alone; the others have no shell while they are flashed or reset."""
    return TRANSCODER if "class" in subject.facts else CARD


def rdma(_: Publishable) -> DeviceType:
    """The type."""
    return HCA


def generic(_: Publishable) -> DeviceType:
    """The type."""
    return NODES


def simulated(_: Publishable) -> DeviceType:
    """The type."""
    return MOCK


OF_EVERY_CLASS = frozenset(
    {
        *("class", "type", "numa_node", "pcie_root", "slot", "pci_address", "pci_class", "pci_driver"),
        *("vendor_id", "device_id", "subsystem_vendor_id", "subsystem_device_id"),
    }
)
"""Names that have an attribute of their own here, or none; `type` is the class. No class has such a fact of its own."""


def classes(subject: Publishable) -> DeviceType:
    """The type of a device class: its name, with the facts that its file declares, under their names."""
    name = subject.text("class") or ""
    facts = sorted(subject.facts.keys() - OF_EVERY_CLASS)
    return DeviceType(
        CLASSES,
        name,
        _of_an_id,
        (
            constant("type", name),
            _RESOURCE_NAME,
            *(_of_a_class(fact, subject.facts[fact].kind) for fact in facts),
            *_OF_THE_FUNCTION,
        ),
        told_by=(_BY_NAME,),
    )


def _of_a_class(fact: str, kind: str) -> Attribute:
    if kind == "number":
        return number(fact, fact, is_needed=False)
    if kind == "version":
        return version(fact, fact, is_needed=False)
    if kind == "boolean":
        return Attribute(fact, "bool", lambda subject: _truth(subject, fact), (fact,), is_needed=False)
    return text(fact, fact, is_needed=False)


def _truth(subject: Publishable, fact: str) -> bool | None:
    known = subject.text(fact)
    return None if known is None else known == "true"
