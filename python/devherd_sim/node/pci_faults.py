"""Changes of PCI functions on a simulated node: drivers are unbound, cards are removed."""

import re
import shutil
from pathlib import Path

from devherd.errors import UsageError
from devherd_sim.node.kernel_events import Uevents
from devherd_sim.node.tree import rewrite

_ADDRESS = re.compile(r"[\da-f]{4,}:[\da-f]{2}:[\da-f]{2}\.[0-7]")
_DEVNAME = re.compile(r"^DEVNAME=(.+)$", re.MULTILINE)


class PciFunctions:
    """The functions of the node below `root`, by address."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._uevents = Uevents(root)

    def path_of(self, address: str) -> Path:
        """The sysfs directory of a function. Raises UsageError when it does not exist."""
        place = self.root / "sys/bus/pci/devices" / address
        if not place.exists():
            raise UsageError(f"no function {address} on {self.root}", "nothing in sys/bus/pci/devices", "name another")
        return place.resolve()

    def unbind(self, address: str) -> None:
        """Unbind the driver: its devices and the link to it are removed."""
        function = self.path_of(address)
        with self._uevents.of_changes():
            self._let_go(function, address)

    def _let_go(self, function: Path, address: str) -> None:
        made = [path for path in function.iterdir() if path.is_dir() and not path.is_symlink()]
        for path in made:
            if not _ADDRESS.fullmatch(path.name):
                self._remove(path)
        driver = (function / "driver").resolve()
        (driver / address).unlink(missing_ok=True)
        (function / "driver").unlink(missing_ok=True)
        text = (function / "uevent").read_text()
        rewrite(function / "uevent", re.sub(r"^DRIVER=.*\n", "", text, flags=re.MULTILINE).encode())
        self._tidy()

    def take_away(self, address: str) -> None:
        """Remove one function and its driver's devices; the card's other functions stay."""
        function = self.path_of(address)
        with self._uevents.of_changes():
            self._remove(function)
            self._tidy()

    def pull_out(self, address: str) -> None:
        """Remove the card that a function is on, with all its functions."""
        card = self.path_of(address).parent
        with self._uevents.of_changes():
            self._remove(card)
            self._tidy()

    def _remove(self, directory: Path) -> None:
        """Remove a directory of sysfs and the nodes below /dev of the devices in it."""
        for uevent in directory.rglob("uevent"):
            name = _DEVNAME.search(uevent.read_text())
            if name is not None:
                (self.root / "dev" / name[1]).unlink(missing_ok=True)
        shutil.rmtree(directory)

    def _tidy(self) -> None:
        for top in ("sys/class", "sys/bus", "sys/dev", "dev"):
            remove_dangling(self.root / top)


def remove_dangling(directory: Path) -> None:
    """Remove the dangling links below a directory."""
    for path in sorted(directory.rglob("*"), reverse=True):
        if path.is_symlink() and not path.exists():
            path.unlink()
