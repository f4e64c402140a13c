"""What a program may touch, as data: the sandbox at the fork enforces it."""

import resource
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from types import MappingProxyType

MEBIBYTE = 1 << 20


class Capability(IntEnum):
    """The numbers of capabilities(7)."""

    DAC_OVERRIDE = 1
    DAC_READ_SEARCH = 2
    NET_BIND_SERVICE = 10
    SYS_ADMIN = 21
    SYSLOG = 34


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Paths are directories, with everything beneath them, or files; absent ones give nothing.

    Python's own code can always be read and /dev/null written; existence and status of any file can always be asked.
    """

    read: tuple[Path, ...] = ()
    """To be listed and read."""
    write: tuple[Path, ...] = ()
    """To be read, and files made, changed, renamed and removed."""
    sockets: tuple[Path, ...] = ()
    """Directories in which sockets may be made and removed."""
    made: tuple[Path, ...] = ()
    """Directories of its own, which the supervisor creates if missing, because the child could not."""
    follows: tuple[Path, ...] = ()
    """Those of these paths that may be removed and created again: the child is then restarted in a new sandbox."""
    devices: tuple[Path, ...] = ()
    """To be opened for writing and controlled by ioctl."""
    execute: tuple[Path, ...] = ()
    """Programs that may be started; without any, none can be."""
    modes: bool = False
    """Whether it may change modes of files."""
    families: tuple[int, ...] = (socket.AF_UNIX,)
    """Address families of sockets."""
    listens: bool = False
    """Whether it may listen on TCP ports."""
    connects: bool = False
    """Whether it may connect to TCP ports."""
    capabilities: tuple[Capability, ...] = ()
    """Those that it keeps, where the supervisor has them."""
    limits: Mapping[int, int] = field(default_factory=lambda: DEFAULT_LIMITS)
    """Upper limits, by RLIMIT_ number; lower limits of the supervisor stay."""


DEFAULT_LIMITS: Mapping[int, int] = MappingProxyType({resource.RLIMIT_CORE: 0})
"""No core file: it would hold what other children must not read, and a crash loop would fill a disk with them."""
