"""Keeps the listening sockets of a child that sleeps: it has ended, and is started again at the next connection.

A pair of sockets lies between the supervisor and the child. Through it the child sends its listening sockets before it
ends; the supervisor polls them and sends them back to the process that it starts when one is readable. Nobody accepts
meanwhile: the connection waits in the kernel, and the new process answers it. So it does if the child ends for a fresh
sandbox, and is started at once.
"""

import contextlib
import socket
import time
from collections.abc import Callable, Collection, Iterable
from pathlib import Path

from devherd.process import hand_sockets, is_dead_socket, take_sockets


class WakingSocket:
    """A listening socket, in the terms of supervisord's loop."""

    def __init__(self, wake: Callable[[], None], wakes_from: float) -> None:
        self._wake = wake
        self._wakes_from = wakes_from

    def readable(self) -> bool:
        """Return True once a connection may wake the child: polled from then on."""
        return time.monotonic() >= self._wakes_from

    def writable(self) -> bool:
        """Return False: never polled for writing."""
        return False

    def handle_read_event(self) -> None:
        """Wake the child."""
        self._wake()

    def handle_error(self) -> None:
        """Wake the child: it says what is wrong with its socket."""
        self._wake()

    def end(self) -> None:
        """Do nothing: the socket stays with its keeper."""


class Keeper:
    """The supervisor's side, for one child over all its restarts."""

    def __init__(self) -> None:
        self._ours: socket.socket | None = None
        self._theirs: socket.socket | None = None
        self._kept: dict[str, list[socket.socket]] = {}
        self._handed: list[Path] = []
        """The Unix sockets that the child has got: one that ends before it has looked does not remove them."""

    def open(self) -> None:
        """Make the pair for a process that is about to be forked, which gets the kept sockets. Raises OSError."""
        self.close_pair()
        self._ours, self._theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        if self._kept:
            hand_sockets(self._ours, {address: [one.fileno() for one in ours] for address, ours in self._kept.items()})

    def descriptor(self) -> int | None:
        """The child's end of the pair, in the fork."""
        return self._theirs.fileno() if self._theirs else None

    def forked(self) -> None:
        """The child has its end of the pair, and its sockets in it."""
        if self._theirs:
            self._theirs.close()
        self._theirs = None
        self._handed = self._paths()
        self._close()

    def take(self) -> list[int]:
        """Keep the sockets that the child has sent; returns their descriptors, none if it has sent none."""
        if self._ours is not None:
            self._kept = take_sockets(self._ours)
        return [one.fileno() for sockets in self._kept.values() for one in sockets]

    def stop(self, directories: Collection[Path]) -> None:
        """Close the sockets as the child does at its end: Unix sockets in its own directories are removed."""
        if self._ours is not None:
            self._kept |= take_sockets(self._ours)
        self.leave(directories)
        for path in self._handed:
            if path.parent in directories and is_dead_socket(path):
                _remove(path)
        self._handed = []
        self._close()
        self.close_pair()

    def leave(self, directories: Collection[Path]) -> None:
        """Close and remove the Unix sockets in these directories: the child's next process may not write there."""
        for address, sockets in list(self._kept.items()):
            paths = [path for one in sockets if (path := _path_of(one)) is not None and path.parent in directories]
            for path in paths:
                _remove(path)
            if paths:
                _close(self._kept.pop(address))

    def close_pair(self) -> None:
        """Close both ends."""
        for end in (self._ours, self._theirs):
            if end is not None:
                end.close()
        self._ours = self._theirs = None

    def _paths(self) -> list[Path]:
        every = (_path_of(one) for sockets in self._kept.values() for one in sockets)
        return [path for path in every if path is not None]

    def _close(self) -> None:
        for sockets in self._kept.values():
            _close(sockets)
        self._kept = {}


def _path_of(one: socket.socket) -> Path | None:
    name = one.getsockname() if one.family == socket.AF_UNIX else ""
    return Path(name) if isinstance(name, str) and name else None  # bytes: an abstract one


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()


def _close(sockets: Iterable[socket.socket]) -> None:
    for one in sockets:
        one.close()
