"""Files of the run directory: one writer each, renamed into place, watched by their readers.

A reader never sees a partial file: the writer fills a temporary file and renames it. Formats are protobuf (`proto/`). A
torn, empty or foreign file raises SpoolError, and its reader keeps its last content.

Each file of a resource is alone in its directory, because sandboxes grant directories: each rename creates a new inode.
"""

import contextlib
import errno
import functools
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeVar, overload

from google.protobuf.message import DecodeError, Message

from devherd.proto import spool_pb2

SUFFIX = ".pb"
HEALTHY = "Healthy"
UNHEALTHY = "Unhealthy"
_CURRENT = f"current{SUFFIX}"
_NO_DESCRIPTOR = (errno.EMFILE, errno.ENFILE)
_KEY_LIMIT = 200  # NAME_MAX is 255 bytes; a temporary name adds a dot and a suffix, a log file a prefix and two

MessageType = TypeVar("MessageType", bound=Message)
Identity = tuple[int, int, int]
"""Inode, time of modification in nanoseconds, and size of a file."""


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
    import hashlib  # noqa: PLC0415 - brings OpenSSL, and hardly any name is so long

    return f"{key[: _KEY_LIMIT - 9]}-{hashlib.sha256(resource_name.encode()).hexdigest()[:8]}"


@functools.lru_cache(maxsize=256)
def path_of(directory: Path, key: str) -> Path:
    """The spool file of a key. Cached: readers check it every second, and building the path costs more than a stat."""
    return directory / key / _CURRENT


def keys_in(directory: Path, suffix: str | None = None) -> set[str]:
    """The keys that have a spool file, or a file with this suffix; empty if the directory does not exist."""
    try:
        names = os.listdir(directory)  # noqa: PTH208 - names are wanted, not paths
    except (FileNotFoundError, NotADirectoryError):
        return set()
    if suffix is not None:
        return {name.removesuffix(suffix) for name in names if name.endswith(suffix) and not name.startswith(".")}
    return {name for name in names if not name.startswith(".") and path_of(directory, name).exists()}


def remove(directory: Path, key: str) -> None:
    """Remove the file and directory of a key, if they exist. Raises OSError if the directory cannot be written."""
    path_of(directory, key).unlink(missing_ok=True)
    _temporary(path_of(directory, key)).unlink(missing_ok=True)
    with contextlib.suppress(FileNotFoundError):
        (directory / key).rmdir()


def write(path: Path, message: Message) -> bool:
    """Replace a file by a message, unless it has the same content; returns True if it changed.

    Creates the directory of a key together with its first file. Raises OSError if the directory cannot be written
    (full, read-only, removed).
    """
    return update(path, encoded(message))


def encoded(message: Message) -> bytes:
    """A message as bytes, the same for equal messages. Concatenated, the bytes of several messages are one message."""
    return message.SerializeToString(deterministic=True)


def update(path: Path, content: bytes) -> bool:
    """Replace a file, unless it has the same content; returns True if it changed. Raises OSError as `write`."""
    try:
        if path.read_bytes() == content:
            return False
    except OSError:
        pass  # absent or unreadable: the write below decides
    if path.name == _CURRENT and not path.parent.exists():
        _bring_directory(path, content)
    else:
        replace(path, content)
    return True


def replace(path: Path, content: bytes, mode: int | None = None, *, is_synced: bool = False) -> None:
    """Replace a file atomically: a reader sees the old content or the new. Without `mode` the umask applies.

    With `is_synced`, that holds after a loss of power, too. Raises OSError and keeps the old file, unless only the sync
    of the directory failed.
    """
    temporary = _temporary(path)
    try:
        if mode is not None:
            temporary.touch(mode)  # before it has content
            if stat.S_IMODE(temporary.stat().st_mode) != mode:  # the sandbox refuses the call
                temporary.chmod(mode)
        temporary.write_bytes(content)
        if is_synced:
            _sync(temporary)
        temporary.rename(path)
        if is_synced:
            _sync(path.parent)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _temporary(path: Path) -> Path:
    """The temporary file: the same for each write, so that one left by a killed writer is overwritten."""
    return path.with_name(f".{path.name}.new")


def _bring_directory(path: Path, content: bytes) -> None:
    temporary = _temporary(path.parent)
    temporary.mkdir(mode=0o700, exist_ok=True)
    try:
        (temporary / path.name).write_bytes(content)
        temporary.rename(path.parent)
    except OSError:
        with contextlib.suppress(OSError):
            (temporary / path.name).unlink(missing_ok=True)
            temporary.rmdir()
        raise


def read(path: Path, kind: type[MessageType]) -> MessageType:
    """The message in a file. Raises FileNotFoundError if it is missing, SpoolError if it cannot be parsed.

    Raises OSError if no descriptor is left to open it: that says nothing about the file.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise
    except OSError as error:
        if error.errno in _NO_DESCRIPTOR:
            raise
        raise SpoolError(path, error.strerror or str(error)) from error
    if not content:
        raise SpoolError(path, "empty")
    try:
        return kind.FromString(content)
    except DecodeError as error:
        raise SpoolError(path, f"no {kind.__name__} message: {error}") from error


def read_or_empty(path: Path, kind: type[MessageType]) -> MessageType:
    """The message in a file; empty if it is missing or cannot be parsed. Raises OSError as `read`."""
    try:
        return read(path, kind)
    except (FileNotFoundError, SpoolError):
        return kind()


def read_all(directory: Path, kind: type[MessageType]) -> Iterator[tuple[str, MessageType]]:
    """Key and message of every file of a directory, sorted by key; those that cannot be parsed are left out.

    Raises OSError if the directory cannot be read, and as `read`.
    """
    for key in sorted(keys_in(directory)):
        try:
            yield key, read(path_of(directory, key), kind)
        except (FileNotFoundError, SpoolError):
            continue


def identity_of(path: Path, *, follow_symlinks: bool = False) -> Identity | None:
    """The identity of a regular file; None if no such file can be reached."""
    try:
        status = path.stat(follow_symlinks=follow_symlinks)
    except OSError:
        return None
    return (status.st_ino, status.st_mtime_ns, status.st_size) if stat.S_ISREG(status.st_mode) else None


def ids_of(device_id: str, replicas: int, shares: Sequence[str] = ()) -> list[str]:
    """The ids of a device in the kubelet's list: its shares, or its own id if it has none.

    With replicas, `<id>::0` and so on for each of these.
    """
    own = shares or [device_id]
    return [f"{each}::{number}" for each in own for number in range(replicas)] or [*own]


def number_of_ids(device: spool_pb2.Device | spool_pb2.ListedDevice) -> int:
    """The number of ids of a device in the kubelet's list."""
    return (len(device.shares) or 1) * (device.replicas or 1)


DEVICE_PLUGIN_FRONT_END = "device-plugin"
"""`Offer.front_end` of what is served to the kubelet by its device plugin API."""
DRA_FRONT_END = "dra"
"""`Offer.front_end` of what is published for Dynamic Resource Allocation."""


def resources_in(offers: spool_pb2.Offers) -> list[spool_pb2.Offer]:
    """The offers that the kubelet knows as resources; those of other front ends are left out."""
    return [offer for offer in offers.offers if offer.front_end == DEVICE_PLUGIN_FRONT_END]


@overload
def listed(offer: spool_pb2.Offer) -> Iterator[tuple[str, spool_pb2.Device]]: ...


@overload
def listed(offer: spool_pb2.Resource) -> Iterator[tuple[str, spool_pb2.ListedDevice]]: ...


def listed(
    offer: spool_pb2.Offer | spool_pb2.Resource,
) -> Iterator[tuple[str, spool_pb2.Device | spool_pb2.ListedDevice]]:
    """Each id of the kubelet's list with its device, in the order of the offer."""
    for device in offer.devices:
        for device_id in ids_of(device.id, device.replicas, device.shares):
            yield device_id, device


def size_of(offer: spool_pb2.Offer | spool_pb2.Resource) -> int:
    """The number of ids in the kubelet's list."""
    return sum(map(number_of_ids, offer.devices))
