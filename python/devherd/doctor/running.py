"""The instance of this run directory, and what one that is started would need: the directory, room, the port."""

import errno
import os
import re
import socket
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from devherd import instance
from devherd.doctor.line import Line, ok, problem, warning
from devherd.instance import Herd
from devherd.kubelet.registration_socket import knock
from devherd.settings import Settings

TOPIC = "instance"
_LEAST_ROOM_BYTES = 32 << 20
"""Of the run directory: two rotated logs and a history for each child."""
_ADDRESS = re.compile(r"(?P<host>.*):(?P<port>\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """What was read."""

    settings: Settings
    is_running: bool
    herd: Herd = field(default_factory=Herd)
    run_dir: str = ""
    """Why the run directory cannot be used."""
    room_bytes: int = _LEAST_ROOM_BYTES
    taken: tuple[str, ...] = ()
    """Addresses at which somebody listens."""


def look(settings: Settings) -> Instance:
    """Read it."""
    try:
        herd = instance.read(settings)
    except OSError:
        herd = Herd()
    return Instance(
        settings=settings,
        is_running=knock(settings.control_socket) is None,
        herd=herd,
        run_dir=_refusal(settings.run_dir),
        room_bytes=_room(settings.run_dir),
        taken=tuple(address for address in settings.listen_addresses if _is_taken(address)),
    )


def judge(found: Instance) -> Iterator[Line]:
    """What is to be said of it."""
    run_dir = found.settings.run_dir
    if found.run_dir:
        yield problem(TOPIC, f"{run_dir} cannot be used: {found.run_dir}", "use sudo, or name another with --run-dir")
    elif found.room_bytes < _LEAST_ROOM_BYTES:
        left = f"{found.room_bytes >> 20} MiB"
        yield problem(TOPIC, f"{run_dir} has only {left} left", "make room, or name another directory with --run-dir")
    else:
        yield ok(TOPIC, f"{run_dir} can be written")
    if not found.is_running:
        yield ok(TOPIC, f"no instance runs in {run_dir}")
        for address in found.taken:
            cure = "end it, or name another address with --listen"
            yield problem(TOPIC, f"another program listens on {address}", cure)
        return
    head = found.herd.head
    which = f": devherd {head.version}, process {head.pid}" if head else ""
    yield ok(TOPIC, f"an instance runs in {run_dir}{which}")
    yield from _of_the_herd(found.herd)


def _of_the_herd(herd: Herd) -> Iterator[Line]:
    if herd.configuration.refusal:
        what = f"the configuration was not reloaded, the old one stays: {herd.configuration.refusal}"
        yield problem(TOPIC, what, "mend the file (`devherd check-config FILE`) and reload: `devherd ctl update`")
    for name, child in sorted(herd.children.items()):
        if child.state != instance.RUNNING:
            why = f", last exit: {child.last_exit}" if child.last_exit else ""
            cure = f"devherd ctl tail {name}; devherd ctl start {name}"
            yield problem(TOPIC, f"{name} is {child.state}{why}", cure)
    for resource in herd.resources:
        registration = herd.registration(resource.name)
        if not registration.registered:
            yield warning(TOPIC, f"{resource.name} is not registered: {registration.detail}", "devherd status")


def _refusal(run_dir: Path) -> str:
    place = next(path for path in (run_dir, *run_dir.parents) if path.exists())
    if not place.is_dir():
        return f"{place} is not a directory"
    return "" if os.access(place, os.W_OK | os.X_OK) else f"{place} cannot be written"


def _room(run_dir: Path) -> int:
    place = next(path for path in (run_dir, *run_dir.parents) if path.exists())
    try:
        room = os.statvfs(place)
    except OSError:
        return _LEAST_ROOM_BYTES
    return room.f_bavail * room.f_frsize


def _is_taken(address: str) -> bool:
    """Whether somebody listens at an address of TCP. Those of other kinds are not asked for."""
    named = _ADDRESS.fullmatch(address)
    if named is None:
        return False
    host = named["host"].strip("[]")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, int(named["port"])))
    except OSError as error:
        return error.errno == errno.EADDRINUSE
    return False
