"""Faults that drivers and the kernel report: in the kernel log, by uevents, devlink and KFD's events."""

from pathlib import Path

from devherd._native import kfd_slots
from devherd.errors import UsageError
from devherd.sources.amd_kfd import POST_RESET, PRE_RESET
from devherd_sim.node.faults.cards import off_bus
from devherd_sim.node.faults.fault import FUNCTION, Act, Fault, attribute_fault, spoken_fault
from devherd_sim.node.kernel_events import tell_listeners
from devherd_sim.node.nvidia import information_path
from devherd_sim.node.simulated_node import SimulatedNode
from devherd_sim.node.tree import rewrite

DEVICE = "PCI address, or directory below /sys"
ANY_FUNCTION = "PCI address or -"


def _xid(node: SimulatedNode, at: str, text: str) -> None:
    if (node.functions.path_of(at) / "vendor").read_text() != "0x10de\n":
        raise UsageError(f"no Xid of {at}", "it is no function of NVIDIA's", "name the PCI address of a GPU")
    node.kernel_log.write(f"NVRM: Xid (PCI:{at.rpartition('.')[0]}): {text}")


def _recovered(node: SimulatedNode, at: str, _value: str) -> None:
    _xid(node, at, "154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)")


def _gpu_lost(node: SimulatedNode, at: str, value: str) -> None:
    off_bus(node, at, value)
    node.kernel_log.write(f"NVRM: GPU {at}: GPU has fallen off the bus.")


AT_LOAD = "at-load"
"""Marks a GPU that i915 could not start: it is only logged, in the words of drivers/gpu/drm/i915/i915_gem.c."""


def _does_not_resume(node: SimulatedNode, at: str, status: str) -> None:
    """As drivers/pci/pci.c of the kernel leaves a function that it could not power up."""
    place = node.functions.path_of(at)
    off_bus(node, at, "")
    rewrite(place / "power_state", b"D3cold\n")
    (place / "power").mkdir(exist_ok=True)
    rewrite(place / "power/runtime_status", f"{status}\n".encode())
    driver = (place / "driver").readlink().name if (place / "driver").is_symlink() else "pci"
    text = f"{driver} {at}: Unable to change power state from D3cold to D0, device inaccessible"
    node.kernel_log.write(text, pci_address=at)


def _not_started(node: SimulatedNode, at: str, _value: str) -> None:
    information = _information(node, at)
    if not information.is_file():
        raise UsageError(f"no NVIDIA GPU {at} on {node.root}", "its driver has none there", "name another")
    lines = [
        "Video BIOS: \t ??.??.??.??.??" if line.startswith("Video BIOS") else line
        for line in information.read_text().splitlines()
    ]
    rewrite(information, "\n".join([*lines, ""]).encode())
    node.kernel_log.write(f"NVRM: GPU {at}: RmInitAdapter failed! (0x62:0x65:1792)")


def _information(node: SimulatedNode, at: str) -> Path:
    return node.root / information_path(at)


def _wedged(node: SimulatedNode, at: str, value: str) -> None:
    place = node.functions.path_of(at)
    if value == AT_LOAD:
        _say_of(node, at, "*ERROR* GT0: GuC initialization failed -ENOENT")
        _say_of(node, at, "*ERROR* GT0: Failed to initialize GPU, declaring it wedged!")
        return
    _say_of(node, at, "device wedged, needs recovery")
    node.uevents.send("change", next(iter(sorted(place.glob("drm/card*"))), place), WEDGED=value)


def _no_longer_wedged(node: SimulatedNode, at: str, value: str) -> None:
    """Log the recovery and send the uevents of a rebind, the remedy that WEDGED names."""
    if value != AT_LOAD:
        _say_of(node, at, "device wedged, but recovered through reset")
    _bound_anew(node, at, value)


def _bound_anew(node: SimulatedNode, at: str, _value: str) -> None:
    place = node.functions.path_of(at)
    node.uevents.send("unbind", place)
    node.uevents.send("bind", place)


def _say_of(node: SimulatedNode, at: str, text: str) -> None:
    driver = node.functions.path_of(at) / "driver"
    name = driver.readlink().name if driver.is_symlink() else "pci"
    node.kernel_log.write(f"{name} {at}: [drm] {text}", pci_address=at, level=6)


def _recovery(node: SimulatedNode, at: str, value: str) -> None:
    if value not in _RECOVERIES:
        raise UsageError(f"no recovery {value}", f"choose from {', '.join(_RECOVERIES)}", "name one of them")
    event, _ = _RECOVERIES[value]
    node.uevents.send("change", node.functions.path_of(at), ERROR_EVENT=event, DEVICE_ONLINE="0")


def _after_recovery(node: SimulatedNode, at: str, value: str) -> None:
    _, end = _RECOVERIES[value]
    end(node, at, value)


def _has_recovered(node: SimulatedNode, at: str, _value: str) -> None:
    node.uevents.send("change", node.functions.path_of(at), ERROR_EVENT="SUCCESSFUL_RECOVERY", DEVICE_ONLINE="1")


_RECOVERIES: dict[str, tuple[str, Act]] = {
    "begun": ("BEGIN_RECOVERY", _has_recovered),
    "failed": ("FAILED_RECOVERY", _bound_anew),
}
"""The kernel's ERROR_EVENT of each value, and the act that ends the fault."""


def _firmware(*, is_in_error: bool) -> Act:
    def act(node: SimulatedNode, at: str, value: str) -> None:
        node.functions.path_of(at)
        reporter, _, rest = value.partition(" ")
        node.devlink.report(at, reporter, is_in_error=is_in_error, recovers=rest != _WITHOUT_RECOVERY)

    return act


_WITHOUT_RECOVERY = "without-recovery"
"""Marks a reporter whose driver has no recovery."""


def _gpu_reset(event: int) -> Act:
    def act(node: SimulatedNode, at: str, value: str) -> None:
        node.functions.path_of(at)
        slot = at.rpartition(".")[0]
        gpus = [gpu for gpu, place in kfd_slots(str(node.root)).items() if place == slot]
        if not gpus:
            raise UsageError(f"KFD has no GPU at {at}", f"none of {node.root} is there", "name an AMD GPU")
        cause = value if event == PRE_RESET else "unknown"
        tell_listeners(node.root, "kfd", [f"{gpu} {event:x} 1 {cause}\n".encode() for gpu in gpus])

    return act


def _reset_hangs(node: SimulatedNode, at: str, value: str) -> None:
    node.functions.path_of(at)
    node.kernel_log.write(f"amdgpu {at}: amdgpu: GPU reset begin!. Source:  {value}", pci_address=at, level=6)


def _reset_ends(node: SimulatedNode, at: str, _value: str) -> None:
    node.kernel_log.write(f"amdgpu {at}: amdgpu: GPU reset(1) succeeded!", pci_address=at, level=6)


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


FAULTS = {
    "xid": spoken_fault(
        summary="the NVIDIA driver prints an Xid; --clear: it prints that the GPU needs no reset",
        value="79, pid=1234, name=python3, GPU has fallen off the bus.",
        value_help="code and text",
        inject=_xid,
        undo=_recovered,
    ),
    "gpu-lost": attribute_fault(
        summary="a GPU falls off the bus, and its driver prints that",
        inject=_gpu_lost,
        undo=_recovered,
    ),
    "no-resume": attribute_fault(
        summary="a function does not come back from D3cold: it answers nothing, and the kernel logs that",
        value="active",
        value_help="its runtime_status: active, error or suspended",
        inject=_does_not_resume,
    ),
    "not-started": Fault(
        summary="NVIDIA's driver logs that it cannot start a GPU; --clear: it has started it",
        at=FUNCTION,
        inject=_not_started,
        scope=_information,
    ),
    "wedged": spoken_fault(
        summary="the driver of a GPU declares it wedged: kernel log and uevent",
        value="rebind,bus-reset",
        value_help=f"what WEDGED is, or {AT_LOAD}: i915 could not start it, and sends no uevent",
        inject=_wedged,
        undo=_no_longer_wedged,
    ),
    "recovery": spoken_fault(
        summary="the kernel recovers a function from a fatal PCI error, or fails to",
        value="begun",
        value_help="begun or failed",
        inject=_recovery,
        undo=_after_recovery,
    ),
    "firmware": spoken_fault(
        summary="the driver of a network card reports an error of its firmware, by devlink",
        value="fw_fatal",
        value_help=f"health reporter, and `{_WITHOUT_RECOVERY}` where its driver knows none",
        inject=_firmware(is_in_error=True),
        undo=_firmware(is_in_error=False),
    ),
    "gpu-reset": spoken_fault(
        summary="AMD's driver reports by KFD that it resets a GPU; --clear: that the reset is done",
        value="ring hang",
        value_help="cause",
        inject=_gpu_reset(PRE_RESET),
        undo=_gpu_reset(POST_RESET),
    ),
    "reset-hangs": spoken_fault(
        summary="AMD's driver logs that it resets a GPU, and not how that ends; --clear: it logs that it succeeded",
        value="1",
        value_help="number of the source",
        inject=_reset_hangs,
        undo=_reset_ends,
    ),
    "uevent": spoken_fault(
        summary="the kernel sends a uevent",
        at=DEVICE,
        value="change",
        value_help="ACTION NAME=VALUE …",
        inject=_uevent,
        undone_by="send the event that takes it back",
    ),
    "kernel-log": spoken_fault(
        summary="the kernel logs a record, for the driver of a function if one is given",
        at=ANY_FUNCTION,
        value_help="text",
        inject=_kernel_log,
        undone_by="write what takes it back",
    ),
}
