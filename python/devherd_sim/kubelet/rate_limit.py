"""The kubelet's limit on PodResources: 100 calls a second on average, 10 at once."""

import time
from collections.abc import Awaitable, Callable
from typing import Any

import grpc

CALLS_PER_SECOND = 100.0
BURST = 10.0


class RateLimit(grpc.aio.ServerInterceptor):
    """A bucket of tokens; a call that finds it empty is refused."""

    def __init__(self) -> None:
        self._tokens = BURST
        self._filled_at = time.monotonic()

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        """Let a call through, or answer it with RESOURCE_EXHAUSTED."""
        now = time.monotonic()
        self._tokens = min(BURST, self._tokens + (now - self._filled_at) * CALLS_PER_SECOND)
        self._filled_at = now
        if self._tokens < 1:
            return grpc.unary_unary_rpc_method_handler(_refuse)
        self._tokens -= 1
        return await continuation(handler_call_details)


async def _refuse(_: Any, context: "grpc.aio.ServicerContext[Any, Any]") -> None:
    await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "rejected by rate limit")
