"""Files with one writer, renamed into place, watched by their readers (proto/spool.proto has their formats).

A reader never sees half a file: the writer fills a temporary name and renames it. Formats are protobuf; a torn, empty
or foreign file is reported as SpoolError and leaves the reader with what it had.

A file of a resource has a directory to itself, since a sandbox opens directories: a file that is renamed into place is
another one each time.
"""

import contextlib
import functools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

from google.protobuf.message import DecodeError, Message

SUFFIX = ".pb"
HEALTHY = "Healthy"
UNHEALTHY = "Unhealthy"
_CURRENT = f"current{SUFFIX}"
_KEY_LIMIT = 200  # NAME_MAX is 255 bytes; a temporary name adds a dot and a suffix, a log file a prefix and two

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
    import hashlib  # noqa: PLC0415 - brings OpenSSL, and hardly any name is so long

    return f"{key[: _KEY_LIMIT - 9]}-{hashlib.sha256(resource_name.encode()).hexdigest()[:8]}"


@functools.lru_cache(maxsize=256)
def path_of(directory: Path, key: str) -> Path:
    """The spool file of a key. Put together once: that takes longer than a look at it, and readers look each second."""
    return directory / key / _CURRENT


def keys_in(directory: Path, suffix: str | None = None) -> set[str]:
    """The keys that have a spool file, or a file with this suffix; empty when the directory is not there."""
    try:
        names = os.listdir(directory)  # noqa: PTH208 - names are wanted, not paths
    except (FileNotFoundError, NotADirectoryError):
        return set()
    if suffix is not None:
        return {name.removesuffix(suffix) for name in names if name.endswith(suffix) and not name.startswith(".")}
    return {name for name in names if not name.startswith(".") and path_of(directory, name).exists()}


def remove(directory: Path, key: str) -> None:
    """Take a key away with its file, if there is one. Raises OSError when the directory cannot be written."""
    path_of(directory, key).unlink(missing_ok=True)
    _temporary(path_of(directory, key)).unlink(missing_ok=True)
    with contextlib.suppress(FileNotFoundError):
        (directory / key).rmdir()


def write(path: Path, message: Message) -> bool:
    """Put a message in place, unless the file has it already; True when it changed.

    The first file of a key brings its directory, which appears with the file in it. Raises OSError when the directory
    cannot be written (full, read-only, gone).
    """
    return update(path, message.SerializeToString(deterministic=True))


def update(path: Path, content: bytes) -> bool:
    """Put content in place, unless the file has the same already; True when it changed. Raises OSError as `write`."""
    try:
        if path.read_bytes() == content:
            return False
    except OSError:
        pass  # absent or unreadable: what is written next decides
    if path.name == _CURRENT and not path.parent.exists():
        _bring_directory(path, content)
    else:
        replace(path, content)
    return True


def replace(path: Path, content: bytes, mode: int | None = None, *, is_synced: bool = False) -> None:
    """Put content in place whole: a reader sees the old file or the new one. `mode` None = as the umask has it.

    `is_synced`: so it is after a loss of power, too. Raises OSError and leaves the old file as it was, unless the file
    is in place and only its directory could not be synced.
    """
    temporary = _temporary(path)
    try:
        temporary.write_bytes(content)
        if mode is not None:
            temporary.chmod(mode)
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
    """One writer, one name: what a killed one leaves is used again."""
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
    """The message in a file. Raises FileNotFoundError when it is missing, SpoolError when it cannot be parsed."""
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


def read_or_empty(path: Path, kind: type[MessageType]) -> MessageType:
    """The message in a file; empty if it cannot be read."""
    try:
        return read(path, kind)
    except (FileNotFoundError, SpoolError):
        return kind()


def read_all(directory: Path, kind: type[MessageType]) -> Iterator[tuple[str, MessageType]]:
    """Key and message of every readable file of a directory, sorted by key; unreadable ones are left out."""
    for key in sorted(keys_in(directory)):
        try:
            yield key, read(path_of(directory, key), kind)
        except (FileNotFoundError, SpoolError):
            continue
