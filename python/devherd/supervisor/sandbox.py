"""What a program may access, as data, and the sandbox that enforces it in a child."""

import contextlib
import logging
import os
import resource
import socket
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from types import MappingProxyType

from devherd import _native

log = logging.getLogger(__name__)

MEBIBYTE = 1 << 20
DEFAULT_LIMITS: Mapping[int, int] = MappingProxyType({resource.RLIMIT_CORE: 0})
"""No core file: other children must not read its content, and a crash loop would fill a disk."""
_LIBRARIES = tuple(map(Path, ("/dev/urandom", "/sys/devices/system/cpu/online", "/proc/sys/net/core/somaxconn")))
"""Files that gRPC and the C library read: gRPC aborts without random numbers, and the other files set its sizes."""

Inode = tuple[int, int]


class Capability(IntEnum):
    """The numbers of capabilities(7)."""

    DAC_OVERRIDE = 1
    DAC_READ_SEARCH = 2
    NET_BIND_SERVICE = 10
    SYS_PTRACE = 19
    SYS_ADMIN = 21
    SYSLOG = 34


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Paths are files, or directories with everything below; missing paths give no access.

    A child can always read Python's own code, write /dev/null, and stat any file.
    """

    read: tuple[Path, ...] = ()
    """Readable and listable."""
    write: tuple[Path, ...] = ()
    """Readable; files may also be created, changed, renamed and removed."""
    sockets: tuple[Path, ...] = ()
    """Directories in which sockets may be created and removed."""
    made: tuple[Path, ...] = ()
    """The child's own directories. The supervisor creates them if missing, because the child cannot."""
    follows: tuple[Path, ...] = ()
    """Paths that may be removed and created again: the child is then restarted in a new sandbox."""
    devices: tuple[Path, ...] = ()
    """May be opened for writing and controlled by ioctl."""
    execute: tuple[Path, ...] = ()
    """Programs that may be started."""
    modes: bool = False
    """True if it may change modes of files."""
    families: tuple[int, ...] = (socket.AF_UNIX,)
    """Address families of sockets."""
    listens: bool = False
    """True if it may listen on TCP ports."""
    connects: bool = False
    """True if it may connect to TCP ports."""
    sees_processes: bool = False
    """True if it may look into other processes. Landlock forbids that: files, ports and signals are not restricted."""
    capabilities: tuple[Capability, ...] = ()
    """Capabilities that it keeps, if the supervisor has them."""
    limits: Mapping[int, int] = field(default_factory=lambda: DEFAULT_LIMITS)
    """Upper limits, by RLIMIT_ number; lower limits of the supervisor stay."""


class Sandbox:
    """The sandbox of this process."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._inodes: dict[Path, Inode | None] = {}

    def enter(self) -> None:
        """Give up all other access for good. Raises OSError if the kernel refuses."""
        access = self._access
        _limit(access)
        self._inodes = {path: _inode(path) for path in access.follows}
        missing = _native.restrict(
            read=[*access.read, *_code(), *_LIBRARIES],
            write=access.write,
            sockets=access.sockets,
            devices=[*access.devices, Path(os.devnull)],
            execute=access.execute,
            modes=access.modes,
            families=access.families,
            listens=access.listens,
            connects=access.connects,
            sees_processes=access.sees_processes,
            capabilities=access.capabilities,
        )
        if missing:
            log.debug("not enforced by this kernel: %s", ", ".join(missing))

    def is_outgrown(self) -> bool:
        """True if an accessible path was created again since `enter`: the new file is not accessible."""
        return any((now := _inode(path)) is not None and now != before for path, before in self._inodes.items())

    def may_write(self, path: Path) -> bool:
        """True if files may be created in a directory."""
        return any(path.is_relative_to(allowed) for allowed in self._access.write)

    def may_read(self, path: Path) -> bool:
        """True if files in a directory can be read."""
        return any(path.is_relative_to(allowed) for allowed in self._access.read)

    def may_serve_in(self, path: Path) -> bool:
        """True if sockets may be created in a directory."""
        return any(path.is_relative_to(allowed) for allowed in self._access.sockets)


def log_missing() -> None:
    """Log once, in the supervisor, what its kernel cannot enforce."""
    missing = _native.sandbox_missing()
    if missing:
        log.warning("children are not fully confined: the kernel lacks Landlock for %s", ", ".join(missing))


def make_directories(access: Access) -> None:
    """Create a child's own directories if they are missing. The supervisor calls it each few seconds."""
    for path in access.made:
        if path.is_dir():
            continue
        with contextlib.suppress(OSError):  # the child logs what it cannot write
            path.parent.mkdir(mode=0o700, exist_ok=True)
            path.mkdir(mode=0o700, exist_ok=True)


def _limit(access: Access) -> None:
    for number, most in access.limits.items():
        soft, hard = (
            most if limit == resource.RLIM_INFINITY else min(limit, most) for limit in resource.getrlimit(number)
        )
        resource.setrlimit(number, (soft, hard))


def _code() -> Iterator[Path]:
    """The directories of Python modules and of the libraries that they load."""
    yield from map(Path, {"/usr", "/lib", "/lib64", sys.prefix, sys.base_prefix})
    yield from (Path(entry) for entry in sys.path if os.path.isabs(entry))  # noqa: PTH117 - entries are strings
    yield Path(__file__).parents[2]


def _inode(path: Path) -> Inode | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino
