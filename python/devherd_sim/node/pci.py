"""PCI functions and the bridges above them in sysfs, and the slots of cards."""

import re
import shutil
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from devherd.errors import UsageError
from devherd_sim.node import machine
from devherd_sim.node.entry import Entry, File, attributes, link, named_link
from devherd_sim.node.kernel_events import Uevents
from devherd_sim.node.tree import rewrite

BRIDGE_CLASS = 0x060400
ACCELERATOR_CLASS = 0x120000
_INTEL = 0x8086
_ROOT_PORT = 0x2030
_LINK = {"max_link_speed": "8.0 GT/s PCIe", "max_link_width": "8"}
_LINK_STATUS = {"current_link_speed": "8.0 GT/s PCIe", "current_link_width": "8"}
# A virtual function's link status register reads zero (PCIe base specification, SR-IOV).
_VIRTUAL_LINK_STATUS = {"current_link_speed": "Unknown", "current_link_width": "0"}
_UNCORRECTABLE = (
    *("Undefined", "DLP", "SDES", "TLP", "FCP", "CmpltTO", "CmpltAbrt", "UnxCmplt", "RxOF", "MalfTLP", "ECRC"),
    *("UnsupReq", "ACSViol", "UncorrIntErr", "BlockedTLP", "AtomicOpBlocked", "TLPBlockedErr", "PoisonTLPBlocked"),
)
_CORRECTABLE = ("RxErr", "BadTLP", "BadDLLP", "Rollover", "Timeout", "NonFatalErr", "CorrIntErr", "HeaderOF")


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """One function of a PCI device. `path` is its sysfs directory, relative to the host root."""

    path: str
    vendor: int = _INTEL
    device: int
    pci_class: int = ACCELERATOR_CLASS
    driver: str | None
    numa_node: int = -1
    physical: str | None = None
    """Path of its physical function, if it is a virtual one."""
    virtual: tuple[str, ...] = ()
    """Paths of its virtual functions."""
    slot: str = ""
    """Domain, bus and device of the slot below it, if it is a port with a slot: `0000:81:00`."""

    @property
    def address(self) -> str:
        """The PCI address, `0000:81:00.0`."""
        return self.path.rpartition("/")[2]


def entries(function: Function) -> list[Entry]:
    """The function's own directory and the links of the PCI bus to it."""
    return [
        *_facts(function),
        *attributes(function.path, _LINK | (_VIRTUAL_LINK_STATUS if function.physical else _LINK_STATUS)),
        *_error_counts(function.path),
        *_kinship(function),
        link(f"{function.path}/subsystem", "sys/bus/pci"),
        named_link("sys/bus/pci/devices", function.path),
        *_binding(function),
        *_slot(function.slot),
    ]


def _slot(address: str) -> list[Entry]:
    """The slot at `0000:81:00`, numbered by its bus."""
    if not address:
        return []
    domain, bus, _ = address.split(":")
    name = f"{int(bus, 16)}" if int(domain, 16) == 0 else f"{int(bus, 16)}-{int(domain, 16)}"
    return [File.line(f"sys/bus/pci/slots/{name}/address", address)]


def _binding(function: Function) -> list[Entry]:
    if function.driver is None:
        return []
    driver = f"sys/bus/pci/drivers/{function.driver}"
    return [link(f"{function.path}/driver", driver), named_link(driver, function.path)]


def bridge_above(path: str, numa_node: int) -> Function:
    """The root port above the function at `path`."""
    return Function(
        path=path.rpartition("/")[0],
        device=_ROOT_PORT,
        pci_class=BRIDGE_CLASS,
        driver="pcieport",
        numa_node=numa_node,
        slot=path.rpartition("/")[2].rpartition(".")[0],
    )


def error_count(kind: str, count: int) -> str:
    """The content of `aer_dev_<kind>` with `count` errors: BadTLP if correctable, TLP otherwise."""
    names, ordinary = (_CORRECTABLE, "BadTLP") if kind == "correctable" else (_UNCORRECTABLE, "TLP")
    total = {"correctable": "COR", "fatal": "FATAL", "nonfatal": "NONFATAL"}[kind]
    lines = [f"{name} {count if name == ordinary else 0}" for name in names]
    return "\n".join([*lines, f"TOTAL_ERR_{total} {count}"])


def _facts(function: Function) -> list[Entry]:
    driver = f"DRIVER={function.driver}\n" if function.driver else ""
    uevent = (
        f"{driver}PCI_CLASS={function.pci_class:X}\nPCI_ID={function.vendor:04X}:{function.device:04X}\n"
        f"PCI_SUBSYS_ID={function.vendor:04X}:0000\nPCI_SLOT_NAME={function.address}\n"
        f"MODALIAS=pci:v{function.vendor:08X}d{function.device:08X}sv{function.vendor:08X}sd00000000"
        f"bc{function.pci_class >> 16:02X}sc{function.pci_class >> 8 & 0xFF:02X}i{function.pci_class & 0xFF:02X}"
    )
    facts = {
        "uevent": uevent,
        "class": f"0x{function.pci_class:06x}",
        "vendor": f"0x{function.vendor:04x}",
        "device": f"0x{function.device:04x}",
        "subsystem_vendor": f"0x{function.vendor:04x}",
        "subsystem_device": "0x0000",
        "revision": "0x00",
        "enable": "1",
        "numa_node": str(function.numa_node),
        "local_cpulist": machine.cpulist(function.numa_node),
        "power_state": "D0",
    }
    return attributes(function.path, facts)


def _error_counts(path: str) -> list[Entry]:
    return [File.line(f"{path}/aer_dev_{kind}", error_count(kind, 0)) for kind in ("correctable", "fatal", "nonfatal")]


def _kinship(function: Function) -> list[Entry]:
    """Links between a physical function and its virtual ones."""
    if function.physical:
        return [link(f"{function.path}/physfn", function.physical)]
    if function.pci_class == BRIDGE_CLASS:
        return []
    count, total = str(len(function.virtual)), str(max(8, len(function.virtual)))
    return [
        *attributes(function.path, {"sriov_totalvfs": total, "sriov_numvfs": count, "sriov_drivers_autoprobe": "1"}),
        *(link(f"{function.path}/virtfn{index}", path) for index, path in enumerate(function.virtual)),
    ]


_LARGEST = 19 * 8  # functions of root ports on a bus, below the slot of the USB controller


class Slots:
    """Assigns slots to cards: each card gets the next free one near its NUMA node."""

    def __init__(self, numa_nodes: int) -> None:
        self.numa_nodes = numa_nodes
        self._taken: Counter[int] = Counter()

    def take(self, numa_node: int) -> str:
        """The sysfs directory of the next card near a NUMA node; -1 = no node."""
        self._taken[numa_node] += 1
        return pci_path(self._taken[numa_node] - 1, numa_node, self.numa_nodes)


def pci_path(index: int, numa_node: int, numa_nodes: int) -> str:
    """The sysfs directory of the `index`-th card near a NUMA node; a full bus range continues in the next domain."""
    span = 256 // max(numa_nodes, 1)
    domain, index = divmod(index, min(span - 2, _LARGEST))
    root = max(numa_node, 0) * span
    prefix = f"{domain:04x}"
    root_port = f"{prefix}:{root:02x}:{1 + index // 8:02x}.{index % 8}"
    return f"sys/devices/pci{prefix}:{root:02x}/{root_port}/{prefix}:{root + 1 + index:02x}:00.0"


def numa_node_of(index: int, cards: int, numa_nodes: int) -> int:
    """The NUMA node of the `index`-th of `cards` cards; -1 if `numa_nodes` is 0."""
    return index * numa_nodes // cards if numa_nodes else -1


def virtual_function(physical: str, index: int) -> str:
    """The directory of a virtual function, numbered from 1: eight per device, as with alternative routing IDs."""
    return f"{physical[:-4]}{index // 8:02x}.{index % 8}"


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
