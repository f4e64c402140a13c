"""Files with one writer, renamed into place, watched by their readers (proto/spool.proto says what is in them).

A reader never sees half a file: the writer fills a temporary name and renames it. Formats are protobuf; a torn, empty
or foreign file is reported as SpoolError and leaves the reader with what it had.
"""

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

from google.protobuf.message import DecodeError, Message

SUFFIX = ".pb"
HEALTHY = "Healthy"
UNHEALTHY = "Unhealthy"
_KEY_LIMIT = 200  # NAME_MAX is 255 bytes; a temporary name adds a dot and two suffixes

MessageType = TypeVar("MessageType", bound=Message)


class SpoolError(Exception):
    """A spool file that cannot be read: the path and the reason."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path


def key_of(resource_name: str) -> str:
    """The name of a resource in file names and in supervisorctl: `nvidia.com/gpu` is `nvidia.com_gpu`.

    A resource's domain holds no underscore, so no two names share a key; one too long for a file name ends in a hash.
    """
    key = resource_name.replace("/", "_", 1)
    if len(key) <= _KEY_LIMIT:
        return key
    return f"{key[: _KEY_LIMIT - 9]}-{hashlib.sha256(resource_name.encode()).hexdigest()[:8]}"


def path_of(directory: Path, key: str) -> Path:
    """The spool file of a key."""
    return directory / f"{key}{SUFFIX}"


def keys_in(directory: Path) -> set[str]:
    """The keys that have a file; empty when the directory is not there."""
    try:
        names = os.listdir(directory)  # noqa: PTH208 - names are wanted, not paths
    except (FileNotFoundError, NotADirectoryError):
        return set()
    return {name.removesuffix(SUFFIX) for name in names if name.endswith(SUFFIX) and not name.startswith(".")}


def write(path: Path, message: Message) -> bool:
    """Put a message in place, unless the file says the same already; True when it changed.

    Raises OSError when the directory cannot be written (full, read-only, gone).
    """
    content = message.SerializeToString(deterministic=True)
    try:
        if path.read_bytes() == content:
            return False
    except OSError:
        pass  # absent or unreadable: what is written next decides
    temporary = path.with_name(f".{path.name}.new")  # one writer, one name: what a killed one leaves is used again
    try:
        temporary.write_bytes(content)
        temporary.rename(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    return True


def read(path: Path, kind: type[MessageType]) -> MessageType:
    """The message in a file. Raises FileNotFoundError when there is none, SpoolError when it is no such message."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise
    except OSError as error:
        raise SpoolError(path, error.strerror or str(error)) from error
    if not content:
        raise SpoolError(path, "empty")
    try:
        return kind.FromString(content)
    except DecodeError as error:
        raise SpoolError(path, f"no {kind.__name__} message: {error}") from error


def read_all(directory: Path, kind: type[MessageType]) -> Iterator[tuple[str, MessageType]]:
    """Key and message of every readable file of a directory, sorted by key; unreadable ones are left out."""
    for key in sorted(keys_in(directory)):
        try:
            yield key, read(path_of(directory, key), kind)
        except (FileNotFoundError, SpoolError):
            continue
