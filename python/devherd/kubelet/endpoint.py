"""The socket of one server generation: `devherd-<8 hex of the resource name's hash>-<generation>.sock`.

Every generation has a new name: kubelets up to 1.36 drop the newer of two registrations when the older one ends, and
kubelets from 1.37 on refuse a path that they know, and no longer notice the end of its plugin.
"""

import hashlib
import os
import time
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from urllib.parse import quote

from devherd.errors import UsageError

SUFFIX = ".sock"
_PREFIX = "devherd-"
_KUBELETS_OWN = "kubelet.sock"
MAX_PATH_BYTES = 107  # sun_path has 108 bytes, the last of them 0
_TICK_NANOSECONDS = 50_000_000
"""Longer than a tick of the kernel's clock: two changes of a directory within one may leave the same change time."""

Identity = tuple[int, int, int]
"""Device, inode and change time: a socket that is created again often gets the inode of the old one."""
Traces = tuple[Identity | None, ...]
"""The identities of directories: they change with each file that is created, replaced or removed there."""


class SocketFile:
    """A socket file, from the bind to its removal. The server creates it; this checks that it is still the same."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._bound: tuple[int, int] | None = None

    def bound(self, place: Path | None = None) -> None:
        """Record the file of the listening server; `place`: where it is until it is renamed.

        Raises OSError if it has been removed already.
        """
        status = (place or self.path).stat()
        self._bound = (status.st_dev, status.st_ino)

    def is_there(self) -> bool:
        """True if the file is still the one that was bound."""
        try:
            status = self.path.stat()
        except OSError:
            return False
        return self._bound == (status.st_dev, status.st_ino)

    def remove(self) -> None:
        """Unlink the file, if it is still the one that was bound: those who are connected stay so."""
        if self.is_there():
            self.path.unlink(missing_ok=True)


class Endpoint(SocketFile):
    """The socket file of one server generation."""

    def __init__(self, directory: Path, resource_name: str, generation: int) -> None:
        self.generation = generation
        self.name = f"{prefix(resource_name)}{generation}{SUFFIX}"
        super().__init__(directory / self.name)

    def check(self) -> None:
        """Raise UsageError for a path too long for a socket, OSError if the directory does not exist."""
        length = len(os.fsencode(self.path))
        if length > MAX_PATH_BYTES:
            raise UsageError(
                f"{self.path.parent}: cannot hold the resource's socket",
                f"its path would have {length} bytes and the kernel's limit is {MAX_PATH_BYTES}",
                "choose a shorter --kubelet-dir",
            )
        self.path.parent.stat()


def prefix(resource_name: str) -> str:
    """The prefix of the names of all sockets of a resource."""
    return f"{_PREFIX}{hashlib.sha256(resource_name.encode()).hexdigest()[:8]}-"


def hand_over_socket(directory: Path, resource_name: str) -> Path:
    """The socket at which a resource's process listens for the hand-over; the dot hides it from the kubelet."""
    return directory / f".{prefix(resource_name)}hand-over{SUFFIX}"


def identity(socket: Path) -> Identity | None:
    """The identity of a file; None if it does not exist or cannot be read."""
    try:
        status = socket.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_ctime_ns


def target(socket: Path) -> str:
    """The socket as a gRPC target: a quoted URI, because gRPC decodes percent signs."""
    return f"unix:{quote(str(socket))}"


def generations(directory: Path, resource_name: str) -> dict[int, Path]:
    """The sockets of a resource in a directory, by generation."""
    begin = prefix(resource_name)
    ours = directory.glob(f"{begin}*{SUFFIX}")
    numbers = {entry: entry.name.removeprefix(begin).removesuffix(SUFFIX) for entry in ours}
    return {int(number): entry for entry, number in numbers.items() if number.isdecimal()}


def last_generation(directories: Iterable[Path], resource_name: str, remembered: int) -> int:
    """The highest generation that may have been used: the remembered one, or one whose socket still exists.

    If there is neither (a new run directory, as in a new pod), it is the clock in milliseconds: the kubelet may still
    have a connection under a name that a predecessor used a moment ago. No process starts a generation each
    millisecond, so no predecessor is ahead of the clock.
    """
    seen = [number for directory in directories for number in generations(directory, resource_name)]
    return max([remembered, *seen]) or time.time_ns() // 1_000_000


def remove_stale(directories: Iterable[Path], resource_name: str) -> list[str]:
    """Unlink the sockets of earlier processes of this resource; returns their names."""
    removed = []
    for directory in directories:
        for _, path in sorted(generations(directory, resource_name).items()):
            if path.is_socket():
                path.unlink(missing_ok=True)
                removed.append(path.name)
    return removed


def traces_of_others(directories: Sequence[Path], resource_name: str, ours: Collection[Path]) -> Traces | None:
    """Identities of the kubelet's directories; they change if another plugin registers or lists this resource.

    The other plugin creates a socket, and the kubelet replaces its checkpoint for each list. None while the first
    directory has a socket newer than ours, because its plugin may end without a trace; also None if the directory
    cannot be read.
    """
    traces, own = tuple(map(identity, directories)), [*map(identity, ours)]
    if traces[0] is None or not own or None in own or time.time_ns() - traces[0][2] < _TICK_NANOSECONDS:
        return None
    since, names = min(filter(None, own))[2], {path.name for path in ours}
    try:
        with os.scandir(directories[0]) as entries:
            others = [entry for entry in entries if entry.name not in names and _may_serve(entry, resource_name)]
            is_rivalled = any(entry.stat(follow_symlinks=False).st_ctime_ns >= since for entry in others)
    except OSError:
        return None
    return None if is_rivalled else traces


def _may_serve(entry: os.DirEntry[str], resource_name: str) -> bool:
    """True if an entry of the kubelet's directory may be the socket of a plugin of this resource."""
    if entry.name == _KUBELETS_OWN:
        return False  # as new as ours, if both are made within a tick of the kernel's clock
    is_of_another_resource = entry.name.startswith(_PREFIX) and not entry.name.startswith(prefix(resource_name))
    return not (is_of_another_resource or entry.is_file(follow_symlinks=False) or entry.is_dir(follow_symlinks=False))
