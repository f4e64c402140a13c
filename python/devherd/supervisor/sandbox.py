"""Holds a child to what its program may touch, from the fork to its end.

A kernel that lacks a part of it enforces the rest; the supervisor says so once. Rules are for inodes: when a directory
that a child may touch was made anew, the child has outgrown its sandbox, and another is started in a fresh one.
"""

import contextlib
import logging
import os
import resource
import sys
from collections.abc import Iterator
from pathlib import Path

from devherd import _native
from devherd.supervisor.access import Access

log = logging.getLogger(__name__)

Inode = tuple[int, int]

_LIBRARIES = tuple(map(Path, ("/dev/urandom", "/sys/devices/system/cpu/online", "/proc/sys/net/core/somaxconn")))
"""What gRPC and the C library read: gRPC aborts without seeds, and sizes its threads and queues by the others."""


class Sandbox:
    """The sandbox of this process."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._inodes: dict[Path, Inode | None] = {}

    def enter(self) -> None:
        """Give up all else, for good. Raises OSError when the kernel refuses."""
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
            capabilities=access.capabilities,
        )
        if missing:
            log.debug("not enforced by this kernel: %s", ", ".join(missing))

    def is_outgrown(self) -> bool:
        """Whether something that this process may touch is another one by now, which it may not."""
        return any((now := _inode(path)) is not None and now != before for path, before in self._inodes.items())

    def may_write(self, path: Path) -> bool:
        """Whether files may be made in a directory."""
        return any(path.is_relative_to(allowed) for allowed in self._access.write)

    def may_read(self, path: Path) -> bool:
        """Whether what is in a directory can be read."""
        return any(path.is_relative_to(allowed) for allowed in self._access.read)

    def may_serve_in(self, path: Path) -> bool:
        """Whether sockets may be made in a directory."""
        return any(path.is_relative_to(allowed) for allowed in self._access.sockets)


def say_what_is_missing() -> None:
    """Once, in the supervisor: what its kernel cannot enforce."""
    missing = _native.sandbox_missing()
    if missing:
        log.warning("children are not confined in all: the kernel lacks Landlock for %s", ", ".join(missing))


def make_directories(access: Access) -> None:
    """Make those of a child's own directories that are not there: the supervisor looks once a second."""
    for path in access.made:
        if path.is_dir():
            continue
        with contextlib.suppress(OSError):  # the child says what it cannot write
            path.parent.mkdir(mode=0o700, exist_ok=True)
            path.mkdir(mode=0o700, exist_ok=True)


def _limit(access: Access) -> None:
    for number, most in access.limits.items():
        soft, hard = (
            most if limit == resource.RLIM_INFINITY else min(limit, most) for limit in resource.getrlimit(number)
        )
        resource.setrlimit(number, (soft, hard))


def _code() -> Iterator[Path]:
    """Where modules are imported from, and the libraries that they load."""
    yield from map(Path, {"/usr", "/lib", "/lib64", sys.prefix, sys.base_prefix})
    yield from (Path(entry) for entry in sys.path if os.path.isabs(entry))  # noqa: PTH117 - text is what there is
    yield Path(__file__).parents[2]


def _inode(path: Path) -> Inode | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino
