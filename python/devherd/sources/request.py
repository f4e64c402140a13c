"""The request to the process of a source, and whether its program, file or socket can be trusted."""

import contextlib
import errno
import json
import os
import stat
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from devherd import spool
from devherd.config.resolved import ResolvedConfig
from devherd.config.sections import External
from devherd.health.held import Seen
from devherd.proto import health_pb2
from devherd.reasons.registry import AMD_EXPORTER, AMD_KFD, EXTERNAL_PREFIX, LEDGER, MONITORS
from devherd.settings import Settings

_USUAL = {**MONITORS, AMD_KFD: "dev/kfd"}
"""Default paths of vendors' monitors and of AMD's driver, on the host."""
_AMD_RAS = "amd-ras"
"""The source of the scan core that reads the same counters as AMD's exporter."""
_DEADLINE, _SILENCE = 5.0, 180.0
"""For monitors, in seconds: limit of a call, silence after which findings are dropped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """A program to run, a file to read or a socket or device to ask; times in seconds."""

    command: tuple[str, ...] = ()
    file: str = ""
    socket: str = ""
    interval: float | None = None
    """Time between two runs; None for a program that keeps running."""
    timeout: float
    max_age: float
    on_silence: Literal["keep", "drop"]
    boot_id: str
    is_optional: bool = False
    """True if a missing socket is no failure."""


def requests_for(config: ResolvedConfig, findings: Path | None, boot_id: str) -> dict[str, str]:
    """The content of each request, by source. A monitor is asked while its socket exists or its findings count."""
    orders = {f"{EXTERNAL_PREFIX}{external.name}": _order(external, boot_id) for external in config.health.external}
    monitors = {**config.health.monitors, AMD_KFD: "auto" if config.health.amd_kfd else ""}
    monitors = {source: socket for source, socket in monitors.items() if source not in config.health.sources_off}
    for source, socket in monitors.items():
        order = _order_to_ask(source, socket, config.settings(), boot_id)
        if socket and (not order.is_optional or Path(order.socket).exists() or _is_waited_for(findings, source)):
            orders[source] = order
    requests = {source: json.dumps(asdict(order)) for source, order in orders.items()}
    if config.ledger.enabled and not config.is_dra:  # a claim's pod would seem to hold what is not given to it
        requests[LEDGER] = json.dumps({"ignore": config.ledger.ignore, "boot_id": boot_id})
    return requests


def _is_waited_for(findings: Path | None, source: str) -> bool:
    """True if a monitor's findings still count, so that it must be asked although its socket is missing."""
    if findings is None:
        return False
    file = spool.path_of(findings, source)
    try:
        known = spool.read_or_empty(file, health_pb2.Findings)
    except OSError:  # no descriptor is left
        return file.exists()
    return bool(known.source) and not known.lets_go


def left_to_others(seen: Seen) -> set[str]:
    """Sources of the scan core that an answering monitor replaces: both would load the card's firmware."""
    answers = AMD_EXPORTER in seen.reported and AMD_EXPORTER not in seen.failed
    return {_AMD_RAS} if answers else set()


def order_in(request: bytes) -> Order:
    """The order in a request. Raises ValueError, TypeError or KeyError if `requests_for` did not make the request."""
    fields = json.loads(request)
    return Order(**{**fields, "command": tuple(fields["command"])})


def _order(external: External, boot_id: str) -> Order:
    return Order(
        command=tuple(external.command or ()),
        file=str(external.file or ""),
        interval=external.interval,
        timeout=external.timeout_seconds,
        max_age=external.silence_seconds,
        on_silence=external.on_silence,
        boot_id=boot_id,
    )


def _order_to_ask(source: str, socket: str, settings: Settings, boot_id: str) -> Order:
    is_usual = socket == "auto"
    return Order(
        socket=str(settings.host_root / (_USUAL[source] if is_usual else socket.lstrip("/"))),
        interval=settings.waits.monitor_look,
        timeout=_DEADLINE,
        max_age=_SILENCE,
        on_silence="drop",
        boot_id=boot_id,
        is_optional=is_usual,
    )


_MOST_LINKS = 40
"""The kernel's limit: path_resolution(7)."""


def unusable(command: Sequence[str]) -> str | None:
    """Why a program must not or cannot be started, because of its own file or a file argument; None if it can."""
    try:
        complaints = (distrusted(Path(place)) for place in (command[0], *filter(_is_file, command[1:])))
        why = next(filter(None, complaints), None)
    except OSError as error:
        return f"{command[0]} cannot be started: {error.strerror or error}"
    if why is None and not os.access(command[0], os.X_OK):
        return f"{command[0]} cannot be started: {os.strerror(errno.EACCES)}"
    return why


def unreadable(file: Path) -> str | None:
    """Why a file with findings must not or cannot be read; None if it can."""
    try:
        return distrusted(file)
    except OSError as error:
        return f"{file} cannot be read: {error.strerror or error}"


def _is_file(argument: str) -> bool:
    """True for the path of a file: an interpreter's script, a file of settings."""
    with contextlib.suppress(OSError, ValueError):  # a NUL in it
        return argument.startswith("/") and Path(argument).is_file()
    return False


def distrusted(path: Path) -> str | None:
    """How other users could change the file at a path; None if only root and this user can. Raises OSError."""
    for place in _ways_to(path):
        status = place.lstat()
        if stat.S_ISLNK(status.st_mode):
            continue  # changed only through its directory
        if status.st_uid not in {0, os.geteuid()}:
            return f"{place} belongs to user {status.st_uid}; have root own it"
        is_shared = stat.S_ISSOCK(status.st_mode) or (stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX)
        if status.st_mode & stat.S_IWOTH and not is_shared:
            return f"everybody may write {place}; take that right away with `chmod o-w`"
        if status.st_mode & stat.S_IWGRP and status.st_gid not in {0, os.getegid()} and not is_shared:
            return f"group {status.st_gid} may write {place}; take that right away with `chmod g-w`"
    return None


def _ways_to(path: Path) -> Iterator[Path]:
    """Every file, directory and link on the way to a path, in the order in which the kernel resolves them.

    Raises OSError, also for a loop of links.
    """
    place, links = Path("/"), 0
    yield place
    rest = deque(path.absolute().parts[1:])
    while rest:
        name = rest.popleft()
        if name == "..":
            place = place.parent
            continue
        found = place / name
        yield found
        if not stat.S_ISLNK(found.lstat().st_mode):
            place = found
            continue
        links += 1
        if links > _MOST_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
        target = found.readlink()
        if target.is_absolute():
            place = Path("/")
        rest.extendleft(reversed([part for part in target.parts if part != "/"]))
