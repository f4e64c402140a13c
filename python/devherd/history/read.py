"""What all processes of an instance have reported, in the order in which it happened."""

import itertools
import json
import os
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any

from devherd.history.record import BEFORE, CURRENT, KINDS, Event
from devherd.spool.identity import Identity, identity_of

Stamp = tuple[tuple[str, Identity], ...]
"""Which files there are, each with its version: another one when something was written."""


def events(
    run_dir: Path,
    *,
    limit: int | None = None,
    kinds: Collection[str] | None = None,
    resource_name: str | None = None,
    since: float = 0.0,
) -> list[Event]:
    """The newest `limit` events of these kinds, of this resource, from this Unix second on; newest last.

    Lines that cannot be read are left out, as are files that come and go. Raises PermissionError where the directory
    is closed.
    """
    found: list[Event] = []
    for directory in _directories(run_dir):
        fitting = (one for one in _backwards(directory) if fits(one, kinds, resource_name, since))
        found += reversed(list(itertools.islice(fitting, limit)))
    return in_order(found)[-limit:] if limit else in_order(found)


def fits(event: Event, kinds: Collection[str] | None, resource_name: str | None, since: float) -> bool:
    """Whether it is one of these; None stands for all."""
    return (
        (kinds is None or event.kind in kinds)
        and (resource_name is None or event.resource_name == resource_name)
        and event.time >= since
    )


def in_order(found: Iterable[Event]) -> list[Event]:
    """As they happened; those of the same moment as they were written."""
    return sorted(found, key=lambda event: event.time)


def stamp(run_dir: Path) -> Stamp:
    """What differs as soon as there is another event: cheaper than to read them all. Raises as `events`."""
    identities = ((directory.name, identity_of(directory / CURRENT)) for directory in _directories(run_dir))
    return tuple((name, identity) for name, identity in identities if identity is not None)


class Follower:
    """What is written from the moment on at which this is made."""

    def __init__(self, run_dir: Path) -> None:
        """Raises as `events`."""
        self._run_dir = run_dir
        self._read: dict[str, tuple[int, int]] = {}
        """By process: the inode of its file and how many bytes of it are known."""
        self.news()

    def news(self) -> list[Event]:
        """What was written since the last call. Raises as `events`."""
        return in_order(event for directory in _directories(self._run_dir) for event in self._news_of(directory))

    def _news_of(self, directory: Path) -> list[Event]:
        known, position = self._read.get(directory.name, (0, 0))
        content, inode = _content(directory / CURRENT)
        fresh = content[position:] if inode == known else _rest(directory / BEFORE, known, position) + content
        whole = fresh[: fresh.rfind(b"\n") + 1]
        if inode:
            self._read[directory.name] = inode, len(content) - len(fresh) + len(whole)
        return list(_parsed(whole.splitlines(), directory.name))


def _rest(path: Path, known: int, position: int) -> bytes:
    """What was written to a file before another took its place."""
    content, inode = _content(path)
    return content[position:] if inode == known else b""


def _directories(run_dir: Path) -> list[Path]:
    try:
        return sorted(entry for entry in (run_dir / "history").iterdir() if entry.is_dir())
    except (FileNotFoundError, NotADirectoryError):
        return []


def _backwards(directory: Path) -> Iterator[Event]:
    """Of one process, newest first."""
    content, current = _content(directory / CURRENT)
    yield from _parsed(reversed(content.splitlines()), directory.name)
    content, before = _content(directory / BEFORE)
    if before != current:  # it has just become what was read as the current one
        yield from _parsed(reversed(content.splitlines()), directory.name)


def _content(path: Path) -> tuple[bytes, int]:
    """Content and inode of a file; nothing and 0 where there is none."""
    try:
        with path.open("rb") as file:
            return file.read(), os.fstat(file.fileno()).st_ino
    except FileNotFoundError:
        return b"", 0


def _parsed(lines: Iterable[bytes], process: str) -> Iterator[Event]:
    for line in lines:
        event = _event(line, process)
        if event is not None:
            yield event


def _event(line: bytes, process: str) -> Event | None:
    try:
        said: dict[str, Any] = json.loads(line)
        event = Event(
            time=float(said["time"]),
            kind=said["kind"],
            message=str(said["message"]),
            resource_name=str(said.get("resource_name", "")),
            device_id=str(said.get("device_id", "")),
            reasons=tuple(map(str, said.get("reasons", ()))),
            process=process,
            details={str(name): str(value) for name, value in said.get("details", {}).items()},
        )
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
    return event if event.kind in KINDS else None
