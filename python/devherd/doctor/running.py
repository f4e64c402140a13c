"""The instance of this run directory, and the needs of a new one: directories, room in them, a free port."""

import errno
import os
import re
import socket
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from devherd import spool
from devherd.config.resolved import ResolvedConfig, ResolvedFileError, read_resolved
from devherd.doctor import pids
from devherd.doctor.line import Line, ill, ok, problem, warning
from devherd.doctor.pids import Pids
from devherd.instance import lost_devices
from devherd.instance.read import RUNNING, SUPERVISOR, InstanceState, is_by_dra, read_instance
from devherd.kubelet.registration import is_away, knock
from devherd.mounts import mount_at, mounts_of
from devherd.process import heartbeats_of, is_in_pod
from devherd.proto import spool_pb2
from devherd.settings import Settings

TOPIC = "instance"
_RUN_BYTES = 32 << 20
"""Room for two rotated logs and a history of each child."""
_LASTING_BYTES = 1 << 20
"""Room for cordons and lost devices."""
_FEWEST_FILES = 100
_ADDRESS = re.compile(r"(?P<host>.*):(?P<port>\d+)")


@dataclass(frozen=True, slots=True)
class CheckedDirectory:
    """A directory, and the option that names it; `refusal` is the reason why it cannot be used, empty if it can."""

    path: Path
    option: str
    needs_bytes: int
    refusal: str = ""
    room_bytes: int | None = None
    """None if unknown."""
    room_files: int | None = None
    """None if unknown, or if the file system has no limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """Facts about the instance."""

    settings: Settings
    is_running: bool
    herd: InstanceState = field(default_factory=InstanceState)
    places: tuple[CheckedDirectory, ...] = ()
    taken: tuple[str, ...] = ()
    """Configured addresses on which a program listens."""
    read_only: tuple[Path, ...] = ()
    """Directories that the instance must write, but that are read-only in the mounts of its unit or pod."""
    removed: tuple[Path, ...] = ()
    """The kubelet's directories in the instance's mounts that were since removed on the host."""
    process_ids: Pids | None = None
    """The process ids of its pod or unit; None if unknown."""
    is_kubelet_away: bool = False
    """Whether no kubelet listens: resources then wait for it."""


def look(settings: Settings) -> Instance:
    """Read the facts."""
    try:
        herd = read_instance(settings)
    except OSError:
        herd = InstanceState()
    read_only, removed = _behind_its_mounts(settings, herd)
    return Instance(
        settings=settings,
        is_running=knock(settings.control_socket) is None,
        herd=herd,
        places=tuple(_places(settings)),
        taken=tuple(address for address in settings.listen_addresses if _is_taken(address)),
        read_only=read_only,
        removed=removed,
        process_ids=_process_ids(herd.supervisor_pid),
        is_kubelet_away=is_away(settings),
    )


def judge(found: Instance) -> Iterator[Line]:
    """The report lines."""
    run_dir = found.settings.run_dir
    for place in found.places:
        yield _of_the_place(place)
    if not found.is_running:
        yield ok(TOPIC, f"no instance runs in {run_dir}")
        for address in found.taken:
            cure = "end it, or name another address with --listen"
            yield problem(TOPIC, f"another program listens on {address}", cure)
        return
    instance = found.herd.instance
    which = f": devherd {instance.version}, process {instance.pid}" if instance else ""
    yield ok(TOPIC, f"an instance runs in {run_dir}{which}")
    yield from pids.judge(found.process_ids)
    yield from _of_the_herd(found.herd, is_kubelet_away=found.is_kubelet_away)
    for path in found.read_only:
        of_the_unit = f"`ReadWritePaths=-{path}` in `systemctl edit devherd`, and a restart"
        cure = "mount it writable in the pod" if is_in_pod() else of_the_unit
        yield problem(TOPIC, f"{path} is read-only for the instance that runs", cure)
    for path in found.removed:
        cure = "restart it, or the kubelet: then devherd ends by itself, to be started again"
        yield problem(TOPIC, f"{path} was removed on the host; the instance that runs sees the old one", cure)


def _process_ids(pid: int) -> Pids | None:
    """The process ids of the supervisor's cgroup; None if it cannot be seen from here."""
    try:
        return pids.look(pid) if pid else None
    except OSError:
        return None


def _of_the_herd(herd: InstanceState, *, is_kubelet_away: bool) -> Iterator[Line]:
    if herd.configuration.refusal:
        what = f"the configuration was not reloaded, the old one stays: {herd.configuration.refusal}"
        yield problem(TOPIC, what, "correct the file (`devherd config check FILE`) and reload: `devherd ctl update`")
    for address in filter(lambda address: address.refusal, herd.addresses()):
        yield problem(TOPIC, f"not serving {address.address}: {address.refusal}", address.cure)
    yield from _of_the_processes(herd)
    yield from (warning(TOPIC, trouble.text, trouble.command) for trouble in herd.source_troubles())
    for resource in herd.resources:
        if not is_by_dra(resource) and not (registration := herd.registration(resource.name)).registered:
            what = f"{resource.name} is not registered: {registration.detail}"
            level = warning if is_kubelet_away else problem  # then the kubelet's own line is the problem
            yield level(TOPIC, what, f"devherd explain {resource.name}; devherd ctl tail {resource.name}")
        for device in resource.devices:
            if device.reasons:
                yield problem(TOPIC, ill(resource, device), f"devherd explain {resource.name} {device.id}")
    for name, why in herd.drivers_waiting():
        level = warning if is_kubelet_away else problem
        yield level(TOPIC, f"{name} is not registered: {why}", "devherd ctl tail dra:a; devherd ctl tail dra:b")
    yield from _of_lost_devices(herd)


def _of_lost_devices(herd: InstanceState) -> Iterator[Line]:
    for device in herd.lost:
        cure = f"look for the card; if it is not to come back: devherd forget {device.device}"
        yield problem(TOPIC, lost_devices.line(device), cure)


def _of_the_processes(herd: InstanceState) -> Iterator[Line]:
    if SUPERVISOR in herd.silent:
        what = f"the supervisor, process {herd.supervisor_pid}, hangs: processes that end are not replaced"
        yield problem(TOPIC, what, "end it, and start devherd again")
    for name, child in sorted(herd.children.items()):
        if name in herd.silent:
            yield problem(TOPIC, f"{name} gives no sign of life", f"devherd ctl restart {name}")
        if child.state != RUNNING:
            why = f", last exit: {child.last_exit}" if child.last_exit else ""
            cure = f"devherd ctl tail {name}; devherd ctl start {name}"
            yield problem(TOPIC, f"{name} is {child.state}{why}", cure)


def _of_the_place(place: CheckedDirectory) -> Line:
    if place.refusal:
        cure = f"use sudo, or name another with {place.option}"
        return problem(TOPIC, f"{place.path} cannot be used: {place.refusal}", cure)
    cure = f"make room, or name another directory with {place.option}"
    if place.room_bytes is not None and place.room_bytes < place.needs_bytes:
        left = f"{place.room_bytes >> 20} of the {place.needs_bytes >> 20} MiB that may be needed"
        return problem(TOPIC, f"{place.path} has only {left}", cure)
    if place.room_files is not None and place.room_files < _FEWEST_FILES:
        return problem(TOPIC, f"{place.path} has room for {place.room_files} files only", cure)
    return ok(TOPIC, f"{place.path} can be written")


def _places(settings: Settings) -> Iterator[CheckedDirectory]:
    yield _place(settings.run_dir, "--run-dir", _RUN_BYTES)
    if settings.lasting_directory is not None:
        yield _place(settings.lasting_directory, "--state-dir", _LASTING_BYTES)


def _place(path: Path, option: str, needs_bytes: int) -> CheckedDirectory:
    """Facts about a directory; for one that does not exist yet, those of its nearest parent."""
    there = next(each for each in (path, *path.parents) if each.exists())
    if not there.is_dir():
        return CheckedDirectory(path, option, needs_bytes, refusal=f"{there} is not a directory")
    if not os.access(there, os.W_OK | os.X_OK):
        return CheckedDirectory(path, option, needs_bytes, refusal=f"{there} cannot be written")
    try:
        room = os.statvfs(there)
    except OSError:
        return CheckedDirectory(path, option, needs_bytes)
    files = room.f_favail if room.f_files else None
    return CheckedDirectory(path, option, needs_bytes, room_bytes=room.f_bavail * room.f_frsize, room_files=files)


def _behind_its_mounts(settings: Settings, herd: InstanceState) -> tuple[tuple[Path, ...], tuple[Path, ...]]:
    """What a running instance cannot write, and its removed kubelet directories, by the mounts of its main process."""
    children = spool.read_or_empty(settings.children_file, spool_pb2.Children)
    if heartbeats_of(children.supervisor_pid, children.heartbeats_descriptor) is None:
        return (), ()  # it has ended, is in another PID namespace, or is not this user's
    try:
        mounts = mounts_of(children.supervisor_pid)
    except OSError:
        return (), ()
    needed = [settings.run_dir, *filter(None, [settings.lasting_directory]), *_written(settings, herd)]
    seen = {path: mount_at(path.resolve(), mounts) for path in [*needed, *settings.kubelet_directories]}
    read_only = [path for path in needed if (mount := seen[path]) and not mount.is_writable]
    removed = [path for path in settings.kubelet_directories if (mount := seen[path]) and mount.is_removed]
    return tuple(dict.fromkeys(read_only)), tuple(removed)


def _written(settings: Settings, herd: InstanceState) -> Iterator[Path]:
    """The directories that the instance writes for other programs."""
    yield settings.socket_directory
    yield from settings.listen_directories
    try:
        config: ResolvedConfig = read_resolved(settings.resolved_config_file)
    except ResolvedFileError:
        return
    if any(device.edits.cdi_devices for resource in herd.resources for device in resource.devices):
        yield config.cdi_directory
    if config.device_info_directory:
        yield config.device_info_directory
    if config.node_labels.write == "feature_file":
        yield config.feature_file.parent


def _is_taken(address: str) -> bool:
    """Whether a program listens on a TCP address; False for addresses of other kinds."""
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
