"""Ends what the programs of a source have left running when the source's process was killed, and could not do it.

Such a process has left its program's session, and outlives the program. Linux then makes it a child of the supervisor
(PR_SET_CHILD_SUBREAPER), which finds it by the mark in its environment. Other orphans are left alone: in a container,
process 1 has those of people's shells as well.
"""

import contextlib
import logging
import os
import signal
from pathlib import Path

from devherd._native import adopt_orphans
from devherd.process import SOURCE_MARK, children

log = logging.getLogger(__name__)

_EMPTY_SWEEPS = 2
"""After so many sweeps without an orphan there are none left: what ends gives its own children away a moment later."""


class Orphans:
    """The orphans of ended processes. Made by the supervisor, before any of them starts."""

    def __init__(self) -> None:
        try:
            adopt_orphans()
        except OSError as error:
            log.warning("the processes that programs of killed sources leave behind cannot be ended: %s", error)
        self._left: dict[int, int] = {}
        """By id of an ended process: how many sweeps have to find nothing yet."""

    @property
    def are_awaited(self) -> bool:
        """True if another sweep may find some."""
        return bool(self._left)

    def of(self, pid: int) -> None:
        """Look for orphans of this process, which has ended."""
        self._left[pid] = _EMPTY_SWEEPS
        self.sweep()

    def sweep(self) -> None:
        """End the orphans; called again after a moment, until none is found."""
        if not self._left:
            return
        found = dict.fromkeys(self._left, 0)
        for child, _ in children():
            source = _source_of(child)
            if source in found:
                found[source] += 1
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(child, signal.SIGKILL)  # a child's id is not given to another process before it is reaped
        for source, number in found.items():
            if number:
                log.warning("ended %d left behind by programs of process %d", number, source)
            self._left[source] = _EMPTY_SWEEPS if number else self._left[source] - 1
        self._left = {source: left for source, left in self._left.items() if left}


def _source_of(pid: int) -> int | None:
    """The process whose program this one comes from; None of any other, and of one that has ended."""
    mark = f"{SOURCE_MARK}=".encode()
    with contextlib.suppress(OSError, ValueError):
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        return next((int(each.removeprefix(mark)) for each in variables if each.startswith(mark)), None)
    return None
