"""Devlink's health reporters on a simulated node, in the form in which the kernel sends them.

<https://docs.kernel.org/networking/devlink/devlink-health.html>; numbers of `linux/devlink.h`. What a dump would
give of those in error is in a file of the node; whoever listens gets each change (rust/src/events/devlink.rs).
"""

import struct
from collections.abc import Iterator
from pathlib import Path

from devherd_sim.node.listeners import tell_listeners
from devherd_sim.node.tree import rewrite

_FILE = ".devherd-devlink"
_FAMILY = 0x20
"""Of simulated nodes: the kernel gives a number of its own."""
_RECOVER = 54
_BUS_NAME, _DEVICE_NAME = 1, 2
_REPORTER, _NAME, _STATE, _ERRORS, _RECOVERIES, _GRACE = 114, 115, 116, 117, 118, 120


class Devlink:
    """The reporters of the node below `root`."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._dump = root / _FILE

    def begin(self) -> None:
        """Let none be in error."""
        self._dump.write_bytes(b"")

    def report(self, address: str, reporter: str, *, is_in_error: bool, recovers: bool = True) -> None:
        """A driver says how a part of its card at a PCI address is."""
        message = _message(address, reporter, is_in_error=is_in_error, recovers=recovers)
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


def _message(address: str, reporter: str, *, is_in_error: bool, recovers: bool) -> bytes:
    inner = _text(_NAME, reporter) + _attribute(_STATE, struct.pack("=B", is_in_error))
    inner += _attribute(_ERRORS, struct.pack("=Q", 1)) + _attribute(_RECOVERIES, struct.pack("=Q", not is_in_error))
    if recovers:
        inner += _attribute(_GRACE, struct.pack("=Q", 0))
    said = _text(_BUS_NAME, "pci") + _text(_DEVICE_NAME, address) + _attribute(_REPORTER, inner)
    payload = struct.pack("=BBH", _RECOVER, 1, 0) + said
    return struct.pack("=IHHII", 16 + len(payload), _FAMILY, 0, 0, 0) + payload


def _text(number: int, text: str) -> bytes:
    return _attribute(number, text.encode() + b"\0")


def _attribute(number: int, value: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(value), number) + value + b"\0" * (-len(value) % 4)
