"""What every child of the supervisor is given at the fork, and nothing more."""

import signal
from collections.abc import Callable
from dataclasses import dataclass

from devherd.heartbeat import Heartbeats
from devherd.settings import Settings

BEAT_PERIOD_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Child:
    """A child's name in supervisorctl (`scanner`, `exporter`, `resource:<key>`), the options and its heartbeat."""

    name: str
    settings: Settings
    heartbeats: Heartbeats
    slot: int

    def beat(self) -> None:
        """To be called at least every BEAT_PERIOD_SECONDS from the loop that does the child's work."""
        self.heartbeats.beat(self.slot)


def take_reloads() -> None:
    """Let SIGHUP through: it is held from the fork on, so that none is lost, or deadly, before its handler is there."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})


ChildMain = Callable[[Child], int]
"""A child's main function, run after the fork in place of an exec: returns its exit code."""
