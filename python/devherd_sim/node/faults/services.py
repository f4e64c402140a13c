"""Faults that programs beside the driver tell of: NVIDIA's library, AMD's metrics exporter, Intel's xpumd."""

from collections.abc import Callable
from pathlib import Path

from devherd.errors import UsageError
from devherd_sim.node import monitors, nvml_script
from devherd_sim.node.faults.fault import FUNCTION, Act, Fault, Scope
from devherd_sim.node.simulated_node import SimulatedNode

GPU_OR_LIBRARY = "PCI address of a GPU, or - for the library"


def _nvml(node: SimulatedNode, at: str, value: str) -> None:
    nvml_script.say(node, at, value)


def _nvml_again(node: SimulatedNode, _at: str, _value: str) -> None:
    nvml_script.write(node)


def _of_nvml(node: SimulatedNode, at: str) -> Path:
    return nvml_script.statements_about(node.root, at)


def _monitor(monitor: monitors.Monitor) -> Act:
    def act(node: SimulatedNode, at: str, value: str) -> None:
        if at not in monitor.gpus(node.root):
            known = ", ".join(monitor.gpus(node.root)) or "there is no GPU of its vendor"
            raise UsageError(f"{monitor.name} knows no GPU {at}", f"choose from {known}", "name one of them")
        if value not in monitor.words:
            raise UsageError(f"{monitor.name} does not say {value!r}", f"choose from {', '.join(monitor.words)}", "")
        monitor.say(node.root, at, value)

    return act


def _of(file: Callable[[Path, str], Path]) -> Scope:
    return lambda node, at: file(node.root, at)


FAULTS = {
    "nvml": Fault(
        summary="the stub of NVIDIA's library says something: see tests/nvml/stub of the source; it reads DIR/nvml.txt",
        at=GPU_OR_LIBRARY,
        value_help="`field id=230 value=1`, `event kind=8 data=79`, `fail FUNCTION CODE`, `hang FUNCTION`, …",
        inject=_nvml,
        undo=_nvml_again,
        scope=_of_nvml,
    ),
    **{
        monitor.name: Fault(
            summary=f"what {monitor.title} says of a GPU, while `devherd sim monitor DIR {monitor.name}` runs",
            at=FUNCTION,
            value=monitor.words[-1],
            value_help=", ".join(monitor.words),
            inject=_monitor(monitor),
            scope=_of(monitor.file_about),
        )
        for monitor in monitors.MONITORS.values()
    },
}
