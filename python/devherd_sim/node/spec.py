"""The validated spec of a simulated node, and the entries of the node."""

from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from devherd.config.errors import WrongValueError, echo
from devherd_sim.node import amdgpu, intel_fpga, intel_gpu, machine, nvidia, pci, rdma, text, usb, xilinx_fpga
from devherd_sim.node.amd import AmdGpu, AmdSpec
from devherd_sim.node.entry import Entry
from devherd_sim.node.intel_fpga import AFU_IDS, INTERFACE_ID, CardPlan, DriverName, Numbers, parts
from devherd_sim.node.intel_gpu import IntelGpuSpec
from devherd_sim.node.nvidia import NvidiaSpec
from devherd_sim.node.pci import Slots, numa_node_of
from devherd_sim.node.rdma import RdmaSpec
from devherd_sim.node.written import Written
from devherd_sim.node.xilinx_fpga import XilinxFpgaSpec

_Id = Annotated[str, Written(r"^[0-9a-f]{32}$", "32 hexadecimal digits in lower case", INTERFACE_ID)]
_UsbId = Annotated[str, Written(r"^[0-9a-f]{4}$", "4 hexadecimal digits in lower case", '"0403"')]
_MODULES = {"dfl": intel_fpga.DFL_MODULES, "opae": intel_fpga.OPAE_MODULES}
_ENTRIES = {"dfl": intel_fpga.dfl_entries, "opae": intel_fpga.opae_entries}


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class FpgaSpec(_Section):
    """`cards` identical FPGA cards; their ports take the `afu_ids` in turn."""

    driver: DriverName = "dfl"
    """`dfl` is the driver of Linux, `opae` Intel's own."""
    cards: Annotated[int, Field(ge=1, le=1024)] = 1
    """Their number."""
    ports: Annotated[int, Field(ge=0, le=64)] = 1
    """Number of ports of each card."""
    vfs: Annotated[int, Field(ge=0, le=63)] = 0
    """Virtual functions of each card, which then have the ports."""
    numa_nodes: Annotated[int, Field(ge=0, le=8)] = 1
    """Number of NUMA nodes that they are spread over; 0 = unknown."""
    afu_ids: Annotated[list[_Id], Field(min_length=1)] = [*AFU_IDS]
    """Loaded accelerator functions."""
    interface_id: _Id = INTERFACE_ID
    """Interface id of the region, which decides which bitstreams fit."""


class UsbSpec(_Section):
    """One USB device."""

    vendor: _UsbId
    """Vendor id, as `lsusb` shows it."""
    product: _UsbId
    """Product id, as `lsusb` shows it."""
    serial: str | None = None
    """Its serial number, if it has one."""
    function: usb.UsbFunction | None = None
    """Its function: with `serial` the driver makes a ttyUSB, with `video` a camera."""


def _within_the_kernels_limits(number: str) -> str:
    """Raises WrongValueError if a number exceeds a dev_t: 12 bits major, 20 bits minor (include/linux/kdev_t.h)."""
    major, _, minor = number.partition(":")
    if int(major) >= 1 << 12 or int(minor) >= 1 << 20:
        raise WrongValueError(
            f"{echo(number)} is too large", "the major number is below 4096, the minor number below 1048576"
        )
    return number


class DeviceSpec(_Section):
    """One character device without hardware behind it."""

    path: Annotated[str, Written(r"^/dev/[^\s]+$", "a path below /dev", "/dev/kvm")]
    """Path of its node."""
    number: Annotated[
        str,
        Written(r"^[0-9]{1,4}:[0-9]{1,7}$", "a major and a minor number", '"10:232"'),
        AfterValidator(_within_the_kernels_limits),
    ]
    """Numbers of its node."""
    subsystem: Annotated[str, Written(r"^[^/\s]+$", "a name without blanks and slashes", "misc")] = "misc"
    """Its class in sysfs."""


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, dict) else value


class NodeSpec(_Section):
    """A whole node. `tree` is text in the format of devherd_sim.node.text, added last."""

    fpga: Annotated[list[FpgaSpec], BeforeValidator(_as_list, json_schema_input_type=FpgaSpec | list[FpgaSpec])] = []
    """Intel FPGA cards."""
    nvidia: NvidiaSpec | None = None
    """NVIDIA GPUs."""
    amd: Annotated[list[AmdSpec], BeforeValidator(_as_list, json_schema_input_type=AmdSpec | list[AmdSpec])] = []
    """AMD GPUs."""
    intel_gpu: Annotated[
        list[IntelGpuSpec], BeforeValidator(_as_list, json_schema_input_type=IntelGpuSpec | list[IntelGpuSpec])
    ] = []
    """Intel GPUs."""
    xilinx_fpga: Annotated[
        list[XilinxFpgaSpec], BeforeValidator(_as_list, json_schema_input_type=XilinxFpgaSpec | list[XilinxFpgaSpec])
    ] = []
    """Xilinx FPGA cards."""
    rdma: Annotated[list[RdmaSpec], BeforeValidator(_as_list, json_schema_input_type=RdmaSpec | list[RdmaSpec])] = []
    """RDMA network cards."""
    usb: list[UsbSpec] = []
    """USB devices."""
    devices: list[DeviceSpec] = []
    """Devices without hardware behind them, such as /dev/kvm."""
    tree: str = ""
    """Other entries, one a line, added last."""


def entries(spec: NodeSpec) -> list[Entry]:
    """All entries of a node. Raises UsageError when a line of `tree` is malformed or a MIG device does not fit."""
    before_amd, slots, numbers = _before_amd(spec)
    drivers = {fpga.driver for fpga in spec.fpga}
    modules = {module for driver in drivers for module in _MODULES[driver]}
    modules |= intel_gpu.modules(spec.intel_gpu) | xilinx_fpga.modules(spec.xilinx_fpga) | rdma.modules(spec.rdma)
    modules |= set(nvidia.MODULES if spec.nvidia else ()) | amdgpu.modules(spec.amd)
    return [
        *machine.machine_entries(slots.numa_nodes, modules),
        *before_amd,
        *amdgpu.entries(spec.amd, slots, numbers),
        *intel_gpu.entries(spec.intel_gpu, slots, numbers),
        *xilinx_fpga.entries(spec.xilinx_fpga, slots, numbers),
        *rdma.entries(spec.rdma, slots, numbers),
        *usb.entries([usb.UsbDevice(**device.model_dump()) for device in spec.usb]),
        *(entry for device in spec.devices for entry in machine.virtual_entries(_virtual(device))),
        *text.parse(spec.tree),
    ]


def amd_gpus(spec: NodeSpec) -> tuple[list[AmdGpu], int]:
    """The GPUs that KFD knows, and the number of NUMA nodes."""
    _, slots, numbers = _before_amd(spec)
    return amdgpu.driven(spec.amd, slots, numbers), slots.numa_nodes


def _before_amd(spec: NodeSpec) -> tuple[list[Entry], Slots, Numbers]:
    """The entries of cards that get slots and numbers before AMD's, and the remaining slots and numbers."""
    numbers = Numbers()
    slots = Slots(max((cards.numa_nodes for cards in _cards(spec)), default=1))
    made = [entry for plan in _plans(spec.fpga, slots) for entry in card_entries(plan, numbers)]
    return made + nvidia.entries(spec.nvidia, slots, numbers), slots, numbers


def _cards(spec: NodeSpec) -> list[FpgaSpec | NvidiaSpec | AmdSpec | IntelGpuSpec | XilinxFpgaSpec | RdmaSpec]:
    """The sections whose cards are spread over NUMA nodes."""
    nvidia_gpus = [spec.nvidia] if spec.nvidia else []
    return [*spec.fpga, *nvidia_gpus, *spec.amd, *spec.intel_gpu, *spec.xilinx_fpga, *spec.rdma]


def card_entries(plan: CardPlan, numbers: Numbers) -> list[Entry]:
    """One FPGA card with its root port."""
    made = pci.entries(pci.bridge_above(plan.path, plan.numa_node))
    for part in parts(plan, numbers):
        made += pci.entries(part.function)
        made += _ENTRIES[plan.driver](part)
    return made


def _plans(groups: list[FpgaSpec], slots: Slots) -> Iterator[CardPlan]:
    """Yields the cards of all groups by NUMA node; each group is spread over its NUMA nodes."""
    spread = [
        (numa_node_of(index, fpga.cards, fpga.numa_nodes), fpga, index)
        for fpga in groups
        for index in range(fpga.cards)
    ]
    for node, fpga, index in sorted(spread, key=lambda card: card[0]):
        yield _plan(fpga, index, slots.take(node), node)


def _plan(fpga: FpgaSpec, index: int, path: str, numa_node: int) -> CardPlan:
    each = fpga.vfs or fpga.ports
    turn = [fpga.afu_ids[(index * each + port) % len(fpga.afu_ids)] for port in range(max(each, 1))]
    return CardPlan(
        driver=fpga.driver,
        path=path,
        numa_node=numa_node,
        ports=fpga.ports,
        virtual_functions=fpga.vfs,
        interface_id=fpga.interface_id,
        afu_ids=turn,
    )


def _virtual(device: DeviceSpec) -> machine.VirtualDevice:
    major, _, minor = device.number.partition(":")
    return machine.VirtualDevice(device.path.removeprefix("/dev/"), (int(major), int(minor)), device.subsystem)
