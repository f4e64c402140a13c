"""HTTP server of a standby instance: liveness, readiness to take over, and its version as the only metric.

The running instance reports the devices. The standby answers scrapes so that its target is not down during a roll-out.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path

from devherd.config.resolved import ResolvedConfig
from devherd.exporter import exposition
from devherd.exporter.encryption import Encryption
from devherd.exporter.gate import Gate
from devherd.exporter.listener import Listener
from devherd.exporter.metrics import build_info
from devherd.exporter.server import Request, Response
from devherd.kubelet.registration import knock
from devherd.settings import UNIX
from devherd.text import duration

REMIND_SECONDS = 300.0
"""Time between two reminders in the log: a wait this long may mean that a second instance was started by mistake."""
_TEND_SECONDS = 1.0

log = logging.getLogger(__name__)


def serve(config: ResolvedConfig, why: str, announce: Callable[[], bool], *, is_ready: bool) -> None:
    """Serve on the configuration's addresses until the process is killed. `why` is the reason for the wait.

    Skips a Unix socket that the running instance serves.

    `announce` is called until it returns True; it writes this standby to the run directory, for `devherd status`. If
    `is_ready` is False, the rehearsal has not finished.
    """
    asyncio.run(_serve(config, why, announce, is_ready=is_ready))


async def _serve(config: ResolvedConfig, why: str, announce: Callable[[], bool], *, is_ready: bool) -> None:
    async def answer(request: Request) -> Response:
        return standing_by(request.path, why, is_ready=is_ready)

    gate, encryption = Gate(answer), Encryption()
    gate.guard(config.web)
    encryption.use(config.web.tls)
    listener = Listener(gate.answer, encryption)
    listener.move_to([each for each in config.settings().listen_addresses if not _is_served(each)])
    since = reminded = time.monotonic()
    is_announced = False
    while True:
        with contextlib.suppress(OSError):  # the disk is full: tried again in the next round
            is_announced = is_announced or announce()
        encryption.tend()
        await listener.tend()
        await asyncio.sleep(_TEND_SECONDS)
        if (now := time.monotonic()) - reminded >= REMIND_SECONDS:
            reminded = now
            doing = "standing by" if is_ready else "rehearsing"
            log.warning("still %s after %s: %s", doing, duration(now - since), why)


def _is_served(address: str) -> bool:
    return address.startswith(UNIX) and knock(Path(address.removeprefix(UNIX))) is None


def standing_by(path: str, why: str, *, is_ready: bool = True) -> Response:
    """The answer to a request for a path."""
    state = f"standing by: {why}\n" if is_ready else f"not ready to take over: the rehearsal is not done; {why}\n"
    if path == "/metrics":
        writer = exposition.Writer(as_openmetrics=False)
        return Response(HTTPStatus.OK, writer.content_type, writer.page([build_info()]))
    if path == "/healthz":
        return _text(HTTPStatus.OK, "ok\n")
    if path == "/readyz" and is_ready:
        return _text(HTTPStatus.OK, state)
    return _text(HTTPStatus.SERVICE_UNAVAILABLE, state)


def _text(status: HTTPStatus, body: str) -> Response:
    return Response(status, "text/plain; charset=utf-8", body.encode(), {"Cache-Control": "no-store"})
