"""The event log of the embedded kubelet, and waiting for events."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

PATIENCE_SECONDS = 30.0
"""Prevents endless waiting; generous, because a busy machine is slow."""

Kind = Literal[
    "started",
    "stopped",
    "register-called",
    "registered",
    "register-refused",
    "register-abandoned",
    "list",
    "doubtful",
    "stream-ended",
    "disconnected",
    "forgotten",
    "checkpoint-ignored",
    "checkpoint-failed",
    "plugin-found",
    "plugin-refused",
    "plugin-gone",
    "health",
    "health-forgotten",
    "allocated",
    "allocation-refused",
    "pre-started",
    "freed",
]
"""What happened; python/devherd/cli/sim_kubelet_answers.py has the meaning and the details of each."""


@dataclass(frozen=True, slots=True)
class KubeletEvent:
    """An event. `at`: monotonic time in seconds."""

    at: float
    kind: Kind
    resource: str = ""
    detail: dict[str, Any] = field(default_factory=dict)
    time: float = 0.0
    """Unix time in seconds."""

    def as_json(self) -> dict[str, Any]:
        """The event as JSON, with its time in UTC."""
        seconds, fraction = divmod(self.time, 1)
        at = f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{int(fraction * 1000):03}Z"
        return {"time": at, "kind": self.kind, "resource": self.resource, **self.detail}


class Events:
    """The event log of one kubelet. Used from its event loop only."""

    def __init__(self) -> None:
        self._events: list[KubeletEvent] = []
        self._listeners: list[Callable[[KubeletEvent], None]] = []
        self._waiting: set[asyncio.Future[None]] = set()

    def record(self, kind: Kind, resource: str = "", **detail: Any) -> None:
        """Append an event with the current time, and notify listeners and waiters."""
        event = KubeletEvent(time.monotonic(), kind, resource, detail, time.time())
        self._events.append(event)
        for listener in self._listeners:
            listener(event)
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_result(None)

    def listen(self, listener: Callable[[KubeletEvent], None]) -> None:
        """Call the listener for every event from now on."""
        self._listeners.append(listener)

    def mark(self) -> int:
        """The current end of the log, for `since`."""
        return len(self._events)

    def since(self, mark: int = 0, kind: Kind | None = None, resource: str | None = None) -> list[KubeletEvent]:
        """The events since a mark, optionally filtered by kind and resource."""
        return [
            event for event in self._events[mark:] if kind in (None, event.kind) and resource in (None, event.resource)
        ]

    async def wait(
        self,
        kind: Kind,
        resource: str | None = None,
        *,
        since: int = 0,
        within: float = PATIENCE_SECONDS,
    ) -> KubeletEvent:
        """Wait for the first event of a kind since a mark and return it. Raises TimeoutError after `within` seconds."""
        await self.until(
            lambda: bool(self.since(since, kind, resource)), within=within, what=f"{kind} {resource or ''}".strip()
        )
        return self.since(since, kind, resource)[0]

    async def until(
        self,
        condition: Callable[[], bool],
        *,
        within: float = PATIENCE_SECONDS,
        what: str = "the condition",
    ) -> None:
        """Wait until a condition is true, checking after each event. Raises TimeoutError that names `what`."""
        deadline = time.monotonic() + within
        while not condition():
            happened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.add(happened)
            try:
                await asyncio.wait_for(happened, None if within == float("inf") else deadline - time.monotonic())
            except TimeoutError:
                last = ", ".join(f"{event.kind} {event.resource}".strip() for event in self._events[-5:])
                raise TimeoutError(f"{what}: not within {within} s; last events: {last or 'none'}") from None
            finally:
                self._waiting.discard(happened)
