"""Intel FPGA cards as a plan: which card has which functions, engines, ports and numbers. Drivers lay them out.

A card without virtual functions is one part: a PCI function with its management engine (FME) and its ports. With SR-IOV
the physical function keeps the engine and each virtual function is a part of its own, with one port.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from devherd_sim.node.pci import Function
from devherd_sim.node.pci_slots import virtual_function

DriverName = Literal["dfl", "opae"]

INTERFACE_ID = "69528db6eb31577a8c3668f9faa081f6"
AFU_IDS = ("d8424dc4a4a3c413f89e433683f9040b", "f7df405cbd7acf7222f144b0b93acd18")
# Physical and virtual function: an N3000 under the kernel's driver, an Arria 10 under the one out of tree.
_PCI = {"dfl": ("dfl-pci", 0x0B30, 0x0B31), "opae": ("intel-fpga-pci", 0x09C4, 0x09C5)}


@dataclass(frozen=True, slots=True)
class Port:
    """A slot for one accelerator function. `index` counts within the card, `number` on the host."""

    number: int
    index: int
    afu_id: str


@dataclass(frozen=True, slots=True)
class Engine:
    """An FME; it has as many PR regions as the card has ports."""

    number: int
    interface_id: str
    regions: tuple[int, ...]
    hwmons: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Part:
    """What one PCI function shows: `number` is that of its directory in the class."""

    function: Function
    number: int
    engine: Engine | None
    ports: tuple[Port, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CardPlan:
    """What a card is to have."""

    driver: DriverName
    path: str
    numa_node: int = -1
    ports: int = 1
    virtual_functions: int = 0
    interface_id: str = INTERFACE_ID
    afu_ids: Sequence[str] = AFU_IDS[:1]


@dataclass(slots=True)
class Numbers:
    """The kernel's counters: each kind of thing is numbered over the whole host."""

    used: Counter[str] = field(default_factory=Counter)

    def take(self, kind: str) -> int:
        """The next number of a kind."""
        self.used[kind] += 1
        return self.used[kind] - 1


def parts(plan: CardPlan, numbers: Numbers) -> list[Part]:
    """The parts of a card; its ports take the accelerator functions in turn."""
    virtual = tuple(virtual_function(plan.path, index) for index in range(1, plan.virtual_functions + 1))
    name, device, virtual_device = _PCI[plan.driver]
    physical = Function(path=plan.path, device=device, driver=name, numa_node=plan.numa_node, virtual=virtual)
    ports = _ports(plan, numbers)
    card_number = numbers.take(f"{plan.driver} card")
    engine = _engine(plan, numbers, len(virtual) or plan.ports)
    if not virtual:
        return [Part(physical, card_number, engine, tuple(ports))]
    functions = (
        Function(path=path, device=virtual_device, driver=name, numa_node=plan.numa_node, physical=plan.path)
        for path in virtual
    )
    below = [Part(function, numbers.take(f"{plan.driver} card"), None, (next(ports),)) for function in functions]
    return [Part(physical, card_number, engine, ()), *below]


def _ports(plan: CardPlan, numbers: Numbers) -> Iterator[Port]:
    for index in range(plan.virtual_functions or plan.ports):
        afu_id = plan.afu_ids[index % len(plan.afu_ids)]
        yield Port(numbers.take(f"{plan.driver} port"), index, afu_id)


def _engine(plan: CardPlan, numbers: Numbers, ports: int) -> Engine:
    # DFL regions share one class and so one counter with its cards; the driver out of tree has none.
    regions = tuple(numbers.take("dfl card") for _ in range(ports)) if plan.driver == "dfl" else ()
    hwmons = (numbers.take("hwmon"), numbers.take("hwmon")) if plan.driver == "dfl" else (0, 0)
    return Engine(numbers.take(f"{plan.driver} fme"), plan.interface_id, regions, hwmons)
