"""Faults that change the tree: attributes, nodes, drivers, cards."""

import itertools
from pathlib import Path

from devherd.errors import UsageError
from devherd_sim.node import pci
from devherd_sim.node.entry import Entry, File, link
from devherd_sim.node.faults.fault import FUNCTION, Act, Fault, attribute_fault
from devherd_sim.node.simulated_node import SimulatedNode
from devherd_sim.node.tree import rewrite, write_tree

PORT = "port or management engine"
NODE = "node below /dev"
FILE = "path of a file"
RDMA_DEVICE = "RDMA device"


_ERROR_REGISTERS = ("errors", "fme_errors", "fme-errors/errors")
"""The error registers of a port, and of a management engine under either driver."""


def _line(path: Path, text: str) -> None:
    if not path.is_file():
        raise UsageError(f"no file {path}", "the node has none there", "name another place")
    rewrite(path, f"{text}\n".encode())


def _attribute(name: str) -> Act:
    def act(node: SimulatedNode, at: str, value: str) -> None:
        _line(node.functions.path_of(at) / name, value)

    return act


def _any_file(node: SimulatedNode, at: str, value: str) -> None:
    path = _file(node, at)
    if value:
        _line(path, value)
    elif path.is_file():
        path.unlink()
    else:
        raise UsageError(f"no file {at}", f"not below {node.root}", "name another")


def _file(node: SimulatedNode, at: str) -> Path:
    return node.root / at.lstrip("/")


def _aer(node: SimulatedNode, at: str, value: str) -> None:
    kind, _, times = value.partition(" ")
    counter = node.functions.path_of(at) / f"aer_dev_{kind}"
    if not counter.exists():
        cure = "name fatal, nonfatal or correctable"
        raise UsageError(f"no errors {kind!r} are counted at {at}", f"no {counter.name}", cure)
    total = int(counter.read_text().split()[-1])
    rewrite(counter, f"{pci.error_count(kind, total + int(times or 1))}\n".encode())


def off_bus(node: SimulatedNode, at: str, _value: str) -> None:
    """Fill the configuration space of a function with ones."""
    rewrite(node.functions.path_of(at) / "config", b"\xff" * 64)


def _temperature(node: SimulatedNode, at: str, value: str) -> None:
    sensors = sorted(node.functions.path_of(at).rglob("temp*_input"))
    if not sensors:
        raise UsageError(f"no sensor at {at}", "no hwmon/hwmon*/temp*_input", "name another function")
    for sensor in sensors:
        rewrite(sensor, f"{value}\n".encode())


def _ras(node: SimulatedNode, at: str, value: str) -> None:
    block, _, times = value.partition(" ")
    counter = node.functions.path_of(at) / f"ras/{block}_err_count"
    known = counter.read_text().split() if counter.is_file() else ["ue:", "0"]
    _line(counter, f"ue: {int(known[1]) + int(times or 1)}\nce: 0")


def _fpga_errors(node: SimulatedNode, at: str, value: str) -> None:
    registers = [node.path_of(at) / "errors" / name for name in _ERROR_REGISTERS]
    _line(next((path for path in registers if path.is_file()), registers[0]), f"{int(value, 0):#x}")


def _afu(node: SimulatedNode, at: str, value: str) -> None:
    _line(node.path_of(at) / "afu_id", value)


def _without_driver(node: SimulatedNode, at: str, _value: str) -> None:
    """What its driver makes goes; the device of the platform bus stays."""
    place = node.path_of(at)
    for name in ("driver", "afu_id", "dev"):
        (place / name).unlink(missing_ok=True)
    (node.root / "dev" / at).unlink(missing_ok=True)


def _on_platform(node: SimulatedNode, at: str) -> Path:
    return node.path_of(at)


def _port_down(node: SimulatedNode, at: str, value: str) -> None:
    for state in sorted(_rdma_device(node, at).glob("ports/*/state")):
        _line(state, value)


def _rdma_rate(node: SimulatedNode, at: str, value: str) -> None:
    for rate in sorted(_rdma_device(node, at).glob("ports/*/rate")):
        _line(rate, value)


def _rdma_counter(node: SimulatedNode, at: str, value: str) -> None:
    name, _, times = value.partition(" ")
    counters = sorted(_rdma_device(node, at).glob(f"ports/*/*counters/{name}"))
    if not counters:
        raise UsageError(f"no {name!r} is counted at {at}", "no such file in its counters", "name link_downed")
    for counter in counters:
        known = counter.read_text().strip()
        _line(counter, str((int(known) if known.isdecimal() else 0) + int(times or 1)))


def _rdma_device(node: SimulatedNode, at: str) -> Path:
    place = node.root / "sys/class/infiniband" / at
    if not place.exists():
        raise UsageError(f"no RDMA device {at} on {node.root}", "nothing in sys/class/infiniband", "name another")
    return place.resolve()


def _dump(node: SimulatedNode, at: str, _value: str) -> None:
    function = node.functions.path_of(at).relative_to(node.root.resolve())
    if (node.root / function / "devcoredump").is_symlink():
        raise UsageError(f"there is a dump of {at} already", "the kernel keeps one of a device", "take it back first")
    number = itertools.count(1)
    place = next(dump for dump in map("sys/devices/virtual/devcoredump/devcd{}".format, number) if _is_free(node, dump))
    entries: list[Entry] = [
        link(f"{place}/subsystem", "sys/class/devcoredump"),
        link(f"{place}/failing_device", str(function)),
        File(f"{place}/data", b"the driver's dump\n"),
        link(f"sys/class/devcoredump/{Path(place).name}", place),
        link(f"{function}/devcoredump", place),
    ]
    with node.uevents.of_changes():
        write_tree(entries, node.root)


def _is_free(node: SimulatedNode, place: str) -> bool:
    return not (node.root / place).exists()


def _unbind(node: SimulatedNode, at: str, _value: str) -> None:
    if at in node.nvidia.addresses():
        node.nvidia.unbind(at)
    else:
        node.functions.unbind(at)


def _probe_fails(node: SimulatedNode, at: str, value: str) -> None:
    """The kernel's words: really_probe in drivers/base/dd.c."""
    driver = node.functions.path_of(at) / "driver"
    if not driver.is_symlink():
        raise UsageError(f"no driver at {at}", "nothing has it", "name a function that a driver has")
    name = driver.readlink().name
    _unbind(node, at, value)
    node.kernel_log.write(f"{name} {at}: probe with driver {name} failed with error {value}", pci_address=at)


def _node(node: SimulatedNode, at: str, _value: str) -> None:
    place = node.root / "dev" / at
    if not place.exists():
        raise UsageError(f"no node /dev/{at}", f"not below {node.root}", "name another")
    place.unlink()


def _stale_link(node: SimulatedNode, at: str, value: str) -> None:
    place = node.root / "dev" / at
    if place.is_symlink() or place.exists():
        raise UsageError(f"there is /dev/{at} already", "a stale link is one more", "name another")
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(value)


def _below_dev(node: SimulatedNode, _at: str) -> Path:
    return node.root / "dev"


def _flash(node: SimulatedNode, at: str, _value: str) -> None:
    node.functions.take_away(at)


def _pull_out(node: SimulatedNode, at: str, _value: str) -> None:
    node.functions.pull_out(at)


FAULTS = {
    "aer": attribute_fault(
        summary="the kernel counts PCI errors",
        value="fatal",
        value_help="fatal, nonfatal or correctable, and how many",
        inject=_aer,
    ),
    "link": attribute_fault(
        summary="the PCI link has fewer lanes",
        value="1",
        value_help="lanes",
        inject=_attribute("current_link_width"),
    ),
    "power": attribute_fault(
        summary="the power state of a function",
        value="error",
        value_help="D0, D3hot, D3cold, error",
        inject=_attribute("power_state"),
    ),
    "off-bus": attribute_fault(summary="a function answers nothing: all ones", inject=off_bus),
    "temperature": attribute_fault(
        summary="every sensor of a card is too hot",
        value="150000",
        value_help="thousandths of a degree",
        inject=_temperature,
    ),
    "ras": attribute_fault(
        summary="an AMD GPU counts uncorrectable errors of a block",
        value="umc",
        value_help="block, and how many",
        inject=_ras,
    ),
    "bad-page": attribute_fault(
        summary="a bad page of an AMD GPU's memory could not be reserved",
        value="0x00000001 : 0x00001000 : F",
        value_help="page, size, and R, P or F",
        inject=_attribute("ras/gpu_vram_bad_pages"),
    ),
    "gpu-health": attribute_fault(
        summary="the attribute gpu_health of an Intel GPU under xe",
        value="critical",
        value_help="ok, warning or critical",
        inject=_attribute("gpu_health"),
    ),
    "port-down": Fault(
        summary="the ports of an RDMA device go down",
        at=RDMA_DEVICE,
        value="1: DOWN",
        value_help="state",
        inject=_port_down,
        scope=_rdma_device,
    ),
    "rdma-rate": Fault(
        summary="the ports of an RDMA device are slower than before",
        at=RDMA_DEVICE,
        value="2.5 Gb/sec (1X SDR)",
        value_help="rate",
        inject=_rdma_rate,
        scope=_rdma_device,
    ),
    "rdma-counter": Fault(
        summary="a counter of an RDMA device's ports rises: links that went down, errors, lost packets",
        at=RDMA_DEVICE,
        value="link_downed",
        value_help="the kernel's name of the counter, and how many",
        inject=_rdma_counter,
        scope=_rdma_device,
    ),
    "fpga-errors": Fault(
        summary="the error register of an FPGA port or management engine has bits set",
        at=PORT,
        value="0x1",
        value_help="register",
        inject=_fpga_errors,
        scope=_on_platform,
    ),
    "afu": Fault(
        summary="an FPGA port has another accelerator function: zeros are none, `f`s a port that does not answer",
        at=PORT,
        value="0" * 32,
        value_help="32 hexadecimal digits",
        inject=_afu,
        scope=_on_platform,
    ),
    "port-driver": Fault(
        summary="an FPGA port loses its own driver, as without the kernel module dfl_afu",
        at=PORT,
        inject=_without_driver,
    ),
    "file": Fault(
        summary="a file gets another line, or is removed: for cases without a fault of their own",
        at=FILE,
        value_help="the line; without one the file is removed",
        inject=_any_file,
        scope=_file,
    ),
    "device-dump": Fault(
        summary="the driver of a function dumps its state, as when a card hangs; the kernel removes the dump later",
        at=FUNCTION,
        inject=_dump,
    ),
    "unbind": Fault(summary="a function loses its driver", at=FUNCTION, inject=_unbind),
    "probe-failed": Fault(
        summary="the loaded driver refuses a function, and the kernel logs that",
        at=FUNCTION,
        value="-22",
        value_help="error",
        inject=_probe_fails,
    ),
    "flash": Fault(
        summary="a shell is written into an Alveo card: its user function goes, that for management stays",
        at=FUNCTION,
        inject=_flash,
    ),
    "remove": Fault(summary="a card leaves its slot, with all its functions", at=FUNCTION, inject=_pull_out),
    "node": Fault(summary="a device node is removed", at=NODE, inject=_node, scope=_below_dev),
    "stale-link": Fault(
        summary="udev leaves a link below /dev behind whose node is gone",
        at="path of the link below /dev",
        value="../card9",
        value_help="what the link leads to",
        inject=_stale_link,
        scope=_below_dev,
    ),
}
