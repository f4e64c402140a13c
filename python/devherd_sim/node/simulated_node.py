"""A simulated node that changes while something looks at it: faults, repairs, reprogramming, cards that come and go.

Attributes are rewritten in their inodes, as sysfs has them; nodes, links and directories come and go, as udev and the
kernel make them do, and uevents say so where the kernel sends some: for devices and drivers, not for attributes.
"""

import re
import shutil
from collections.abc import Callable
from pathlib import Path

from devherd.errors import UsageError
from devherd.simulated_host import NVML_ANSWER
from devherd_sim.node import kfd, pci
from devherd_sim.node.devlink import Devlink
from devherd_sim.node.entry import DeviceNode, Entry
from devherd_sim.node.fpga_card import CardPlan, Numbers
from devherd_sim.node.kernel_log import KernelLog
from devherd_sim.node.kfd_rebuild import KfdRebuild
from devherd_sim.node.nvidia_faults import NvidiaGpus
from devherd_sim.node.pci_faults import PciFunctions, remove_dangling
from devherd_sim.node.pci_slots import pci_path
from devherd_sim.node.spec import NodeSpec, amd_gpus, card_entries, entries
from devherd_sim.node.tree import is_simulated, put, remove, rewrite, write_tree
from devherd_sim.node.uevents import Uevents

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
"""In the root of the tree: what faults have changed (faults.py)."""
_WAYS_IN = ("sys/class/", "sys/bus/", "sys/dev/", "dev/")
"""Where those who look for devices begin."""


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
        """Write a node; an earlier simulated one at this place is replaced.

        Raises UsageError when the directory holds anything else.
        """
        _make_room(root)
        write_tree(entries(spec), root)
        node = cls(root)
        node.kernel_log.begin()
        node.devlink.begin()
        return node

    def repair(self, spec: NodeSpec) -> None:
        """Put back whatever the node is to have and has lost, and every attribute's first value."""
        self.put_back(entries(spec))

    def put_back(self, made: list[Entry]) -> None:
        """Put these entries back, whatever has become of them."""
        with self.uevents.of_changes():
            self._put_in_order(made)

    def put_attributes_back(self, made: list[Entry]) -> None:
        """The same where no device and no driver has come or gone, so that there is no event to be looked for."""
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
        """Give an attribute, by its path below the root, a new line."""
        rewrite(self.root / attribute, f"{text}\n".encode())

    def fail_port(self, port: str, errors: int = 0x1) -> None:
        """Raise errors of a port, as a malformed request of its accelerator does."""
        rewrite(self.path_of(port) / "errors/errors", f"0x{errors:x}\n".encode())

    def heal_port(self, port: str) -> None:
        """Clear the errors of a port."""
        self.fail_port(port, 0)

    def reprogram_port(self, port: str, afu_id: str) -> None:
        """Load another accelerator function: 32 hexadecimal digits; all `f` is what a dead port shows."""
        rewrite(self.path_of(port) / "afu_id", f"{afu_id}\n".encode())

    def remove_node(self, device: str) -> None:
        """Take a device's node out of /dev and leave the device in sysfs. A node that is gone already is fine."""
        (self.root / "dev" / device).unlink(missing_ok=True)

    def return_node(self, device: str) -> None:
        """Put the node back, with its device number from sysfs."""
        major, _, minor = (self.path_of(device) / "dev").read_text().strip().partition(":")
        put(DeviceNode(f"dev/{device}", "char", int(major), int(minor)), self.root)

    def pci_function_of(self, device: str) -> Path:
        """The sysfs directory of the PCI function that a port or engine is on."""
        return next(path for path in self.path_of(device).parents if re.fullmatch(r"[\da-f:]+\.[0-7]", path.name))

    def degrade_link(self, device: str, width: int = 1) -> None:
        """Let the PCI link of a device run with fewer lanes; 8 is what it can do."""
        rewrite(self.pci_function_of(device) / "current_link_width", f"{width}\n".encode())

    def count_fatal_errors(self, device: str, count: int) -> None:
        """Set the count of fatal PCI errors of a device's function."""
        rewrite(self.pci_function_of(device) / "aer_dev_fatal", f"{pci.error_count('fatal', count)}\n".encode())

    def add_card(self, plan: CardPlan | None = None) -> list[str]:
        """Plug in a card: by default one like those of `fpga-1`, in the first free slot. Returns its ports."""
        before = set(self.ports())
        plan = plan or CardPlan(driver="dfl", path=self._free_slot())
        with self.uevents.of_changes():
            self._put_in_order(card_entries(plan, self._numbers()))
        return [port for port in self.ports() if port not in before]

    def remove_card(self, port: str) -> None:
        """Pull out the card that a port is on: its nodes, its directory, then every link to it."""
        root_port = self.pci_function_of(port).parent
        with self.uevents.of_changes():
            for number in root_port.rglob("dev"):
                self.remove_node(number.parent.name)
            shutil.rmtree(root_port)
            for directory in ("sys/class", "sys/bus", "sys/dev", "dev"):
                remove_dangling(self.root / directory)

    def change(self, before: NodeSpec, after: NodeSpec, look: Callable[[], object] = lambda: None) -> None:
        """Turn the node of one spec into that of another: a driver loads, a GPU is repartitioned.

        What both have is not touched, but KFD's topology: that is built anew, as the kernel does, and `look` is called
        after each step.
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
            for path in sorted(old.keys() - new.keys(), key=_ways_in_first):
                remove(self.root / path, self.root)
            self._put_in_order([entry for path, entry in new.items() if old.get(path) != entry])
            for _ in rebuild.come() if rebuild else ():
                look()

    def _rebuild(self, before: NodeSpec, after: NodeSpec) -> KfdRebuild | None:
        """None where KFD is not there before and after, or its GPUs stay the same."""
        (old, _), (new, sockets) = amd_gpus(before), amd_gpus(after)
        return KfdRebuild(self.root, old, new, sockets) if old and new and old != new else None

    def _put_in_order(self, made: list[Entry]) -> None:
        """Attributes first, the entries by which it is found last: a device never shows up half made."""
        for entry in sorted(made, key=lambda entry: entry.path.startswith(_WAYS_IN)):
            put(entry, self.root)

    def _free_slot(self) -> str:
        slots = (pci_path(index, 0, 2) for index in range(1024))
        return next(path for path in slots if not (self.root / path).exists())

    def _numbers(self) -> Numbers:
        """The kernel's counters, going on from what is there."""
        numbers = Numbers()
        for kind, (directory, prefix) in _NUMBERED.items():
            found = (path.name.removeprefix(prefix) for path in (self.root / directory).glob(f"{prefix}*"))
            numbers.used[kind] = max((int(number) + 1 for number in found if number.isdecimal()), default=0)
        return numbers


def _make_room(root: Path) -> None:
    """An empty directory, or a simulated node that is cleared."""
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
