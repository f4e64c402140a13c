"""Ends orphans: processes that a source's programs have left running after the source's own process was killed.

An orphan has left its program's session, and outlives the program. Linux makes it a child of the supervisor
(PR_SET_CHILD_SUBREAPER), which finds it by the mark in its environment. Orphans without the mark are left alone: in a
container, process 1 also inherits orphans of users' shells.
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
"""No orphans are left after this number of empty sweeps: a process that ends orphans its children a moment later."""


class Orphans:
    """The orphans of ended processes. Made by the supervisor, before any of them starts."""

    def __init__(self) -> None:
        try:
            adopt_orphans()
        except OSError as error:
            log.warning("the processes that programs of killed sources leave behind cannot be ended: %s", error)
        self._left: dict[int, int] = {}
        """By id of an ended process: the number of empty sweeps that are still needed."""

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
                log.warning("ended %d processes that programs of process %d had left behind", number, source)
            self._left[source] = _EMPTY_SWEEPS if number else self._left[source] - 1
        self._left = {source: left for source, left in self._left.items() if left}


def _source_of(pid: int) -> int | None:
    """The source's process whose program has started this one; None for other processes, and for ended ones."""
    mark = f"{SOURCE_MARK}=".encode()
    with contextlib.suppress(OSError, ValueError):
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        return next((int(each.removeprefix(mark)) for each in variables if each.startswith(mark)), None)
    return None
