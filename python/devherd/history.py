"""The history of an instance: verdicts, registrations, allocations, reloads, processes.

Each process writes `<run-dir>/history/<process>/current.jsonl`, one JSON object a line, and keeps one older file.
Readers merge the files of all processes by time: that since the boot, because the wall clock may be set in between.
"""

import contextlib
import itertools
import json
import os
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, get_args

from devherd.spool import Identity, identity_of

Kind = Literal[
    "verdict",
    "registered",
    "unregistered",
    "allocation",
    "application",
    "reload",
    "process",
    "kubelet",
    "problem",
    "cordon",
    "clear",
    "lost",
]
KINDS: tuple[Kind, ...] = get_args(Kind)

CURRENT, BEFORE = "current.jsonl", "before.jsonl"
FILE_BYTES = 64 * 1024
"""Limit of each of a process's two files, some 300 events: the run directory is in memory."""
SCANNER_FILE_BYTES = 8 * FILE_BYTES
"""The scanner's limit: a node may have thousands of devices."""
KEPT_SECONDS = 7 * 24 * 3600.0
"""At a start, the history of a process that has not written for this time is removed: its resource is gone."""
_SHORTEST_EVENT_BYTES = 64
_NO_DETAILS: Mapping[str, str] = MappingProxyType({})


def _boot() -> str:
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii")[:8]
    return ""


BOOT = _boot()
"""The beginning of this boot's id; empty if the kernel does not tell it."""
STEP_SECONDS = 1.0
"""A clock that differs by more was set: less may pass between reads of two clocks on a busy machine."""
Stamp = tuple[tuple[str, Identity], ...]
"""The current files by process, each with its version; changes when an event is written."""


@dataclass(frozen=True, slots=True)
class HistoryEvent:
    """An event. `message` is human-readable; resource and device have their own fields."""

    time: float
    """Unix seconds."""
    kind: Kind
    message: str
    resource_name: str = ""
    device_id: str = ""
    """The id of the device; for an allocation, the allocated id, which may be a replica's or share's."""
    reasons: tuple[str, ...] = ()
    process: str = ""
    """The writer: `scanner`, `supervisor`, `resource:<key>`, `operator`."""
    details: Mapping[str, str] = field(default_factory=dict)
    """Fields that only some kinds have: `health`, `file`, `value`, `pid`, …"""
    uptime: float = field(default=0.0, compare=False)
    """CLOCK_BOOTTIME second of its boot; 0: unknown."""
    boot: str = field(default="", compare=False)
    """The beginning of the boot's id."""

    def at(self, booted: float) -> float:
        """When it happened, by the clock that has `booted` as the second of the boot: `time` is by that of then.

        Where no clock was set that is `time` itself, and not what two reads of clocks make of it.
        """
        if not self.uptime or self.boot != BOOT:
            return self.time
        corrected = booted + self.uptime
        return corrected if abs(corrected - self.time) > STEP_SECONDS else self.time


def booted() -> float:
    """The Unix second of the boot by the present clock."""
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)


def _now(kind: Kind, message: str, **fields: Any) -> HistoryEvent:
    """An event that happens now."""
    return HistoryEvent(time.time(), kind, message, uptime=time.clock_gettime(time.CLOCK_BOOTTIME), boot=BOOT, **fields)


def devices_of(event: HistoryEvent) -> list[str]:
    """The ids of the devices that an event is about."""
    return event.details.get("devices", event.device_id).split()


def pod_of(event: HistoryEvent) -> str:
    """The pod that an event names, as `namespace/name`; empty if it names none."""
    return f"{event.details['namespace']}/{event.details['pod']}" if "pod" in event.details else ""


class History:
    """Writes the history of a process. Creates its directory, if permitted."""

    def __init__(self, directory: Path, process: str, file_bytes: int = FILE_BYTES) -> None:
        """`directory` is the history directory of all processes."""
        self._current = directory / process / CURRENT
        self._file_bytes = file_bytes
        self._waiting: deque[HistoryEvent] = deque()
        self._most_waiting = file_bytes // _SHORTEST_EVENT_BYTES
        self.noted: Callable[[], object] = bool
        """Called for each event."""
        self.lost = 0
        """Number of events dropped for lack of room; recorded with the next write."""

    def note(
        self,
        kind: Kind,
        message: str,
        *,
        resource_name: str = "",
        device_id: str = "",
        reasons: tuple[str, ...] = (),
        details: Mapping[str, str] = _NO_DETAILS,
    ) -> None:
        """Add an event that happened now. `keep` formats and writes it later, so that Allocate does not wait."""
        event = _now(kind, message, resource_name=resource_name, device_id=device_id, reasons=reasons, details=details)
        if len(self._waiting) == self._most_waiting:
            self._waiting.popleft()
            self.lost += 1
        self._waiting.append(event)
        self.noted()

    def keep(self) -> bool:
        """Write the new events; returns False if the write failed and must be retried."""
        if not self._waiting:
            return True
        if self.lost:
            self._waiting.append(_now("problem", f"{self.lost} events could not be written"))
        lines = b"".join(map(line, self._waiting))
        try:
            self._append(lines)
        except OSError:
            if self.lost:
                self._waiting.pop()
            return False
        self._waiting.clear()
        self.lost = 0
        return True

    def _append(self, lines: bytes) -> None:
        with contextlib.suppress(OSError):  # the open below fails with the same error
            self._current.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            if (size := self._current.stat().st_size) > 0 and size + len(lines) > self._file_bytes:
                self._current.rename(self._current.with_name(BEFORE))
        descriptor = os.open(self._current, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            size = os.fstat(descriptor).st_size
            if os.write(descriptor, lines) < len(lines):  # no room for all: a partial line would corrupt the next
                os.ftruncate(descriptor, size)
                raise OSError
        finally:
            os.close(descriptor)


def line(event: HistoryEvent) -> bytes:
    """An event as a line of its file, without empty fields."""
    parts = {
        "time": round(event.time, 3),
        "kind": event.kind,
        "message": event.message,
        "resource_name": event.resource_name,
        "device_id": event.device_id,
        "reasons": list(event.reasons),
        "details": {name: value for name, value in event.details.items() if value},
        "uptime": round(event.uptime, 3),
        "boot": event.boot,
    }
    filled = {name: value for name, value in parts.items() if value}
    return json.dumps(filled, ensure_ascii=False, separators=(",", ":")).encode(errors="replace") + b"\n"


def forget_old(directory: Path) -> None:
    """Remove the histories of processes that have not written for KEPT_SECONDS. Raises OSError."""
    if not directory.is_dir():
        return
    for process in directory.iterdir():
        files = [file for file in (process / CURRENT, process / BEFORE) if file.exists()]
        if files and max(file.stat().st_mtime for file in files) < time.time() - KEPT_SECONDS:
            for file in files:
                file.unlink()
            process.rmdir()


def events(
    run_dir: Path,
    *,
    limit: int | None = None,
    kinds: Collection[str] | None = None,
    resource_name: str | None = None,
    since: float = 0.0,
) -> list[HistoryEvent]:
    """The newest `limit` events of these kinds and this resource since a Unix second, newest last.

    Skips lines that cannot be parsed and files that disappear. Raises PermissionError if the directory cannot be
    read.
    """
    found: list[HistoryEvent] = []
    for directory in _directories(run_dir):
        fitting = (one for one in _backwards(directory) if fits(one, kinds, resource_name, since))
        found += reversed(list(itertools.islice(fitting, limit)))
    return in_order(found)[-limit:] if limit else in_order(found)


def fits(event: HistoryEvent, kinds: Collection[str] | None, resource_name: str | None, since: float) -> bool:
    """True if an event matches; a filter of None matches all events."""
    return (
        (kinds is None or event.kind in kinds)
        and (resource_name is None or event.resource_name == resource_name)
        and event.at(booted()) >= since
    )


def in_order(found: Iterable[HistoryEvent]) -> list[HistoryEvent]:
    """Events sorted by time, also if the clock was set in between by more than STEP_SECONDS."""
    boot = booted()
    return sorted(found, key=lambda event: event.at(boot))


def stamp(run_dir: Path) -> Stamp:
    """A value that changes with each new event, cheaper than reading all events. Raises as `events`."""
    identities = ((directory.name, identity_of(directory / CURRENT)) for directory in _directories(run_dir))
    return tuple((name, identity) for name, identity in identities if identity is not None)


Position = tuple[int, int]
"""How far a process's history was read: the inode of its file, and the number of bytes."""


class Follower:
    """Reads the events that are written after its creation, after an earlier moment, or from a position on."""

    def __init__(
        self,
        run_dir: Path,
        process: str | None = None,
        after: float | None = None,
        position: Position | None = None,
    ) -> None:
        """Follow the history of `process`; None: of all. `after` is in Unix seconds; None: now. Raises as `events`.

        `position` is where another follower of the process stopped: this one goes on there, even if the clock was set.
        """
        self._run_dir = run_dir
        self._process = process
        self._read: dict[str, Position] = {}
        """The position that was read, by process."""
        self._after = after or 0.0
        if process is not None and position is not None:
            self._read[process] = position
            self._after = 0.0
        elif after is None:
            self.news()

    def position(self, process: str) -> Position | None:
        """How far it has read; None before the first event."""
        return self._read.get(process)

    def news(self) -> list[HistoryEvent]:
        """The events since the last call. Raises as `events`."""
        directories = [one for one in _directories(self._run_dir) if self._process in (None, one.name)]
        found = in_order(event for directory in directories for event in self._news_of(directory))
        after, self._after = self._after, 0.0  # later ones may have an earlier time: a clock can be set back
        return [event for event in found if event.at(booted()) > after]

    def _news_of(self, directory: Path) -> list[HistoryEvent]:
        known, position = self._read.get(directory.name, (0, 0))
        content, inode = _content(directory / CURRENT)
        if not inode:
            return []  # nothing yet, or the file is being replaced
        if position > len(content) and inode == known:
            position = 0  # another file has the number by now
        fresh = content[position:] if inode == known else _rest(directory / BEFORE, known, position) + content
        whole = fresh[: fresh.rfind(b"\n") + 1]
        self._read[directory.name] = inode, len(content) - len(fresh) + len(whole)
        return list(parsed(whole.splitlines(), directory.name))


def _rest(path: Path, known: int, position: int) -> bytes:
    """The unread rest of a file that was rotated away; all of it if none was known."""
    content, inode = _content(path)
    return content[position:] if known in (0, inode) else b""


def _directories(run_dir: Path) -> list[Path]:
    try:
        return sorted(entry for entry in (run_dir / "history").iterdir() if entry.is_dir())
    except (FileNotFoundError, NotADirectoryError):
        return []


def _backwards(directory: Path) -> Iterator[HistoryEvent]:
    """The events of one process, newest first."""
    content, current = _content(directory / CURRENT)
    yield from parsed(reversed(content.splitlines()), directory.name)
    content, before = _content(directory / BEFORE)
    if before != current:  # equal if the current file was rotated in between
        yield from parsed(reversed(content.splitlines()), directory.name)


def _content(path: Path) -> tuple[bytes, int]:
    """Content and inode of a file; empty and 0 if it does not exist."""
    try:
        with path.open("rb") as file:
            return file.read(), os.fstat(file.fileno()).st_ino
    except FileNotFoundError:
        return b"", 0


def parsed(lines: Iterable[bytes], process: str) -> Iterator[HistoryEvent]:
    """The events of a process in such lines, without those that cannot be parsed."""
    for line in lines:
        event = _event(line, process)
        if event is not None:
            yield event


def _event(line: bytes, process: str) -> HistoryEvent | None:
    try:
        fields: dict[str, Any] = json.loads(line)
        event = HistoryEvent(
            time=float(fields["time"]),
            kind=fields["kind"],
            message=str(fields["message"]),
            resource_name=str(fields.get("resource_name", "")),
            device_id=str(fields.get("device_id", "")),
            reasons=tuple(map(str, fields.get("reasons", ()))),
            process=process,
            details={str(name): str(value) for name, value in fields.get("details", {}).items()},
            uptime=float(fields.get("uptime", 0.0)),
            boot=str(fields.get("boot", "")),
        )
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
    return event if event.kind in KINDS else None
