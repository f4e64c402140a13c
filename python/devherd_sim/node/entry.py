"""What a host tree is made of: directories, files, symbolic links, device nodes and fifos.

Paths are relative to the host root (`sys/class/fpga_region`), never absolute and never with `..`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Directory:
    """A directory of its own; the parents of other entries need none."""

    path: str


@dataclass(frozen=True, slots=True)
class File:
    """A regular file, as an attribute of sysfs is read."""

    path: str
    content: bytes

    @classmethod
    def line(cls, path: str, text: str) -> "File":
        """A file as sysfs writes them: the text and a newline."""
        return cls(path, f"{text}\n".encode())


@dataclass(frozen=True, slots=True)
class Symlink:
    """A symbolic link; the target is kept as it is written."""

    path: str
    target: str


@dataclass(frozen=True, slots=True)
class DeviceNode:
    """A character or block device node. Where mknod is not permitted, an empty regular file stands for it."""

    path: str
    kind: Literal["char", "block"]
    major: int
    minor: int


@dataclass(frozen=True, slots=True)
class Fifo:
    """A named pipe: a file whose open or read never returns."""

    path: str


Entry = Directory | File | Symlink | DeviceNode | Fifo


def attributes(directory: str, values: Mapping[str, str]) -> list[Entry]:
    """Files of one line each in one directory, by name."""
    return [File.line(f"{directory}/{name}", value) for name, value in values.items()]
