"""Entries of a host tree: directories, files, symbolic links as the kernel makes them, device nodes, fifos."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Directory:
    """A directory. Parents of other entries are created implicitly."""

    path: str


@dataclass(frozen=True, slots=True)
class File:
    """A regular file, such as an attribute of sysfs."""

    path: str
    content: bytes

    @classmethod
    def line(cls, path: str, text: str) -> "File":
        """A file that holds a text and a newline, as in sysfs."""
        return cls(path, f"{text}\n".encode())


@dataclass(frozen=True, slots=True)
class Symlink:
    """A symbolic link; the target is used unchanged."""

    path: str
    target: str


@dataclass(frozen=True, slots=True)
class DeviceNode:
    """A character or block device node. Where mknod is not permitted, it is an empty regular file."""

    path: str
    kind: Literal["char", "block"]
    major: int
    minor: int


@dataclass(frozen=True, slots=True)
class Fifo:
    """A named pipe: opening or reading it blocks."""

    path: str


Entry = Directory | File | Symlink | DeviceNode | Fifo


def attributes(directory: str, values: Mapping[str, str]) -> list[Entry]:
    """One-line files in a directory. `values`: the line of each file, by name."""
    return [File.line(f"{directory}/{name}", value) for name, value in values.items()]


def link(path: str, target: str) -> Symlink:
    """A link at `path` that leads to `target`, both relative to the host root."""
    return Symlink(path, os.path.relpath(target, os.path.dirname(path)))  # noqa: PTH120 - not a path on disk


def named_link(directory: str, target: str) -> Symlink:
    """A link in a directory, named like its target, as in /sys/class and /sys/bus."""
    return link(f"{directory}/{target.rpartition('/')[2]}", target)
