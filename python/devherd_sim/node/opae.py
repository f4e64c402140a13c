"""FPGA cards under the driver out of tree, as the OPAE SDK reads them.

<https://github.com/OPAE/opae-sdk>. Its thermal and power groups are its own; it makes no hwmon devices.
"""

from devherd_sim.node.class_device import class_device, platform_node
from devherd_sim.node.entry import Entry, attributes
from devherd_sim.node.fpga_card import Engine, Part, Port

MODULES = ("fpga_mgr_mod", "intel_fpga_afu", "intel_fpga_fme", "intel_fpga_pci")
_PORT_MAJOR, _FME_MAJOR = 242, 243
_ENGINE_ERRORS = ["pcie0_errors", "pcie1_errors", "catfatal_errors", "nonfatal_errors", "inject_error"]
_THERMAL = {"temperature": "45", "threshold1": "90", "threshold2": "93", "threshold_trip": "100"}
_THRESHOLDS = {"threshold1_reached": "0", "threshold2_reached": "0"}


def entries(part: Part) -> list[Entry]:
    """One function's card directory: with engine and ports, or a virtual function's with its port."""
    card = f"{part.function.path}/fpga/intel-fpga-dev.{part.number}"
    made = class_device(card, "fpga", part.function.path)
    if part.engine is not None:
        made += _engine(part, part.engine, f"{card}/intel-fpga-fme.{part.engine.number}")
    for port in part.ports:
        made += _port(port, f"{card}/intel-fpga-port.{port.number}")
    return made


def _port(port: Port, path: str) -> list[Entry]:
    state = {
        "afu_id": port.afu_id,
        "id": str(port.index),
        "power_state": "0x0",
        "ap1_event": "0x0",
        "ap2_event": "0x0",
        "ltr": "0x0",
    }
    errors = {"errors": "0x0", "first_error": "0x0", "first_malformed_req": f"0x{0:032x}", "revision": "0"}
    return [
        *platform_node(path, "intel-fpga-port", (_PORT_MAJOR, port.number)),
        *attributes(path, state),
        *attributes(f"{path}/errors", errors),
    ]


def _engine(part: Part, engine: Engine, path: str) -> list[Entry]:
    facts = {
        "bitstream_id": "0x63000023b637277",
        "bitstream_metadata": "0x1710241",
        "ports_num": str(len(part.ports) or len(part.function.virtual)),
        "socket_id": str(max(part.function.numa_node, 0)),
    }
    return [
        *platform_node(path, "intel-fpga-fme", (_FME_MAJOR, engine.number)),
        *attributes(path, facts),
        *attributes(f"{path}/pr", {"interface_id": engine.interface_id, "revision": "0"}),
        *attributes(f"{path}/errors", dict.fromkeys(_ENGINE_ERRORS, "0x0")),
        *attributes(f"{path}/errors/fme-errors", dict.fromkeys(("errors", "first_error", "next_error"), "0x0")),
        *attributes(f"{path}/thermal_mgmt", _THERMAL | _THRESHOLDS),
        *attributes(f"{path}/power_mgmt", {"consumed": "33", "threshold1": "90", "threshold2": "100"}),
    ]
