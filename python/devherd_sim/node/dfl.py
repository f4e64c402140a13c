"""FPGA cards under the kernel's own driver.

<https://docs.kernel.org/fpga/dfl.html>, Documentation/ABI/testing/sysfs-platform-dfl-fme, -dfl-port and
sysfs-class-fpga-region, sysfs-class-fpga-manager.
"""

from devherd_sim.node.class_device import class_device, platform_node
from devherd_sim.node.entry import Entry, File, attributes
from devherd_sim.node.fpga_card import Engine, Part, Port

MODULES = ("dfl", "dfl_pci", "dfl_afu", "dfl_fme", "dfl_fme_br", "dfl_fme_mgr", "dfl_fme_region", "fpga_region")
_PORT_MAJOR, _FME_MAJOR = 244, 245
_ENGINE_ERRORS = (
    *("fme_errors", "pcie0_errors", "pcie1_errors", "catfatal_errors", "nonfatal_errors"),
    *("first_error", "next_error", "inject_errors"),
)
_THERMAL = {
    "name": "dfl_fme_thermal",
    "temp1_input": "45000",
    "temp1_max": "90000",
    "temp1_crit": "93000",
    "temp1_emergency": "100000",
    "temp1_max_alarm": "0",
    "temp1_crit_alarm": "0",
    "temp1_max_policy": "0",
}
_POWER = {
    "name": "dfl_fme_power",
    "power1_input": "33000000",
    "power1_max": "90000000",
    "power1_crit": "100000000",
    "power1_max_alarm": "0",
    "power1_crit_alarm": "0",
}


def entries(part: Part) -> list[Entry]:
    """One function's region: the base region with engine and ports, or a virtual function's with its port."""
    region = f"{part.function.path}/fpga_region/region{part.number}"
    made = class_device(region, "fpga_region", part.function.path)
    if part.engine is not None:
        made += _engine(part.engine, f"{region}/dfl-fme.{part.engine.number}", part.function.numa_node)
    for port in part.ports:
        made += _port(port, f"{region}/dfl-port.{port.number}")
    return made


def _port(port: Port, path: str) -> list[Entry]:
    state = {
        "afu_id": port.afu_id,
        "id": str(port.index),
        "power_state": "0x0",
        "ap1_event": "0",
        "ap2_event": "0",
        "ltr": "0",
    }
    errors = {"errors": "0x0", "first_error": "0x0", "first_malformed_req": f"0x{0:032x}"}
    return [
        *platform_node(path, "dfl-port", (_PORT_MAJOR, port.number)),
        *attributes(path, state),
        *attributes(f"{path}/errors", errors),
    ]


def _engine(engine: Engine, path: str, numa_node: int) -> list[Entry]:
    facts = {
        "bitstream_id": "0x23000110010309",
        "bitstream_metadata": "0x1812032300",
        "ports_num": str(len(engine.regions)),
        "cache_size": "0",
        "fabric_version": "0",
        "socket_id": str(max(numa_node, 0)),
    }
    return [
        *platform_node(path, "dfl-fme", (_FME_MAJOR, engine.number)),
        *attributes(path, facts),
        *attributes(f"{path}/errors", dict.fromkeys(_ENGINE_ERRORS, "0x0")),
        *_hwmon(path, engine.hwmons[0], _THERMAL),
        *_hwmon(path, engine.hwmons[1], _POWER),
        *_manager(engine, path),
        *(entry for region in engine.regions for entry in _programmable_region(engine, path, region)),
    ]


def _manager(engine: Engine, path: str) -> list[Entry]:
    device = f"{path}/dfl-fme-mgr.{engine.number}"
    directory = f"{device}/fpga_manager/fpga{engine.number}"
    return [
        *class_device(directory, "fpga_manager", device),
        *attributes(directory, {"name": "DFL FME FPGA Manager", "state": "operating"}),
    ]


def _programmable_region(engine: Engine, path: str, region: int) -> list[Entry]:
    """Each shows the interface id of the engine's one manager."""
    device = f"{path}/dfl-fme-region.{region}"
    directory = f"{device}/fpga_region/region{region}"
    return [
        *class_device(directory, "fpga_region", device),
        File.line(f"{directory}/compat_id", engine.interface_id),
    ]


def _hwmon(path: str, number: int, values: dict[str, str]) -> list[Entry]:
    directory = f"{path}/hwmon/hwmon{number}"
    return [*class_device(directory, "hwmon", path), *attributes(directory, values)]
