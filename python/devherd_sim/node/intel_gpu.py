"""Intel GPUs under i915 and xe: DRM minors, hwmon, the management engine, virtual functions.

Documentation/ABI/testing/sysfs-driver-intel-i915-hwmon, sysfs-driver-intel-xe-hwmon; drivers/misc/mei/gsc-me.c.
"""

from collections.abc import Iterator, Sequence
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from devherd_sim.node import amdgpu, pci
from devherd_sim.node.entry import Entry, attributes
from devherd_sim.node.intel_fpga import Numbers
from devherd_sim.node.machine import class_device, class_node
from devherd_sim.node.pci import Slots, numa_node_of, virtual_function
from devherd_sim.node.written import Written

_DISPLAY_CLASS = 0x030000
# A Flex 170 and a Battlemage.
_DEVICE_IDS = {"i915": "0x56c0", "xe": "0xe20b"}
_MEI_MAJOR = 238
# i915 shows a temperature without a limit; xe shows limits too.
_SENSORS = {
    "i915": {"name": "i915", "temp1_input": "47000", "energy1_input": "1000000", "power1_max": "150000000"},
    "xe": {
        "name": "xe",
        "temp2_label": "pkg",
        "temp2_input": "47000",
        "temp2_max": "95000",
        "temp2_crit": "100000",
        "temp2_emergency": "110000",
        "temp3_label": "vram",
        "temp3_input": "52000",
        "temp3_crit": "105000",
    },
}


class IntelGpuSpec(BaseModel):
    """`cards` identical GPUs. Each virtual function is a card of its own, in addition to the physical function."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    driver: Literal["i915", "xe"] = "xe"
    """The kernel's older or newer one."""
    cards: Annotated[int, Field(ge=1, le=128)] = 1
    """Their number."""
    vfs: Annotated[int, Field(ge=0, le=63)] = 0
    """Number of virtual functions of each."""
    vf_driver: Literal["own", "vfio-pci"] = "own"
    """Driver of the virtual functions: the card's own, or vfio-pci, as for virtual machines."""
    numa_nodes: Annotated[int, Field(ge=0, le=8)] = 1
    """Number of NUMA nodes that they are spread over; 0 = unknown."""
    device_id: Annotated[str, Written(r"^0x[0-9a-f]{4}$", "a PCI device id in lower case", '"0xe20b"')] | None = None
    """Default: that of a common card of the driver."""


def modules(specs: Sequence[IntelGpuSpec]) -> set[str]:
    """The kernel modules that these cards need."""
    return {"drm", "mei", "mei_gsc", *(spec.driver for spec in specs)} if specs else set()


def entries(specs: Sequence[IntelGpuSpec], slots: Slots, numbers: Numbers) -> list[Entry]:
    """All cards, each with its root port."""
    made = amdgpu.class_version() if specs else []
    for spec in specs:
        for index in range(spec.cards):
            made += _card(spec, numa_node_of(index, spec.cards, spec.numa_nodes), slots, numbers)
    return made


def _own_judgement(function: pci.Function, driver: str) -> list[Entry]:
    return attributes(function.path, {"gpu_health": "ok"}) if driver == "xe" else []


def _card(spec: IntelGpuSpec, numa_node: int, slots: Slots, numbers: Numbers) -> list[Entry]:
    path = slots.take(numa_node)
    physical, *virtual = _functions(spec, path, numa_node)
    made = [
        *pci.entries(pci.bridge_above(path, numa_node)),
        *pci.entries(physical),
        *amdgpu.card(physical, numbers.take("drm card"), connectors=1),
        *_hwmon(physical, spec.driver, numbers.take("hwmon")),
        *_own_judgement(physical, spec.driver),
        *_management_engine(physical, spec.driver, numbers.take("mei")),
    ]
    for function in virtual:
        made += pci.entries(function)
        made += amdgpu.card(function, numbers.take("drm card")) if function.driver == spec.driver else []
    return made


def _functions(spec: IntelGpuSpec, path: str, numa_node: int) -> Iterator[pci.Function]:
    """The physical function, then its virtual ones."""
    virtual = tuple(virtual_function(path, index) for index in range(1, spec.vfs + 1))
    for place in (path, *virtual):
        yield pci.Function(
            path=place,
            device=int(spec.device_id or _DEVICE_IDS[spec.driver], 16),
            pci_class=_DISPLAY_CLASS,
            driver=spec.driver if place == path or spec.vf_driver == "own" else spec.vf_driver,
            numa_node=numa_node,
            physical=None if place == path else path,
            virtual=virtual if place == path else (),
        )


def _hwmon(function: pci.Function, driver: str, number: int) -> list[Entry]:
    directory = f"{function.path}/hwmon/hwmon{number}"
    return [
        *class_device(directory, "hwmon", function.path),
        *attributes(directory, _SENSORS[driver]),
    ]


def _management_engine(function: pci.Function, driver: str, number: int) -> list[Entry]:
    engine = f"{function.path}/{driver}.mei-gscfi.{768 + number}"
    name = f"mei{number}"
    return [
        *class_node(f"{engine}/mei/{name}", "mei", name, (_MEI_MAJOR, number)),
        *attributes(f"{engine}/mei/{name}", {"fw_status": "90000255", "dev_state": "ENABLED"}),
    ]
