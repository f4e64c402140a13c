"""Uevents of a simulated node, in the kernel's format: <https://docs.kernel.org/core-api/kobject.html>.

They go to every program that listens to the node (listeners.py).
"""

import os
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from devherd_sim.node.listeners import tell_listeners

_PLAIN = {"module/*": "module", "class/*": "class", "bus/*": "bus", "bus/*/drivers/*": "drivers"}
"""Objects that are no devices and have events, by their place below /sys, and their subsystem."""


@dataclass(frozen=True, slots=True)
class _Object:
    """The kernel's events for one object."""

    subsystem: str
    driver: str | None = None
    variables: Mapping[str, str] = field(default_factory=dict)


class Uevents:
    """The events of the node below `root`."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def send(self, action: str, device: Path, **variables: str) -> None:
        """One event of a device, by its sysfs directory: `send("change", gpu, WEDGED="rebind")`."""
        place = device.resolve()
        found = _device_at(place) or _Object("")
        path = place.relative_to(self._root.resolve() / "sys")
        self._send([_message(action, f"/{path}", found, {"DRIVER": found.driver or "", **variables})])

    @contextmanager
    def of_changes(self) -> Iterator[None]:
        """What comes, goes, is bound and unbound meanwhile is sent at the end, in the kernel's order."""
        before = self._objects()
        yield
        self._send(_events(before, self._objects()))

    def _objects(self) -> dict[str, _Object]:
        """Every object that has events, by DEVPATH."""
        sys = self._root / "sys"
        found: dict[str, _Object] = {
            f"/{path.relative_to(sys)}": _Object(subsystem)
            for pattern, subsystem in _PLAIN.items()
            for path in sys.glob(pattern)
            if path.is_dir()
        }
        for directory, _, _ in os.walk(sys / "devices"):
            if (device := _device_at(Path(directory))) is not None:
                found[f"/{os.path.relpath(directory, sys)}"] = device
        return found

    def _send(self, messages: list[bytes]) -> None:
        tell_listeners(self._root, "uevents", messages)


def _device_at(directory: Path) -> _Object | None:
    """The device whose sysfs directory this is; None when it is no device's."""
    subsystem, driver, uevent = (directory / name for name in ("subsystem", "driver", "uevent"))
    if not subsystem.is_symlink():
        return None
    lines = uevent.read_text().splitlines() if uevent.exists() and stat.S_ISREG(uevent.stat().st_mode) else []
    variables = dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("DRIVER="))
    return _Object(subsystem.readlink().name, driver.readlink().name if driver.is_symlink() else None, variables)


def _events(before: Mapping[str, _Object], after: Mapping[str, _Object]) -> list[bytes]:
    """Children go before their parents and come after them; a driver is unbound first and bound last."""
    messages = []
    for path in sorted(before, reverse=True):
        was, now = before[path], after.get(path)
        if was.driver and (now is None or now.driver != was.driver):
            messages.append(_message("unbind", path, was))
        if now is None:
            messages.append(_message("remove", path, was))
    messages += [_message("add", path, after[path]) for path in sorted(after.keys() - before.keys())]
    for path in sorted(after, reverse=True):
        known, driver = before.get(path), after[path].driver
        if driver and (known is None or known.driver != driver):
            messages.append(_message("bind", path, after[path], {"DRIVER": driver}))
    return messages


def _message(action: str, path: str, about: _Object, more: Mapping[str, str] | None = None) -> bytes:
    variables = {"ACTION": action, "DEVPATH": path, "SUBSYSTEM": about.subsystem, **about.variables, **(more or {})}
    variables["SEQNUM"] = str(time.monotonic_ns())
    fields = (f"{name}={value}" for name, value in variables.items() if value)
    return "\0".join([f"{action}@{path}", *fields, ""]).encode()
