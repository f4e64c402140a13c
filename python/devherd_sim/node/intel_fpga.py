"""Intel FPGA cards: their plan, and their entries under the kernel's driver (DFL) and the out-of-tree one (OPAE)."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from devherd_sim.node.entry import Entry, File, attributes
from devherd_sim.node.machine import class_device, platform_node
from devherd_sim.node.pci import Function, virtual_function

DriverName = Literal["dfl", "opae"]

INTERFACE_ID = "69528db6eb31577a8c3668f9faa081f6"
AFU_IDS = ("d8424dc4a4a3c413f89e433683f9040b", "f7df405cbd7acf7222f144b0b93acd18")
# Physical and virtual function: an N3000 under the kernel's driver, an Arria 10 under the out-of-tree one.
_PCI = {"dfl": ("dfl-pci", 0x0B30, 0x0B31), "opae": ("intel-fpga-pci", 0x09C4, 0x09C5)}


@dataclass(frozen=True, slots=True)
class Port:
    """A slot for one accelerator function. `index` counts within the card, `number` on the host."""

    number: int
    index: int
    afu_id: str


@dataclass(frozen=True, slots=True)
class Engine:
    """An FPGA management engine (FME); under DFL it has as many PR regions as the card has ports."""

    number: int
    interface_id: str
    regions: tuple[int, ...]
    hwmons: tuple[int, int]


@dataclass(frozen=True, slots=True)
class FpgaPart:
    """The engine and ports of one PCI function. `number`: the number of its directory in the class."""

    function: Function
    number: int
    engine: Engine | None
    ports: tuple[Port, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CardPlan:
    """The plan of a card."""

    driver: DriverName
    path: str
    numa_node: int = -1
    ports: int = 1
    virtual_functions: int = 0
    interface_id: str = INTERFACE_ID
    afu_ids: Sequence[str] = AFU_IDS[:1]


@dataclass(slots=True)
class Numbers:
    """The kernel's counters: each kind of object is numbered over the whole host."""

    used: Counter[str] = field(default_factory=Counter)

    def take(self, kind: str) -> int:
        """The next number of a kind."""
        self.used[kind] += 1
        return self.used[kind] - 1


def parts(plan: CardPlan, numbers: Numbers) -> list[FpgaPart]:
    """The parts of a card; accelerator functions are assigned to its ports in turn."""
    virtual = tuple(virtual_function(plan.path, index) for index in range(1, plan.virtual_functions + 1))
    name, device, virtual_device = _PCI[plan.driver]
    physical = Function(path=plan.path, device=device, driver=name, numa_node=plan.numa_node, virtual=virtual)
    ports = _ports(plan, numbers)
    card_number = numbers.take(f"{plan.driver} card")
    engine = _engine(plan, numbers, len(virtual) or plan.ports)
    if not virtual:
        return [FpgaPart(physical, card_number, engine, tuple(ports))]
    functions = (
        Function(path=path, device=virtual_device, driver=name, numa_node=plan.numa_node, physical=plan.path)
        for path in virtual
    )
    below = [FpgaPart(function, numbers.take(f"{plan.driver} card"), None, (next(ports),)) for function in functions]
    return [FpgaPart(physical, card_number, engine, ()), *below]


def _ports(plan: CardPlan, numbers: Numbers) -> Iterator[Port]:
    for index in range(plan.virtual_functions or plan.ports):
        afu_id = plan.afu_ids[index % len(plan.afu_ids)]
        yield Port(numbers.take(f"{plan.driver} port"), index, afu_id)


def _engine(plan: CardPlan, numbers: Numbers, ports: int) -> Engine:
    # DFL's regions and cards share one class and so one counter; the out-of-tree driver has no regions.
    regions = tuple(numbers.take("dfl card") for _ in range(ports)) if plan.driver == "dfl" else ()
    hwmons = (numbers.take("hwmon"), numbers.take("hwmon")) if plan.driver == "dfl" else (0, 0)
    return Engine(numbers.take(f"{plan.driver} fme"), plan.interface_id, regions, hwmons)


DFL_MODULES = ("dfl", "dfl_pci", "dfl_afu", "dfl_fme", "dfl_fme_br", "dfl_fme_mgr", "dfl_fme_region", "fpga_region")
_DFL_PORT_MAJOR, _DFL_FME_MAJOR = 244, 245
_DFL_ENGINE_ERRORS = (
    *("fme_errors", "pcie0_errors", "pcie1_errors", "catfatal_errors", "nonfatal_errors"),
    *("first_error", "next_error", "inject_errors"),
)
_DFL_THERMAL = {
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


def dfl_entries(part: FpgaPart) -> list[Entry]:
    """The region of a function: with engine and ports, or with the port of a virtual function."""
    region = f"{part.function.path}/fpga_region/region{part.number}"
    made = class_device(region, "fpga_region", part.function.path)
    if part.engine is not None:
        made += _dfl_engine(part.engine, f"{region}/dfl-fme.{part.engine.number}", part.function.numa_node)
    for port in part.ports:
        made += _dfl_port(port, f"{region}/dfl-port.{port.number}")
    return made


def _dfl_port(port: Port, path: str) -> list[Entry]:
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
        *platform_node(path, "dfl-port", (_DFL_PORT_MAJOR, port.number)),
        *attributes(path, state),
        *attributes(f"{path}/errors", errors),
    ]


def _dfl_engine(engine: Engine, path: str, numa_node: int) -> list[Entry]:
    facts = {
        "bitstream_id": "0x23000110010309",
        "bitstream_metadata": "0x1812032300",
        "ports_num": str(len(engine.regions)),
        "cache_size": "0",
        "fabric_version": "0",
        "socket_id": str(max(numa_node, 0)),
    }
    return [
        *platform_node(path, "dfl-fme", (_DFL_FME_MAJOR, engine.number)),
        *attributes(path, facts),
        *attributes(f"{path}/errors", dict.fromkeys(_DFL_ENGINE_ERRORS, "0x0")),
        *_hwmon(path, engine.hwmons[0], _DFL_THERMAL),
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
    """A region for partial reconfiguration, with the interface id of the engine's manager."""
    device = f"{path}/dfl-fme-region.{region}"
    directory = f"{device}/fpga_region/region{region}"
    return [
        *class_device(directory, "fpga_region", device),
        File.line(f"{directory}/compat_id", engine.interface_id),
    ]


def _hwmon(path: str, number: int, values: dict[str, str]) -> list[Entry]:
    directory = f"{path}/hwmon/hwmon{number}"
    return [*class_device(directory, "hwmon", path), *attributes(directory, values)]


OPAE_MODULES = ("fpga_mgr_mod", "intel_fpga_afu", "intel_fpga_fme", "intel_fpga_pci")
_OPAE_PORT_MAJOR, _OPAE_FME_MAJOR = 242, 243
_OPAE_ENGINE_ERRORS = ["pcie0_errors", "pcie1_errors", "catfatal_errors", "nonfatal_errors", "inject_error"]
_OPAE_THERMAL = {"temperature": "45", "threshold1": "90", "threshold2": "93", "threshold_trip": "100"}
_THRESHOLDS = {"threshold1_reached": "0", "threshold2_reached": "0"}


def opae_entries(part: FpgaPart) -> list[Entry]:
    """The card directory of a function: with engine and ports, or with the port of a virtual function."""
    card = f"{part.function.path}/fpga/intel-fpga-dev.{part.number}"
    made = class_device(card, "fpga", part.function.path)
    if part.engine is not None:
        made += _opae_engine(part, part.engine, f"{card}/intel-fpga-fme.{part.engine.number}")
    for port in part.ports:
        made += _opae_port(port, f"{card}/intel-fpga-port.{port.number}")
    return made


def _opae_port(port: Port, path: str) -> list[Entry]:
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
        *platform_node(path, "intel-fpga-port", (_OPAE_PORT_MAJOR, port.number)),
        *attributes(path, state),
        *attributes(f"{path}/errors", errors),
    ]


def _opae_engine(part: FpgaPart, engine: Engine, path: str) -> list[Entry]:
    facts = {
        "bitstream_id": "0x63000023b637277",
        "bitstream_metadata": "0x1710241",
        "ports_num": str(len(part.ports) or len(part.function.virtual)),
        "socket_id": str(max(part.function.numa_node, 0)),
    }
    return [
        *platform_node(path, "intel-fpga-fme", (_OPAE_FME_MAJOR, engine.number)),
        *attributes(path, facts),
        *attributes(f"{path}/pr", {"interface_id": engine.interface_id, "revision": "0"}),
        *attributes(f"{path}/errors", dict.fromkeys(_OPAE_ENGINE_ERRORS, "0x0")),
        *attributes(f"{path}/errors/fme-errors", dict.fromkeys(("errors", "first_error", "next_error"), "0x0")),
        *attributes(f"{path}/thermal_mgmt", _OPAE_THERMAL | _THRESHOLDS),
        *attributes(f"{path}/power_mgmt", {"consumed": "33", "threshold1": "90", "threshold2": "100"}),
    ]
