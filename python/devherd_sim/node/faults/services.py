"""Faults of user-space programs or reported by them: NVIDIA's library and daemon, the vendors' monitors."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from devherd.errors import UsageError
from devherd.reasons import registry
from devherd.reasons.registry import AMD_EXPORTER, XPUMD
from devherd_sim.node import nvml_script
from devherd_sim.node.faults.fault import FUNCTION, Act, Fault, Scope
from devherd_sim.node.nvidia import stop_fabric_manager
from devherd_sim.node.simulated_node import SimulatedNode

_DIRECTORY = ".devherd-monitors"


@dataclass(frozen=True, slots=True)
class Monitor:
    """A vendor's monitor. If a GPU has no health file, it reports the first of its words."""

    name: str
    title: str
    socket: str
    """The path of its socket, relative to the root of the tree."""
    drivers: tuple[str, ...]
    words: tuple[str, ...]
    """Health words, from the best to the worst."""

    def gpus(self, root: Path) -> list[str]:
        """The PCI addresses of its GPUs."""
        drivers = (root / "sys/bus/pci/drivers" / driver for driver in self.drivers)
        return sorted(path.name for driver in drivers for path in driver.glob("*:*:*.*"))

    def file_about(self, root: Path, gpu: str) -> Path:
        """The file with the health word of a GPU."""
        return root / _DIRECTORY / f"{self.name}-{gpu}"

    def set_health(self, root: Path, gpu: str, word: str) -> None:
        """Set the health word of a GPU."""
        file = self.file_about(root, gpu)
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"{word}\n")

    def health(self, root: Path) -> dict[str, str]:
        """The health word of each GPU, by PCI address."""
        files = {gpu: self.file_about(root, gpu) for gpu in self.gpus(root)}
        return {gpu: file.read_text().strip() if file.exists() else self.words[0] for gpu, file in files.items()}


MONITORS: Mapping[str, Monitor] = MappingProxyType(
    {
        monitor.name: monitor
        for monitor in (
            Monitor(
                AMD_EXPORTER,
                "AMD's metrics exporter",
                registry.MONITORS[AMD_EXPORTER],
                ("amdgpu",),
                ("healthy", "unknown", "unhealthy"),
            ),
            Monitor(
                XPUMD,
                "Intel's xpumd",
                registry.MONITORS[XPUMD],
                ("xe", "i915"),
                ("ok", "warning", "failed", "critical"),
            ),
        )
    }
)


HOST = "- for the host"
GPU_OR_LIBRARY = "PCI address of a GPU, or - for the library"


def _nvml(node: SimulatedNode, at: str, value: str) -> None:
    nvml_script.append(node, at, value)


def _nvml_again(node: SimulatedNode, _at: str, _value: str) -> None:
    nvml_script.write(node)


def _of_nvml(node: SimulatedNode, at: str) -> Path:
    return nvml_script.statements_about(node.root, at)


def _fabric_manager(node: SimulatedNode, _at: str, _value: str) -> None:
    stop_fabric_manager(node.root)


def _processes(node: SimulatedNode, _at: str) -> Path:
    return node.root / "proc"


def _monitor(monitor: Monitor) -> Act:
    def act(node: SimulatedNode, at: str, value: str) -> None:
        if at not in monitor.gpus(node.root):
            known = ", ".join(monitor.gpus(node.root)) or "there is no GPU of its vendor"
            raise UsageError(f"{monitor.name} knows no GPU {at}", f"choose from {known}", "name one of them")
        if value not in monitor.words:
            raise UsageError(f"{monitor.name} does not say {value!r}", f"choose from {', '.join(monitor.words)}", "")
        monitor.set_health(node.root, at, value)

    return act


def _of(file: Callable[[Path, str], Path]) -> Scope:
    return lambda node, at: file(node.root, at)


FAULTS = {
    "nvml": Fault(
        summary="a statement for the stub of NVIDIA's library, which reads DIR/nvml.txt: see tests/nvml/stub",
        at=GPU_OR_LIBRARY,
        value_help="`field id=230 value=1`, `event kind=8 data=79`, `absent`, `fail FUNCTION CODE`, `hang FUNCTION`, …",
        inject=_nvml,
        undo=_nvml_again,
        scope=_of_nvml,
    ),
    "fabric-manager": Fault(
        summary="NVIDIA's fabric manager ends, on a node of NVIDIA's GPUs with `nvlink: switch`",
        at=HOST,
        inject=_fabric_manager,
        scope=_processes,
    ),
    **{
        monitor.name: Fault(
            summary=f"the health of a GPU by {monitor.title}, while `devherd sim monitor DIR {monitor.name}` runs",
            at=FUNCTION,
            value=monitor.words[-1],
            value_help=", ".join(monitor.words),
            inject=_monitor(monitor),
            scope=_of(monitor.file_about),
        )
        for monitor in MONITORS.values()
    },
}
