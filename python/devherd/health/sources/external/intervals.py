"""A program that is run at intervals: it looks once and ends, as node-problem-detector's custom plugins do.

<https://github.com/kubernetes/node-problem-detector/blob/master/docs/custom_plugin_monitor.md>
"""

import time

from devherd.health.sources.external.program import UNENDING, NotStartedError, RunningProgram, how_it_ended, started
from devherd.health.sources.external.report import LONGEST_DETAIL, LONGEST_LINE, Report, plain
from devherd.health.sources.order import Order

MOST_OUTPUT = 65_536
_PROBLEM = 1


class RunAtIntervals:
    """Exit status 0: all is well; 1: a problem, told on stdout; any other: it cannot tell."""

    def __init__(self, order: Order) -> None:
        self.report = Report(order.command[0])
        self.spoke_at = time.monotonic()
        self._order = order
        self._interval = order.interval or 0.0
        self._program: RunningProgram | None = None
        self._output = bytearray()
        self._due_at = self._ends_at = self.spoke_at

    def listen(self, timeout: float) -> None:
        """Run it when it is due, and judge it when it has ended."""
        now = time.monotonic()
        if self._program is None and now < self._due_at:
            time.sleep(min(timeout, self._due_at - now))
            return
        if self._program is None:
            self._start(now)
        if self._program is not None:
            self._follow(self._program, timeout)

    def close(self) -> None:
        """End it."""
        if self._program is not None:
            self._program.end()

    def _start(self, now: float) -> None:
        self._due_at, self._ends_at = now + self._interval, now + self._order.timeout
        self._output.clear()
        try:
            self._program = started(self._order.command)
        except NotStartedError as error:
            self.report.failed = str(error)

    def _follow(self, program: RunningProgram, timeout: float) -> None:
        self._output += program.read(min(timeout, max(0.0, self._ends_at - time.monotonic())))
        status = program.exit_status()
        if status is not None:
            self._output += program.read(0.0)
            self._judge(status)
        elif len(self._output) > MOST_OUTPUT:
            self.report.failed = f"it wrote more than {MOST_OUTPUT} bytes"
        elif time.monotonic() >= self._ends_at:
            self.report.failed = f"it took longer than {self._order.timeout:g} s"
        else:
            return
        if program.end():
            self._program = None
        else:
            self.report.failed = UNENDING

    def _judge(self, status: int) -> None:
        said = plain(self._output[:LONGEST_LINE].decode(errors="replace"), LONGEST_DETAIL)
        if status == 0:
            self.report.clear()
        elif status != _PROBLEM:
            self.report.failed = ": ".join(filter(None, (how_it_ended(status), said)))
        elif self._output.lstrip().startswith(b"{"):
            self.report.replace(bytes(self._output))
        else:
            self.report.complain(said or "it found a problem and does not say which")
        if not self.report.failed:
            self.spoke_at = time.monotonic()
