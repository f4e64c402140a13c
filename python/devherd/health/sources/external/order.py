"""What process `source:external-<name>` is to do: the request that the scanner writes for it. Pure."""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Literal

from devherd.config.resolved import External
from devherd.health.sources import EXTERNAL


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """A program to run or a file to read; times in seconds."""

    command: tuple[str, ...] = ()
    file: str = ""
    interval: float | None = None
    """Between two runs; None for a program that goes on running."""
    timeout: float
    max_age: float
    on_silence: Literal["keep", "drop"]
    boot_id: str


def requests_for(externals: Iterable[External], boot_id: str) -> dict[str, str]:
    """The content of each request, by source."""
    return {f"{EXTERNAL}{external.name}": json.dumps(asdict(_order(external, boot_id))) for external in externals}


def order_in(request: bytes) -> Order:
    """What a request asks for. Raises ValueError, TypeError and KeyError for one that was not made here."""
    said = json.loads(request)
    return Order(**{**said, "command": tuple(said["command"])})


def _order(external: External, boot_id: str) -> Order:
    return Order(
        command=tuple(external.command or ()),
        file=str(external.file or ""),
        interval=external.interval,
        timeout=external.timeout,
        max_age=external.max_age,
        on_silence=external.on_silence,
        boot_id=boot_id,
    )
