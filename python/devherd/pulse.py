"""A wake-up of all tasks that wait at that moment; it is not remembered."""

import asyncio


class Pulse:
    """Look first, then wait: on one loop nothing can happen between the two."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def tell(self) -> None:
        """Wake all who wait now."""
        self._event.set()
        self._event.clear()

    async def wait(self, seconds: float | None = None) -> None:
        """Until the next call, or for that long."""
        if seconds is None:
            await self._event.wait()
            return
        try:
            async with asyncio.timeout(seconds):
                await self._event.wait()
        except TimeoutError:
            pass
