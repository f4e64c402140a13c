"""A simulated node that changes while it is read: faults, repairs, reprogramming, cards added and removed.

Attributes are rewritten in place, as in sysfs. Nodes, links and directories are created and removed as by udev
and the kernel. Devices and drivers get the kernel's uevents; attributes get none.
"""

import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

from devherd.config.resolved import NVML_ANSWER
from devherd.errors import UsageError
from devherd_sim.node import kfd
from devherd_sim.node.entry import Entry
from devherd_sim.node.intel_fpga import CardPlan, Numbers
from devherd_sim.node.kernel_events import Devlink, KernelLog, Uevents
from devherd_sim.node.kfd import KfdRebuild
from devherd_sim.node.nvidia_faults import NvidiaGpus
from devherd_sim.node.pci import PciFunctions, pci_path, remove_dangling
from devherd_sim.node.spec import NodeSpec, amd_gpus, card_entries, entries
from devherd_sim.node.tree import is_simulated, put, remove, rewrite, write_tree

_NUMBERED = {
    "dfl card": ("sys/class/fpga_region", "region"),
    "dfl fme": ("sys/bus/platform/devices", "dfl-fme."),
    "dfl port": ("sys/bus/platform/devices", "dfl-port."),
    "opae card": ("sys/class/fpga", "intel-fpga-dev."),
    "opae fme": ("sys/bus/platform/devices", "intel-fpga-fme."),
    "opae port": ("sys/bus/platform/devices", "intel-fpga-port."),
    "hwmon": ("sys/class/hwmon", "hwmon"),
}
FAULTS_DIRECTORY = ".devherd-faults"
"""Directory in the root of the tree that stores the changes of injected faults (devherd_sim.node.faults)."""
_WAYS_IN = ("sys/class/", "sys/bus/", "sys/dev/", "dev/")
"""The directories in which a scan for devices starts."""


class SimulatedNode:
    """The node below `root`. Ports and devices are named as in /dev: `dfl-port.0`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.uevents = Uevents(root)
        self.kernel_log = KernelLog(root)
        self.devlink = Devlink(root)
        self.functions = PciFunctions(root)
        self.nvidia = NvidiaGpus(root)

    @classmethod
    def create(cls, root: Path, spec: NodeSpec) -> "SimulatedNode":
        """Write a node, replacing an earlier simulated one in the directory.

        Raises UsageError when the directory holds anything else.
        """
        _make_room(root)
        write_tree(entries(spec), root)
        node = cls(root)
        node.kernel_log.begin()
        node.devlink.begin()
        return node

    def repair(self, spec: NodeSpec) -> None:
        """Restore every missing entry of the spec and the initial value of every attribute."""
        self.put_back(entries(spec))

    def put_back(self, made: list[Entry]) -> None:
        """Restore these entries and send the uevents of the changes."""
        with self.uevents.of_changes():
            self._put_in_order(made)

    def put_attributes_back(self, made: list[Entry]) -> None:
        """Restore these entries without uevents, for changes that add and remove no device and no driver."""
        self._put_in_order(made)

    def ports(self) -> list[str]:
        """The names of all FPGA ports."""
        names = (path.name for path in (self.root / "sys/bus/platform/devices").glob("*-port.*"))
        return sorted(names, key=lambda name: (name.rpartition(".")[0], int(name.rpartition(".")[2])))

    def path_of(self, device: str) -> Path:
        """The sysfs directory of a port or management engine. Raises UsageError when it does not exist."""
        place = self.root / "sys/bus/platform/devices" / device
        if not place.exists():
            raise UsageError(
                f"no device {device} on {self.root}", "nothing in sys/bus/platform/devices", "name another"
            )
        return place.resolve()

    def write(self, attribute: str, text: str) -> None:
        """Write a line to an attribute, given by its path below the root."""
        rewrite(self.root / attribute, f"{text}\n".encode())

    def pci_function_of(self, device: str) -> Path:
        """The sysfs directory of the PCI function that a port or engine is on."""
        return next(path for path in self.path_of(device).parents if re.fullmatch(r"[\da-f:]+\.[0-7]", path.name))

    def add_card(self, plan: CardPlan | None = None) -> list[str]:
        """Add a card and return its ports. Default: the card of preset `fpga-1`, in the first free slot."""
        before = set(self.ports())
        plan = plan or CardPlan(driver="dfl", path=self._free_slot())
        with self.uevents.of_changes():
            self._put_in_order(card_entries(plan, self._numbers()))
        return [port for port in self.ports() if port not in before]

    def remove_card(self, port: str) -> None:
        """Remove the card that a port is on: its device nodes, its directory, then all links to it."""
        root_port = self.pci_function_of(port).parent
        with self.uevents.of_changes():
            for number in root_port.rglob("dev"):
                (self.root / "dev" / number.parent.name).unlink(missing_ok=True)
            shutil.rmtree(root_port)
            for directory in ("sys/class", "sys/bus", "sys/dev", "dev"):
                remove_dangling(self.root / directory)

    def change(self, before: NodeSpec, after: NodeSpec, look: Callable[[], object] = lambda: None) -> None:
        """Change the node from one spec to another, as when a driver loads or a GPU is repartitioned.

        Common entries stay unchanged, except KFD's topology: it is rebuilt as by the kernel, and `look` is called after
        each step.
        """
        old, new = ({entry.path: entry for entry in entries(spec)} for spec in (before, after))
        rebuild = self._rebuild(before, after)
        if rebuild is not None:
            old, new = (
                {path: entry for path, entry in made.items() if not path.startswith(kfd.TOPOLOGY)}
                for made in (old, new)
            )
        with self.uevents.of_changes():
            for _ in rebuild.leave() if rebuild else ():
                look()
            self._exchange(old, new)
            for _ in rebuild.come() if rebuild else ():
                look()

    def _rebuild(self, before: NodeSpec, after: NodeSpec) -> KfdRebuild | None:
        """The rebuild of KFD's topology; None if KFD is missing before or after, or its GPUs are the same."""
        (old, _), (new, sockets) = amd_gpus(before), amd_gpus(after)
        return KfdRebuild(self.root, old, new, sockets) if old and new and old != new else None

    def exchange(self, old: Mapping[str, Entry], new: Mapping[str, Entry]) -> None:
        """Replace entries, given by path, by others, and send the uevents of the changes."""
        with self.uevents.of_changes():
            self._exchange(old, new)

    def _exchange(self, old: Mapping[str, Entry], new: Mapping[str, Entry]) -> None:
        for path in sorted(old.keys() - new.keys(), key=_ways_in_first):
            remove(self.root / path, self.root)
        self._put_in_order([entry for path, entry in new.items() if old.get(path) != entry])

    def _put_in_order(self, made: list[Entry]) -> None:
        """Write the entries by which a device is found last, so that a scan finds no incomplete device."""
        for entry in sorted(made, key=lambda entry: entry.path.startswith(_WAYS_IN)):
            put(entry, self.root)

    def _free_slot(self) -> str:
        slots = (pci_path(index, 0, 2) for index in range(1024))
        return next(path for path in slots if not (self.root / path).exists())

    def _numbers(self) -> Numbers:
        """The kernel's counters, continuing after the existing devices."""
        numbers = Numbers()
        for kind, (directory, prefix) in _NUMBERED.items():
            found = (path.name.removeprefix(prefix) for path in (self.root / directory).glob(f"{prefix}*"))
            numbers.used[kind] = max((int(number) + 1 for number in found if number.isdecimal()), default=0)
        return numbers


def _make_room(root: Path) -> None:
    """Clear an earlier simulated node. Raises UsageError when the directory holds anything else."""
    if root.exists() and not root.is_dir():
        raise UsageError(f"cannot write a node to {root}", "it is not a directory", "give a directory")
    if not root.exists() or not any(root.iterdir()):
        return
    if not is_simulated(root):
        raise UsageError(
            f"will not write a node to {root}",
            "it holds files that are not a simulated node",
            "give an empty directory",
        )
    for top in ("sys", "proc", "dev"):
        if (root / top).exists():
            shutil.rmtree(root / top)
    (root / NVML_ANSWER).unlink(missing_ok=True)
    shutil.rmtree(root / FAULTS_DIRECTORY, ignore_errors=True)


def _ways_in_first(path: str) -> tuple[bool, str]:
    return not path.startswith(_WAYS_IN), path
