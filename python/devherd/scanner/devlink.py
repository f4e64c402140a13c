"""Devlink as the scanner reads it: opened when a card is there of which it may speak, asked seldom, heard at once."""

import time
from collections.abc import Callable
from pathlib import Path

from devherd._native import Devlink, HealthReporter
from devherd.health.registry import DEVLINK
from devherd.proto import spool_pb2

AGAIN_SECONDS = 30.0
"""Between two times that everything is asked for: what changes is heard, but for what comes without a word."""
_NETLINK = "netlink"
_CURE = "let devherd open netlink sockets: a seccomp profile or SELinux may refuse them"


class DevlinkReader:
    """The health reporters of the host, as far as they may be read."""

    def __init__(self, simulated_node: Path | None, deadline: float) -> None:
        """`deadline`: how many seconds an answer may take."""
        self._deadline = deadline
        self._devlink = Devlink(deadline, None if simulated_node is None else str(simulated_node))
        self._due_at = 0.0
        self.failed = ""
        """Why it is not known how things are; what was known stays."""
        self._is_slow = False
        self.reporters: list[HealthReporter] = []

    @property
    def readable(self) -> Devlink | None:
        """What is readable when something was said; None while it is not open."""
        return self._devlink if self._devlink.is_open else None

    def look(self, beat: Callable[[], object] | None) -> None:
        """Ask how things are, where that is due."""
        now = time.monotonic()
        if now < self._due_at and (not self._devlink.is_open or not self._devlink.is_stale or self.failed):
            return
        self._due_at = now + AGAIN_SECONDS
        self._is_slow = False
        try:
            self._devlink.dump(beat)
            self.reporters = self._devlink.reporters
        except TimeoutError:
            self.failed = f"the kernel has not answered within {self._deadline:g} s: a driver keeps it waiting"
            self._is_slow = True
        except OSError as error:
            self.failed = error.strerror or str(error)
        else:
            self.failed = ""

    def rest(self) -> None:
        """Ask and hear nothing until the next look: there is no card of which it may speak."""
        self._devlink.close()
        self._due_at = 0.0
        self.failed = ""
        self.reporters = []

    def hear(self) -> bool:
        """Take in what was said meanwhile; whether that changes anything."""
        if not self._devlink.is_open:
            return False
        try:
            self._devlink.hear()
        except OSError as error:
            self.failed = error.strerror or str(error)
            self._devlink.close()
            return False
        before, self.reporters = self.reporters, self._devlink.reporters
        return self.reporters != before

    def problems(self) -> list[spool_pb2.Problem]:
        """Why less is heard than there might be."""
        if not self.failed:
            return []
        is_refused = not self._devlink.is_open and not self._is_slow
        error = f"the health reporters of network cards cannot be read: {self.failed}" + (f": {_CURE}" * is_refused)
        return [spool_pb2.Problem(vendor=DEVLINK, path=_NETLINK, error=error)]
