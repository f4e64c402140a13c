"""Which devices' drivers have dumped their state, as they do when a card hangs.

The kernel has each dump in `/sys/class/devcoredump/devcd<n>`, whose link `failing_device` leads to the device; it
removes the dump after five minutes, or after an hour where the driver wants that (xe), and at once when somebody writes
to `data`: drivers/base/devcoredump.c. Here the links are looked at. `data` is left to whoever wants it: a read can take
minutes.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from devherd._native import Finding
from devherd.health.registry import DEVICE_DUMP
from devherd.health.seen import Seen
from devherd.inventory import Entry

_DUMPS = Path("/sys/class/devcoredump")
_PREFIX = "devcd"


class Dump(NamedTuple):
    """One dump, by paths of the host."""

    place: str
    """`/sys/class/devcoredump/devcd1`."""
    device: str
    """`/sys/devices/pci0000:00/0000:00:01.0/0000:03:00.0`."""
    driver: str
    """Of the device; empty where it has none by now."""


def take_in(seen: Seen, entries: Iterable[Entry], host_root: Path) -> None:
    """Note of which of these devices there is a dump. Without the kernel's CONFIG_DEV_COREDUMP there never is."""
    try:
        found = dumps(host_root)
    except FileNotFoundError:
        return
    except OSError as error:
        seen.failed[DEVICE_DUMP] = f"{_DUMPS}: {error.strerror}"
        return
    for entry in entries if found else ():
        of_entry = [_finding(dump) for dump in found if _is_about(dump, entry.device.functions)]
        if of_entry:
            seen.add(entry.key, of_entry)


def dumps(host_root: Path) -> list[Dump]:
    """All dumps that there are now, by name. Raises OSError where they cannot be listed."""
    names = sorted(path.name for path in _below(host_root, _DUMPS).iterdir() if path.name.startswith(_PREFIX))
    return [dump for name in names if (dump := _dump(host_root, _DUMPS / name)) is not None]


def _dump(host_root: Path, place: Path) -> Dump | None:
    """None for one that goes at this moment, or of which the kernel does not say whose it is."""
    link = _below(host_root, place) / "failing_device"
    try:
        device = link.resolve(strict=True)
        on_host = device.relative_to(host_root.resolve())
    except (OSError, RuntimeError, ValueError):  # a loop of links is one of the first two; another place is no host's
        return None
    driver = device / "driver"
    name = driver.readlink().name if driver.is_symlink() else ""
    return Dump(str(place), f"/{on_host}", name)


def _is_about(dump: Dump, functions: Iterable[str]) -> bool:
    """Whether it is of one of these PCI functions, or of a part of one."""
    return any(f"{dump.device}/".startswith(f"{function}/") for function in functions)


def _finding(dump: Dump) -> Finding:
    driver = dump.driver or "its driver"
    return Finding(
        source=DEVICE_DUMP,
        reason=DEVICE_DUMP,
        detail=f"{driver} has dumped the device's state; copy {dump.place}/data before the kernel removes it",
        file=dump.place,
        value=dump.driver,
    )


def _below(host_root: Path, place: Path) -> Path:
    return host_root / place.relative_to("/")
