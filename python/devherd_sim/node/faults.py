"""What can be injected into a simulated node and taken back: a row each.

What a fault changes of the tree is kept beside it, so that another process can put it back, with the uevents that the
kernel would send. What it says in events or in the kernel log is taken back by what kernel or driver would say then.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from devherd.errors import UsageError
from devherd_sim.node import pci
from devherd_sim.node.entry import Entry
from devherd_sim.node.simulated_node import FAULTS_DIRECTORY, SimulatedNode
from devherd_sim.node.tree import parse, read_tree, render, rewrite

Act = Callable[[SimulatedNode, str, str], None]
"""With the place and the value."""

FUNCTION = "PCI address"
PORT = "port or management engine"
NODE = "node below /dev"
DEVICE = "PCI address, or directory below /sys"
ANY_FUNCTION = "PCI address or -"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One row."""

    summary: str
    at: str
    """What its place is."""
    inject: Act
    value: str = ""
    """What is used where none is given."""
    value_help: str = ""
    undo: Act | None = None
    """What is said when it is over; what the fault changed of the tree is put back in any case."""
    undone_by: str = ""
    """Where it cannot be taken back: what does that."""


def inject(node: SimulatedNode, name: str, at: str, value: str = "") -> None:
    """Let a fault happen. Raises UsageError where there is no such fault or place."""
    fault = _named(name)
    kept = _kept_in(node, name, at)
    before = {entry.path: entry for entry in _tree(node)}
    fault.inject(node, at, value or fault.value)
    after = {entry.path: entry for entry in _tree(node)}
    if not kept.exists():
        kept.parent.mkdir(exist_ok=True)
        kept.write_text(render([entry for path, entry in before.items() if after.get(path) != entry]))


def clear(node: SimulatedNode, name: str, at: str, value: str = "") -> None:
    """Take a fault back. Raises UsageError where it cannot be, or has not been injected."""
    fault = _named(name)
    if fault.undone_by:
        raise UsageError(f"cannot take {name} back", "what is said is said", fault.undone_by)
    kept = _kept_in(node, name, at)
    if not kept.exists():
        raise UsageError(f"cannot take {name} at {at} back", "it was not injected", "inject it first")
    node.put_back(parse(kept.read_text()))
    kept.unlink()
    if fault.undo is not None:
        fault.undo(node, at, value or fault.value)


def _named(name: str) -> Fault:
    if name not in FAULTS:
        raise UsageError(f"no fault {name}", f"there are {', '.join(FAULTS)}", "name one of them")
    return FAULTS[name]


def _kept_in(node: SimulatedNode, name: str, at: str) -> Path:
    return node.root / FAULTS_DIRECTORY / f"{name}@{at.replace('/', '_')}.tree"


def _tree(node: SimulatedNode) -> list[Entry]:
    kept = f"{FAULTS_DIRECTORY}/"
    return [entry for entry in read_tree(node.root) if entry.path != "dev/kmsg" and not entry.path.startswith(kept)]


def _xid(node: SimulatedNode, at: str, text: str) -> None:
    node.functions.path_of(at)
    node.kernel_log.write(f"NVRM: Xid (PCI:{at.rpartition('.')[0]}): {text}")


def _recovered(node: SimulatedNode, at: str, _value: str) -> None:
    _xid(node, at, "154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)")


def _gpu_lost(node: SimulatedNode, at: str, value: str) -> None:
    _off_bus(node, at, value)
    node.kernel_log.write(f"NVRM: GPU {at}: GPU has fallen off the bus.")


def _wedged(node: SimulatedNode, at: str, value: str) -> None:
    function = node.functions.path_of(at)
    _say_of(node, at, "device wedged, needs recovery")
    node.uevents.send("change", next(iter(sorted(function.glob("drm/card*"))), function), WEDGED=value)


def _no_longer_wedged(node: SimulatedNode, at: str, _value: str) -> None:
    """The driver has been bound anew, as WEDGED says that it helps."""
    _say_of(node, at, "device wedged, but recovered through reset")
    function = node.functions.path_of(at)
    node.uevents.send("unbind", function)
    node.uevents.send("bind", function)


def _say_of(node: SimulatedNode, at: str, text: str) -> None:
    driver = node.functions.path_of(at) / "driver"
    name = driver.readlink().name if driver.is_symlink() else "pci"
    node.kernel_log.write(f"{name} {at}: [drm] {text}", pci_address=at, level=6)


def _recovery(event: str, *, is_online: bool) -> Act:
    def act(node: SimulatedNode, at: str, _value: str) -> None:
        function = node.functions.path_of(at)
        node.uevents.send("change", function, ERROR_EVENT=event, DEVICE_ONLINE=str(int(is_online)))

    return act


def _uevent(node: SimulatedNode, at: str, value: str) -> None:
    action, *given = value.split()
    device = node.root / at.lstrip("/") if "/" in at else node.functions.path_of(at)
    if not device.is_dir() or not all("=" in variable for variable in given):
        raise UsageError(f"no uevent {value!r} of {at}", "it is ACTION NAME=VALUE … of a device", "see the help")
    node.uevents.send(action, device, **dict(variable.split("=", 1) for variable in given))


def _kernel_log(node: SimulatedNode, at: str, value: str) -> None:
    if not value:
        raise UsageError("nothing to be logged", "there is no value", "give the text")
    node.kernel_log.write(value, pci_address="" if at == "-" else at)


def _aer(node: SimulatedNode, at: str, value: str) -> None:
    counter = node.functions.path_of(at) / f"aer_dev_{value}"
    if not counter.exists():
        raise UsageError(f"no errors {value!r} are counted at {at}", f"no {counter.name}", "name fatal or nonfatal")
    total = int(counter.read_text().split()[-1])
    rewrite(counter, f"{pci.error_count(value, total + 1)}\n".encode())


def _attribute(name: str) -> Act:
    def act(node: SimulatedNode, at: str, value: str) -> None:
        rewrite(node.functions.path_of(at) / name, f"{value}\n".encode())

    return act


def _off_bus(node: SimulatedNode, at: str, _value: str) -> None:
    rewrite(node.functions.path_of(at) / "config", b"\xff" * 64)


def _temperature(node: SimulatedNode, at: str, value: str) -> None:
    sensors = sorted(node.functions.path_of(at).rglob("temp*_input"))
    if not sensors:
        raise UsageError(f"no sensor at {at}", "no hwmon/hwmon*/temp*_input", "name another function")
    for sensor in sensors:
        rewrite(sensor, f"{value}\n".encode())


def _firmware(*, is_in_error: bool) -> Act:
    def act(node: SimulatedNode, at: str, value: str) -> None:
        node.functions.path_of(at)
        node.devlink.report(at, value, is_in_error=is_in_error)

    return act


def _fpga_errors(node: SimulatedNode, at: str, value: str) -> None:
    node.fail_port(at, int(value, 0))


def _unbind(node: SimulatedNode, at: str, _value: str) -> None:
    if at in node.nvidia.addresses():
        node.nvidia.unbind(at)
    else:
        node.functions.unbind(at)


def _node(node: SimulatedNode, at: str, _value: str) -> None:
    if not (node.root / "dev" / at).exists():
        raise UsageError(f"no node /dev/{at}", f"not below {node.root}", "name another")
    node.remove_node(at)


def _pull_out(node: SimulatedNode, at: str, _value: str) -> None:
    node.functions.pull_out(at)


FAULTS: Mapping[str, Fault] = MappingProxyType(
    {
        "xid": Fault(
            summary="the NVIDIA driver prints an Xid; then that the GPU needs nothing any more",
            at=FUNCTION,
            value="79, pid=1234, name=python3, GPU has fallen off the bus.",
            value_help="code and text",
            inject=_xid,
            undo=_recovered,
        ),
        "gpu-lost": Fault(
            summary="a GPU falls off the bus, and its driver prints that",
            at=FUNCTION,
            inject=_gpu_lost,
            undo=_recovered,
        ),
        "wedged": Fault(
            summary="the driver of a GPU gives it up: kernel log and uevent",
            at=FUNCTION,
            value="rebind,bus-reset",
            value_help="what WEDGED is",
            inject=_wedged,
            undo=_no_longer_wedged,
        ),
        "recovery": Fault(
            summary="the kernel recovers a function from a fatal PCI error",
            at=FUNCTION,
            inject=_recovery("BEGIN_RECOVERY", is_online=False),
            undo=_recovery("SUCCESSFUL_RECOVERY", is_online=True),
        ),
        "aer": Fault(
            summary="a PCI error is counted", at=FUNCTION, value="fatal", value_help="fatal or nonfatal", inject=_aer
        ),
        "link": Fault(
            summary="the PCI link has fewer lanes",
            at=FUNCTION,
            value="1",
            value_help="lanes",
            inject=_attribute("current_link_width"),
        ),
        "power": Fault(
            summary="the power state of a function",
            at=FUNCTION,
            value="error",
            value_help="D0, D3hot, D3cold, error",
            inject=_attribute("power_state"),
        ),
        "off-bus": Fault(summary="a function answers nothing: all ones", at=FUNCTION, inject=_off_bus),
        "temperature": Fault(
            summary="every sensor of a card is too hot",
            at=FUNCTION,
            value="150000",
            value_help="thousandths of a degree",
            inject=_temperature,
        ),
        "firmware": Fault(
            summary="the driver of a network card reports an error of its firmware, by devlink",
            at=FUNCTION,
            value="fw_fatal",
            value_help="health reporter",
            inject=_firmware(is_in_error=True),
            undo=_firmware(is_in_error=False),
        ),
        "fpga-errors": Fault(
            summary="the error register of an FPGA port has bits set",
            at=PORT,
            value="0x1",
            value_help="register",
            inject=_fpga_errors,
        ),
        "unbind": Fault(summary="a function loses its driver", at=FUNCTION, inject=_unbind),
        "remove": Fault(summary="a card leaves its slot, with all its functions", at=FUNCTION, inject=_pull_out),
        "node": Fault(summary="a device node is removed", at=NODE, inject=_node),
        "uevent": Fault(
            summary="the kernel sends a uevent",
            at=DEVICE,
            value="change",
            value_help="ACTION NAME=VALUE …",
            inject=_uevent,
            undone_by="send the event that takes it back",
        ),
        "kernel-log": Fault(
            summary="the kernel logs something, for the driver of a function if one is given",
            at=ANY_FUNCTION,
            value_help="text",
            inject=_kernel_log,
            undone_by="write what takes it back",
        ),
    }
)
