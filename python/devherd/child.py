"""What every child of the supervisor gets at the fork."""

import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from devherd.heartbeat import Heartbeats
from devherd.settings import Settings

BEAT_PERIOD_SECONDS = 1.0
SILENCE_LIMIT_SECONDS = 10.0
"""A child without a heartbeat for so long is replaced."""
RENEW = 75
"""Exit code of a child that wants to be started again at once, in a fresh sandbox (EX_TEMPFAIL of sysexits.h)."""


class Confined(Protocol):
    """The sandbox of a child, as the child sees it."""

    def is_outgrown(self) -> bool:
        """Whether a path that the child may touch was created again, so that only a new process may touch it."""

    def may_write(self, path: Path) -> bool:
        """Whether files may be made in a directory."""

    def may_read(self, path: Path) -> bool:
        """Whether what is in a directory can be read."""

    def may_serve_in(self, path: Path) -> bool:
        """Whether sockets may be made in a directory."""


@dataclass(frozen=True, slots=True)
class Child:
    """A child's name in supervisorctl (`scanner`, `exporter`, `resource:<key>`), the options and its heartbeat."""

    name: str
    settings: Settings
    heartbeats: Heartbeats
    slot: int
    last_exit: str = ""
    """How the process before this one ended; empty for the first."""
    sandbox: Confined | None = None

    def beat(self) -> None:
        """To be called at least every BEAT_PERIOD_SECONDS from the loop that does the child's work."""
        self.heartbeats.beat(self.slot)

    def waits_for_the_kubelet(self, waits: bool) -> None:
        """Whether the child can do nothing before the kubelet is there: the supervisor says so once for all."""
        self.heartbeats.waits_for_the_kubelet(self.slot, waits)

    def has_outgrown_its_sandbox(self) -> bool:
        """Whether it has to end with RENEW."""
        return self.sandbox is not None and self.sandbox.is_outgrown()

    def may_write(self, path: Path) -> bool:
        """Whether its sandbox lets it make files in a directory."""
        return self.sandbox is None or self.sandbox.may_write(path)

    def may_read(self, path: Path) -> bool:
        """Whether its sandbox lets it read what is in a directory."""
        return self.sandbox is None or self.sandbox.may_read(path)

    def may_serve_in(self, path: Path) -> bool:
        """Whether its sandbox lets it make sockets in a directory."""
        return self.sandbox is None or self.sandbox.may_serve_in(path)


def take_reloads() -> None:
    """Unblock SIGHUP: it is blocked from the fork on, so that none is lost or kills before the handler is set."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})


ChildMain = Callable[[Child], int]
"""A child's main function, run after the fork in place of an exec: returns its exit code."""
