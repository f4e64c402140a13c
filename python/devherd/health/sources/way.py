"""How something of the operator's speaks, whichever way that is."""

from typing import Protocol

from devherd.health.sources.external.report import Report


class Way(Protocol):
    """One of the ways."""

    report: Report
    spoke_at: float
    """CLOCK_MONOTONIC second at which it last said how the devices are, or began."""

    def listen(self, timeout: float) -> None:
        """Take in what it says, waiting for that at most `timeout` seconds."""

    def close(self) -> None:
        """End what was started."""
