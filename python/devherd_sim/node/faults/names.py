"""Faults after which the kernel calls a device otherwise: it is renamed, or plugged into its port again."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from devherd.errors import UsageError
from devherd_sim.node.entry import DeviceNode, Entry, File, Symlink
from devherd_sim.node.faults.fault import Fault, tree_of
from devherd_sim.node.simulated_node import SimulatedNode

_USB_MAJOR = 189
_HIGHEST = 127
"""The numbers of a USB bus end here, and begin again after that of the root hub."""
_NAMED = {"uevent", "ibdev"}
"""The attributes that name a device."""


def _renamed(node: SimulatedNode, at: str, value: str) -> None:
    if not value or "/" in value:
        raise UsageError(f"no new name for {at}", f"{value!r} is none", "give a name such as card5")
    old = tree_of(node, node.root)
    if not any(at in path.split("/") for path in old):
        raise UsageError(f"nothing is called {at} on {node.root}", "no directory of that name", "name another")

    def other(name: str) -> str:
        is_it = name == at or name.startswith(f"{at}-")  # connectors: card0-DP-1
        return value + name.removeprefix(at) if is_it else name

    new = [_changed(entry, lambda path: "/".join(map(other, path.split("/")))) for entry in old.values()]
    node.exchange(old, {entry.path: entry for entry in new})


def _replugged(node: SimulatedNode, at: str, value: str) -> None:
    bus = node.root / "sys/bus/usb/devices"
    if not (bus / at / "devnum").is_file():
        raise UsageError(f"no USB device {at} on {node.root}", "nothing in sys/bus/usb/devices", "name a port: 1-1")
    place = (bus / at).resolve()
    number, on = (int((place / name).read_text()) for name in ("devnum", "busnum"))
    taken = {int(path.read_text()) for path in bus.glob(f"{on}-*/devnum")}
    free = next(each for each in [*range(number + 1, _HIGHEST + 1), *range(2, number)] if each not in taken)
    facts = {"devnum": str(free), "dev": _number(on, free)}
    facts |= dict(zip(("idVendor", "idProduct"), value.split(":"), strict=False)) if value else {}
    old = tree_of(node, node.root)
    device = _entries_of(node, place, old)
    node.exchange(old, {path: entry for path, entry in old.items() if path not in device})
    directory = str(place.relative_to(node.root.resolve()))
    again = [_plugged(entry, directory, facts, (on, number, free)) for entry in device.values()]
    node.exchange({}, {entry.path: entry for entry in again})


def _entries_of(node: SimulatedNode, place: Path, tree: Mapping[str, Entry]) -> dict[str, Entry]:
    """The entries in a device's directory, and the nodes and links of what is in it."""
    root = node.root.resolve()
    lines = (line for uevent in place.rglob("uevent") for line in uevent.read_text().splitlines())
    nodes = {root / "dev" / line.removeprefix("DEVNAME=") for line in lines if line.startswith("DEVNAME=")}

    def belongs(path: Path) -> bool:
        return path.is_relative_to(place) or path in nodes

    return {
        path: entry
        for path, entry in tree.items()
        if belongs(root / path) or (isinstance(entry, Symlink) and belongs((root / path).resolve()))
    }


def _plugged(entry: Entry, directory: str, facts: Mapping[str, str], numbers: tuple[int, int, int]) -> Entry:
    """The entry under the new number; `numbers`: bus, old number, new number."""
    on, number, free = numbers
    names = {f"{on:03}/{number:03}": f"{on:03}/{free:03}", _number(on, number): _number(on, free)}
    minor = _number(on, free).partition(":")[2]

    def other(path: str) -> str:
        for before, after in names.items():
            if path.endswith(f"/{before}"):
                return path.removesuffix(before) + after
        return path

    name = entry.path.removeprefix(f"{directory}/")
    if isinstance(entry, File) and name in facts:
        return File.line(entry.path, facts[name])
    if isinstance(entry, File) and name == "uevent":
        lines = _named_in(entry, other).decode().split("\n")
        lines = [f"MINOR={minor}" if line.startswith("MINOR=") else line for line in lines]
        return File(entry.path, "\n".join(lines).encode())
    if isinstance(entry, DeviceNode) and entry.major == _USB_MAJOR:
        return replace(entry, path=other(entry.path), minor=int(minor))
    return _changed(entry, other)


def _number(bus: int, number: int) -> str:
    """Major and minor number of a USB device: `usb_alloc_dev` in drivers/usb/core/usb.c of Linux."""
    return f"{_USB_MAJOR}:{(bus - 1) * 128 + number - 1}"


def _changed(entry: Entry, other: Callable[[str], str]) -> Entry:
    """The entry with other paths: its own, a link's target, the node that an attribute names."""
    path = other(entry.path)
    if isinstance(entry, Symlink):
        return replace(entry, path=path, target=other(entry.target))
    if isinstance(entry, File) and path.rpartition("/")[2] in _NAMED:
        return File(path, _named_in(entry, other))
    return replace(entry, path=path)


def _named_in(file: File, other: Callable[[str], str]) -> bytes:
    return "\n".join(_line(line, other) for line in file.content.decode().split("\n")).encode()


def _line(line: str, other: Callable[[str], str]) -> str:
    name, is_variable, value = line.partition("=")
    if not is_variable:
        return other(line)
    return f"{name}={other(value)}" if name == "DEVNAME" else line


FAULTS = {
    "renamed": Fault(
        summary="the kernel or udev calls a device otherwise: card0 becomes card5, mlx5_0 rocep1s0f1, ttyUSB0 ttyUSB1",
        at="name of a device",
        value_help="its new name",
        inject=_renamed,
    ),
    "replugged": Fault(
        summary="a USB device is plugged into its port again, and has the next number",
        at="USB port: 1-1",
        value_help="its new USB id, VENDOR:PRODUCT, as when its firmware was loaded",
        inject=_replugged,
    ),
}
