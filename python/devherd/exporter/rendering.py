"""Pages are made in a thread, one at a time, and shared by all who ask meanwhile: probes are answered beside it.

A page of ten thousand devices takes half a second to make. Whoever asks for it again and again gets half of one core.
"""

import asyncio
import time
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

LONGEST_REST_SECONDS = 1.0

Page = TypeVar("Page")


class Rendering(Generic[Page]):
    """The one place where pages are made."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._rested_at = 0.0
        self._queued: dict[Hashable, asyncio.Task[Page]] = {}

    async def shared(self, key: Hashable, make: Callable[[], Page]) -> Page:
        """What `make` returns, called after this request came; with others who ask for the same before it is called."""
        task = self._queued.get(key)
        if task is None:
            task = self._queued[key] = asyncio.create_task(self._make(key, make))
        return await asyncio.shield(task)

    async def _make(self, key: Hashable, make: Callable[[], Page]) -> Page:
        try:
            async with self._turn:
                await asyncio.sleep(max(0.0, self._rested_at - time.monotonic()))
                self._queued.pop(key)  # whoever asks from now on wants to see what happens from now on
                return await self._made(make)
        except asyncio.CancelledError:
            if self._queued.get(key) is asyncio.current_task():
                del self._queued[key]
            raise

    async def _made(self, make: Callable[[], Page]) -> Page:
        began = time.monotonic()
        try:
            return await asyncio.to_thread(make)
        finally:
            ended = time.monotonic()
            self._rested_at = ended + min(ended - began, LONGEST_REST_SECONDS)
