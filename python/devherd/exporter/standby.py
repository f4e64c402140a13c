"""What an instance says that stands by: it is alive, whether it is ready to take over, and it has nothing to show.

Whose devices these are says the instance that still runs. Scrapers find the version of this one, so that no target is
down in a roll-out.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from http import HTTPStatus

from devherd.amounts import duration
from devherd.config.resolved import Config
from devherd.exporter import exposition
from devherd.exporter.encryption import Encryption
from devherd.exporter.gate import Gate
from devherd.exporter.http_message import Answer, Request
from devherd.exporter.listener import Listener
from devherd.exporter.metrics import build_info
from devherd.settings import UNIX

REMIND_SECONDS = 300.0
"""Between two lines of the log: the one before is to end soon, or somebody has started a second one by mistake."""
_TEND_SECONDS = 1.0

log = logging.getLogger(__name__)


def serve(config: Config, why: str, announce: Callable[[], bool], *, is_ready: bool) -> None:
    """Answer on the configuration's addresses until the process is killed. `why` is what is waited for.

    `announce` is called until it returns True: for the status of the one that is waited for. One that is not ready
    still rehearses.
    """
    asyncio.run(_serve(config, why, announce, is_ready=is_ready))


async def _serve(config: Config, why: str, announce: Callable[[], bool], *, is_ready: bool) -> None:
    async def answer(request: Request) -> Answer:
        return standing_by(request.path, why, is_ready=is_ready)

    gate, encryption = Gate(answer), Encryption()
    gate.guard(config.web)
    encryption.use(config.web.tls)
    listener = Listener(gate.answer, encryption)
    listener.move_to([each for each in config.settings().listen_addresses if not each.startswith(UNIX)])
    since = reminded = time.monotonic()
    is_announced = False
    while True:
        with contextlib.suppress(OSError):  # no room at present
            is_announced = is_announced or announce()
        encryption.tend()
        await listener.tend()
        await asyncio.sleep(_TEND_SECONDS)
        if (now := time.monotonic()) - reminded >= REMIND_SECONDS:
            reminded = now
            doing = "standing by" if is_ready else "rehearsing"
            log.warning("still %s after %s: %s", doing, duration(now - since), why)


def standing_by(path: str, why: str, *, is_ready: bool = True) -> Answer:
    """The answer to a request for a path."""
    said = f"standing by: {why}\n" if is_ready else f"not ready to take over: the rehearsal is not done; {why}\n"
    if path == "/metrics":
        return Answer(HTTPStatus.OK, exposition.TEXT, exposition.text([build_info()]).encode())
    if path == "/healthz":
        return _text(HTTPStatus.OK, "ok\n")
    if path == "/readyz" and is_ready:
        return _text(HTTPStatus.OK, said)
    return _text(HTTPStatus.SERVICE_UNAVAILABLE, said)


def _text(status: HTTPStatus, body: str) -> Answer:
    return Answer(status, "text/plain; charset=utf-8", body.encode(), {"Cache-Control": "no-store"})
