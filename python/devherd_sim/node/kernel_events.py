"""The messages of a simulated node's kernel: uevents, kernel log records, devlink messages."""

import fcntl
import os
import re
import socket
import stat
import struct
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from devherd_sim.node.tree import rewrite

SEND_SECONDS = 0.1
"""Seconds to wait for room at a listener; without room the message is dropped, as by the kernel."""


def tell_listeners(root: Path, what: str, messages: Iterable[bytes]) -> None:
    """Send messages to all processes that listen to `what` on the node below `root`."""
    messages = list(messages)
    if not messages:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.settimeout(SEND_SECONDS)
        for listener in _listeners(root, what):
            with suppress(OSError):  # the listener has ended or does not read
                for message in messages:
                    sender.sendto(message, listener)


def _listeners(root: Path, what: str) -> list[str]:
    status = root.stat()
    prefix = f"@devherd-{what}-{status.st_dev}-{status.st_ino}-"
    names = (line.rpartition(" ")[2] for line in Path("/proc/net/unix").read_text().splitlines())
    return ["\0" + name[1:] for name in names if name.startswith(prefix)]


_PLAIN = {"module/*": "module", "class/*": "class", "bus/*": "bus", "bus/*/drivers/*": "drivers"}
"""The subsystem of objects that have uevents but are not devices, by their path below /sys."""


@dataclass(frozen=True, slots=True)
class _Object:
    """An object in sysfs that has uevents."""

    subsystem: str
    driver: str | None = None
    variables: Mapping[str, str] = field(default_factory=dict)


class Uevents:
    """Sends the uevents of the node below `root`."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def send(self, action: str, device: Path, **variables: str) -> None:
        """Send one event of a device, given by its sysfs directory: `send("change", gpu, WEDGED="rebind")`."""
        place = device.resolve()
        found = _device_at(place) or _Object("")
        path = place.relative_to(self._root.resolve() / "sys")
        self._send([_message(action, f"/{path}", found, {"DRIVER": found.driver or "", **variables})])

    @contextmanager
    def of_changes(self) -> Iterator[None]:
        """On exit, send the events of objects created, removed, bound and unbound, in the kernel's order."""
        before = self._objects()
        yield
        self._send(_events(before, self._objects()))

    def _objects(self) -> dict[str, _Object]:
        """All objects that have events, by DEVPATH."""
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
    """The device with this sysfs directory; None if the directory does not belong to a device."""
    subsystem, driver, uevent = (directory / name for name in ("subsystem", "driver", "uevent"))
    if not subsystem.is_symlink():
        return None
    lines = uevent.read_text().splitlines() if uevent.exists() and stat.S_ISREG(uevent.stat().st_mode) else []
    variables = dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("DRIVER="))
    return _Object(subsystem.readlink().name, driver.readlink().name if driver.is_symlink() else None, variables)


def _events(before: Mapping[str, _Object], after: Mapping[str, _Object]) -> list[bytes]:
    """The events of a change: children are removed before and added after their parents; unbind is first, bind last."""
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


KERNEL = 0
USER = 1
"""The facility of records that user space writes."""
ERROR = 3
LONGEST_TEXT = 2048
"""`PRINTK_MESSAGE_MAX`: the kernel truncates longer texts."""
_LOOKED_BACK = 16384


class KernelLog:
    """The kernel log of the node below `root`."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._file = root / "dev/kmsg"

    def begin(self) -> None:
        """Create the log if it does not exist."""
        self._file.parent.mkdir(exist_ok=True)
        self._file.touch()

    def write(
        self, text: str, *, pci_address: str = "", facility: int = KERNEL, level: int = ERROR, monotonic: float = 0
    ) -> None:
        """Write one record, optionally about a PCI device. `monotonic`: its CLOCK_MONOTONIC time in s, 0 = now."""
        self.write_all([text], pci_address=pci_address, facility=facility, level=level, monotonic=monotonic)

    def write_all(
        self,
        texts: Iterable[str],
        *,
        pci_address: str = "",
        facility: int = KERNEL,
        level: int = ERROR,
        monotonic: float = 0,
    ) -> None:
        """Write records with the same time."""
        microseconds = int((monotonic or time.monotonic()) * 1e6)
        device = f" SUBSYSTEM=pci\n DEVICE=+pci:{pci_address}\n" if pci_address else ""
        with self._file.open("r+b") as log:
            fcntl.flock(log, fcntl.LOCK_EX)
            sequence = _next_sequence(log.fileno())
            records = (
                f"{facility << 3 | level},{number},{microseconds},-;{_escaped(text[:LONGEST_TEXT])}\n{device}"
                for number, text in enumerate(texts, sequence)
            )
            log.seek(0, os.SEEK_END)
            log.write("".join(records).encode())
        self._notify()

    def overwrite(self) -> None:
        """Overwrite the ring: readers lose the records that they have not read."""
        with self._file.open("r+b") as log:
            fcntl.flock(log, fcntl.LOCK_EX)
            sequence = _next_sequence(log.fileno())
            log.truncate(0)
            log.write(f"6,{sequence},{int(time.monotonic() * 1e6)},-;the oldest that is kept\n".encode())
        self._notify()

    def _notify(self) -> None:
        tell_listeners(self._root, "kernel-log", [b"\n"])


def _next_sequence(log: int) -> int:
    """The sequence number of the next record."""
    size = os.fstat(log).st_size
    tail = os.pread(log, _LOOKED_BACK, max(0, size - _LOOKED_BACK))
    numbers = re.findall(rb"^\d+,(\d+),\d+,", tail, re.MULTILINE)
    return int(numbers[-1]) + 1 if numbers else 0


def _escaped(text: str) -> str:
    """Escape non-printable bytes and backslashes in hexadecimal, like the kernel."""
    return "".join(chr(byte) if 32 <= byte < 127 and byte != ord("\\") else f"\\x{byte:02x}" for byte in text.encode())


_FILE = ".devherd-devlink"
_FAMILY = 0x20
"""Family number on a simulated node; a real kernel assigns it at run time."""
_RECOVER = 54
_BUS_NAME, _DEVICE_NAME = 1, 2
_REPORTER, _NAME, _STATE, _ERRORS, _RECOVERIES, _GRACE = 114, 115, 116, 117, 118, 120


class Devlink:
    """The devlink health reporters of the node below `root`."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._dump = root / _FILE

    def begin(self) -> None:
        """Set all reporters to healthy."""
        self._dump.write_bytes(b"")

    def report(self, address: str, reporter: str, *, is_in_error: bool, recovers: bool = True) -> None:
        """Set the state of a health reporter of the card at a PCI address, and send it to listeners."""
        message = _devlink_message(address, reporter, is_in_error=is_in_error, recovers=recovers)
        others = [one for one in _messages(self._dump.read_bytes()) if not _is_about(one, address, reporter)]
        rewrite(self._dump, b"".join([*others, message] if is_in_error else others))
        tell_listeners(self._root, "devlink", [message])


def _messages(dump: bytes) -> Iterator[bytes]:
    while dump:
        length = int(struct.unpack_from("=I", dump)[0])
        yield dump[:length]
        dump = dump[length:]


def _is_about(message: bytes, address: str, reporter: str) -> bool:
    return _text(_DEVICE_NAME, address) in message and _text(_NAME, reporter) in message


def _devlink_message(address: str, reporter: str, *, is_in_error: bool, recovers: bool) -> bytes:
    inner = _text(_NAME, reporter) + _attribute(_STATE, struct.pack("=B", is_in_error))
    inner += _attribute(_ERRORS, struct.pack("=Q", 1)) + _attribute(_RECOVERIES, struct.pack("=Q", not is_in_error))
    if recovers:
        inner += _attribute(_GRACE, struct.pack("=Q", 0))
    attributes = _text(_BUS_NAME, "pci") + _text(_DEVICE_NAME, address) + _attribute(_REPORTER, inner)
    payload = struct.pack("=BBH", _RECOVER, 1, 0) + attributes
    return struct.pack("=IHHII", 16 + len(payload), _FAMILY, 0, 0, 0) + payload


def _text(number: int, text: str) -> bytes:
    return _attribute(number, text.encode() + b"\0")


def _attribute(number: int, value: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(value), number) + value + b"\0" * (-len(value) % 4)
