"""What vendors' monitors say of the GPUs of a simulated node: a file a GPU, by its PCI address.

`devherd sim monitor` serves it (devherd_sim/monitors.py), a fault changes it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from devherd.health.sources import AMD_EXPORTER, XPUMD

_SAID = ".devherd-monitors"


@dataclass(frozen=True, slots=True)
class Monitor:
    """One of them. Of a GPU without a file it says the first of its words."""

    name: str
    title: str
    socket: str
    """Where it listens, below the root of the tree."""
    drivers: tuple[str, ...]
    words: tuple[str, ...]
    """From well to ill."""

    def gpus(self, root: Path) -> list[str]:
        """The PCI addresses of those that it knows."""
        drivers = (root / "sys/bus/pci/drivers" / driver for driver in self.drivers)
        return sorted(path.name for driver in drivers for path in driver.glob("*:*:*.*"))

    def file_about(self, root: Path, gpu: str) -> Path:
        """Where it is written what it says of a GPU."""
        return root / _SAID / f"{self.name}-{gpu}"

    def say(self, root: Path, gpu: str, word: str) -> None:
        """Have it say something else from now on."""
        file = self.file_about(root, gpu)
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"{word}\n")

    def said(self, root: Path) -> dict[str, str]:
        """What it says of each GPU."""
        files = {gpu: self.file_about(root, gpu) for gpu in self.gpus(root)}
        return {gpu: file.read_text().strip() if file.exists() else self.words[0] for gpu, file in files.items()}


MONITORS: Mapping[str, Monitor] = MappingProxyType(
    {
        monitor.name: monitor
        for monitor in (
            Monitor(
                AMD_EXPORTER,
                "AMD's metrics exporter",
                "var/lib/amd-metrics-exporter/amdgpu_device_metrics_exporter_grpc.socket",
                ("amdgpu",),
                ("healthy", "unknown", "unhealthy"),
            ),
            Monitor(
                XPUMD,
                "Intel's xpumd",
                "run/xpumd/intelxpuinfo.sock",
                ("xe", "i915"),
                ("ok", "warning", "failed", "critical"),
            ),
        )
    }
)
