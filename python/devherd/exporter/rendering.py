"""Pages are made in a thread, one at a time, and shared by all who ask meanwhile: probes are answered beside it.

A page of ten thousand devices takes half a second to make. Whoever asks for it again and again gets half of one core.
"""

import asyncio
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

LONGEST_REST_SECONDS = 1.0

Page = TypeVar("Page")


@dataclass(eq=False, slots=True)
class _Queued(Generic[Page]):
    """A page whose turn has not come, and how many ask for it."""

    task: asyncio.Task[Page]
    asking: int = 0


class Rendering(Generic[Page]):
    """The one place where pages are made."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._rested_at = 0.0
        self._queued: dict[Hashable, _Queued[Page]] = {}

    @property
    def queue_length(self) -> int:
        """Pages whose turn has not come."""
        return len(self._queued)

    async def shared(self, key: Hashable, make: Callable[[], Page]) -> Page:
        """What `make` returns, called after this request came; with others who ask for the same before it is called.

        It is not called when all of them have gone.
        """
        queued = self._queued.get(key)
        if queued is None:
            queued = self._queued[key] = _Queued(asyncio.create_task(self._make(key, make)))
        queued.asking += 1
        try:
            return await asyncio.shield(queued.task)
        finally:
            queued.asking -= 1
            if not queued.asking and self._queued.get(key) is queued:
                del self._queued[key]
                queued.task.cancel()

    async def _make(self, key: Hashable, make: Callable[[], Page]) -> Page:
        async with self._turn:
            await asyncio.sleep(max(0.0, self._rested_at - time.monotonic()))
            self._queued.pop(key, None)  # whoever asks from now on wants to see what happens from now on
            began = time.monotonic()
            try:
                return await asyncio.to_thread(make)
            finally:
                ended = time.monotonic()
                self._rested_at = ended + min(ended - began, LONGEST_REST_SECONDS)
