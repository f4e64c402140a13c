"""When NVML is waited for and when the GPUs are looked at, and what came of it."""

import logging
import time
from collections.abc import Callable
from typing import Protocol, TypeVar

from devherd.backoff import Backoff
from devherd.health.seen import Now
from devherd.health.sources.nvml.answer import Request
from devherd.health.sources.nvml.findings import NVML, SETTLE_SECONDS, Health, Reading, is_blind, troubles
from devherd.health.sources.nvml.session import Session
from devherd.proto import health_pb2

log = logging.getLogger(__name__)

LOOK_SECONDS = 30.0
"""Between two looks at the GPUs; an event brings the next one forward."""
SLICE_SECONDS = 0.5
"""How long one wait for events takes at most: for so long nothing else is asked."""
AGAIN = Backoff(SETTLE_SECONDS, LOOK_SECONDS)
"""Before NVML is opened anew after a wait or a look that failed."""

T = TypeVar("T")


class Asking(Protocol):
    """Asks NVML."""

    def __call__(self, ask: Callable[[], T]) -> T:
        """What `ask` returns or raises, unless it hangs."""


class Watcher:
    """The health of the GPUs of one request after the other."""

    def __init__(self, earlier: health_pb2.Findings) -> None:
        """`earlier`: what the process before this one has written."""
        self._earlier = earlier
        self._health: Health | None = None
        self._boot_id = ""
        self._look_at = 0.0
        self._failures = 0
        self._is_deaf = False
        self._told: dict[str, str] = {}
        self.session: Session | None = None
        """What is watched; none while NVML has not answered the request."""
        self.failed = ""
        """Why no GPU can be looked at."""

    def begin(self, request: Request, session: Session | None, readings: list[Reading], at: float) -> None:
        """Watch the GPUs of a request, after a first look at that CLOCK_MONOTONIC second."""
        self.session = session
        self._boot_id = request.get("boot_id") or ""
        if self._health is None:
            self._health = Health(self._earlier if self._earlier.boot_id == self._boot_id else None)
        self._health.forget_all_but(request.get("gpus", ()))
        self._is_deaf, self._failures, self.failed = False, 0, ""
        if session is not None:
            self._take_in(self._health, readings, at)

    def is_resting(self) -> bool:
        """Whether there is nothing to ask at present."""
        hears = self.session is not None and self.session.keeps_open and not self._is_deaf
        return self.session is None or (not hears and time.monotonic() < self._look_at)

    def turn(self, asking: Asking) -> bool:
        """Ask once: wait for events, look at the GPUs when that is due; whether there is something new to tell."""
        if self.session is None or self._health is None:
            return False
        now = time.monotonic()
        if self.session.holds_bad_ones:
            return not self._has_opened(self.session.let_go_of_bad_ones, asking, now)
        if now >= self._look_at:
            self._look(self.session, self._health, asking, now)
            return True
        return self._wait(self.session, self._health, asking, min(SLICE_SECONDS, self._look_at - now))

    def told(self, failed: str = "") -> health_pb2.Findings:
        """What is known of the GPUs; `failed`: why NVML cannot be asked."""
        if self._health is None:
            findings = health_pb2.Findings(source=NVML, failed=failed)
            findings.MergeFrom(health_pb2.Findings(boot_id=self._earlier.boot_id, findings=self._earlier.findings))
            return findings
        return self._health.told(Now(time.time(), time.monotonic(), self._boot_id), failed or self.failed)

    def _wait(self, session: Session, health: Health, asking: Asking, seconds: float) -> bool:
        events, failure = asking(lambda: session.wait(max(1, int(1000 * seconds))))
        now = time.monotonic()
        health.heard(events, now)
        if events:
            self._look_at = min(self._look_at, now + SETTLE_SECONDS)
        if failure:
            log.warning("NVML's events cannot be heard: %s; it is opened again", failure)
            self._fail(now)
        return bool(events)

    def _look(self, session: Session, health: Health, asking: Asking, now: float) -> None:
        is_deaf, self._is_deaf = self._is_deaf, False
        readings: list[Reading] = []
        if self._has_opened(lambda: readings.extend(session.look(health.suspects, anew=is_deaf)), asking, now):
            self._take_in(health, readings, now)

    def _has_opened(self, ask: Callable[[], None], asking: Asking, now: float) -> bool:
        try:
            asking(ask)
        except OSError as error:
            self.failed = str(error)
            self._fail(now)
            return False
        return True

    def _fail(self, now: float) -> None:
        self._is_deaf = True
        self._look_at = now + AGAIN.after(self._failures)
        self._failures += 1

    def _take_in(self, health: Health, readings: list[Reading], at: float) -> None:
        health.looked(readings, at)
        self._look_at = at + LOOK_SECONDS
        for reading in readings:
            self._log(reading["pci_address"], troubles(reading))
        blind = [reading for reading in readings if is_blind(reading)]
        is_all_blind = bool(blind) and len(blind) == len(readings)
        self.failed = f"no GPU can be looked at: {troubles(blind[0])}" if is_all_blind else ""

    def _log(self, gpu: str, trouble: str) -> None:
        if trouble and self._told.get(gpu) != trouble:
            log.warning("GPU %s: not all of its health can be read: %s", gpu, trouble)
        self._told[gpu] = trouble
