"""Deadlines that a process keeps itself: gRPC keeps its own in threads, and if it could not start them, it keeps none.

A thread is refused while process ids are short (pids.max of the pod's cgroup, RLIMIT_NPROC). gRPC then logs
`pthread_create failed`, and neither calls nor servers of this process end any more, even if there are ids again:
<https://github.com/grpc/grpc/issues/9743>, <https://github.com/grpc/grpc/issues/20366>. Only another process has
another gRPC.
"""

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from devherd.errors import DevherdError
from devherd.process import MORE_PROCESS_IDS

if TYPE_CHECKING:
    import grpc.aio

LATE_SECONDS = 5.0
"""So much later than gRPC's own deadline, and in a process that runs meanwhile, its answer does not come any more."""

_T = TypeVar("_T")


class MuteError(DevherdError):
    """gRPC has not kept its deadline: the process must be replaced by another one."""

    def __init__(self, what: str, seconds: float) -> None:
        super().__init__(
            f"gRPC has not ended {what}",
            f"not after {seconds + LATE_SECONDS:g} s: it has no threads in a process that began while process ids were"
            " short",
            f"the process is started again; if it comes again, {MORE_PROCESS_IDS}",
        )


async def in_time(work: Coroutine[Any, Any, _T], seconds: float, what: str) -> _T:
    """The result of work that gRPC itself is to end after `seconds`. Raises MuteError if it does not.

    The second wait begins after the first: a process that was frozen gives gRPC time to notice that, too.
    """
    task = asyncio.create_task(work)
    try:
        for wait in (seconds, LATE_SECONDS):
            done, _ = await asyncio.wait([task], timeout=wait)
            if done:
                return task.result()
        raise MuteError(what, seconds)
    finally:
        task.cancel()


async def over(starting: "asyncio.Task[None]") -> None:
    """Return once the start of a server is over, well or not. Raises MuteError if it does not end."""
    await in_time(asyncio.wait([starting]), 0.0, "the start of a server")


async def stop(server: "grpc.aio.Server", grace: float | None) -> None:
    """End a server, whose calls have `grace` seconds to end. Raises MuteError if it does not end."""
    await in_time(server.stop(grace), grace or 0.0, "a server")
