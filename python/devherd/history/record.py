"""What one process reports: <run-dir>/history/<process>/current.jsonl, one JSON object a line, and one file before it.

Noting costs no system call, so that whoever answers the kubelet may note; `keep` writes. Neither ever raises: what
cannot be written is tried again, and what there is no room for is counted.
"""

import contextlib
import json
import os
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Literal, get_args

Kind = Literal[
    "verdict", "registered", "unregistered", "allocation", "reload", "process", "kubelet", "problem", "cordon", "clear"
]
KINDS: tuple[Kind, ...] = get_args(Kind)

CURRENT, BEFORE = "current.jsonl", "before.jsonl"
FILE_BYTES = 64 * 1024
"""Of each of a process's two files: some 300 events. The run directory is memory."""
SCANNER_FILE_BYTES = 8 * FILE_BYTES
"""A node may have thousands of devices."""
KEPT_SECONDS = 7 * 24 * 3600.0
"""What a process wrote that has not written for so long is forgotten at a start: its resource is gone."""
_SHORTEST_EVENT_BYTES = 64
_NO_DETAILS: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Event:
    """Something that has happened. `message` says it to people, without the names that the other fields have."""

    time: float
    """Unix seconds."""
    kind: Kind
    message: str
    resource_name: str = ""
    device_id: str = ""
    """Of a shared device its own id, not that of a replica."""
    reasons: tuple[str, ...] = ()
    process: str = ""
    """Who wrote it: `scanner`, `supervisor`, `resource:<key>`, `operator`."""
    details: Mapping[str, str] = field(default_factory=dict)
    """What only some kinds have: `health`, `file`, `value`, `pid`, …"""


class History:
    """The writer of a process. Its directory is made if that is allowed."""

    def __init__(self, directory: Path, process: str, file_bytes: int = FILE_BYTES) -> None:
        """`directory` is that of all processes."""
        self._current = directory / process / CURRENT
        self._file_bytes = file_bytes
        self._waiting: deque[bytes] = deque()
        self._most_waiting = file_bytes // _SHORTEST_EVENT_BYTES
        self.lost = 0
        """Events for which there was no room; the next that is written says how many."""

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
        """Something has happened now."""
        event = Event(time.time(), kind, message, resource_name, device_id, reasons, details=details)
        if len(self._waiting) == self._most_waiting:
            self._waiting.popleft()
            self.lost += 1
        self._waiting.append(line(event))

    def keep(self) -> bool:
        """Write what was noted; False when that has to be tried again."""
        if not self._waiting:
            return True
        if self.lost:
            self._waiting.append(line(Event(time.time(), "problem", f"{self.lost} events could not be written")))
        lines = b"".join(self._waiting)
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
        with contextlib.suppress(OSError):  # what is wrong with it shows in the open
            self._current.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            if (size := self._current.stat().st_size) > 0 and size + len(lines) > self._file_bytes:
                self._current.rename(self._current.with_name(BEFORE))
        descriptor = os.open(self._current, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            size = os.fstat(descriptor).st_size
            if os.write(descriptor, lines) < len(lines):  # no room for all of it: half a line would spoil the next
                os.ftruncate(descriptor, size)
                raise OSError
        finally:
            os.close(descriptor)


def line(event: Event) -> bytes:
    """An event as its file has it; what is empty is left out."""
    parts = {
        "time": round(event.time, 3),
        "kind": event.kind,
        "message": event.message,
        "resource_name": event.resource_name,
        "device_id": event.device_id,
        "reasons": list(event.reasons),
        "details": {name: value for name, value in event.details.items() if value},
    }
    said = {name: value for name, value in parts.items() if value}
    return json.dumps(said, ensure_ascii=False, separators=(",", ":")).encode(errors="replace") + b"\n"


def forget_old(directory: Path) -> None:
    """Remove what was written long ago by processes that there may never be again. Raises OSError."""
    if not directory.is_dir():
        return
    for process in directory.iterdir():
        files = [file for file in (process / CURRENT, process / BEFORE) if file.exists()]
        if files and max(file.stat().st_mtime for file in files) < time.time() - KEPT_SECONDS:
            for file in files:
                file.unlink()
            process.rmdir()
