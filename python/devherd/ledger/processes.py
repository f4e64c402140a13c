"""Finds processes of the host that have devices open: the device by its node's number, the pod by the cgroup.

Source of the files in /proc: <https://man7.org/linux/man-pages/man5/proc.5.html> and man7/cgroups.7.html. The kubelet
names the cgroup of a pod `pod<uid>`, and for systemd, whose names have `-` between levels, with `_` in the uid
(pkg/kubelet/cm: `GetPodContainerName`, `CgroupName.ToSystemd`). The runtime makes a cgroup below it whose name ends in
the container's id: `<id>`, `cri-containerd-<id>.scope`, `crio-<id>.scope`, `docker-<id>.scope`, or, where it takes a
name for systemd as a path, `<slice>:cri-containerd:<id>`. The uid of a static pod has no `-`.
"""

import os
import re
import signal
import stat
from collections import defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from devherd._native import open_devices
from devherd.inventory import DeviceKey
from devherd.process import is_in_container, stat_of
from devherd.proto import devices_pb2

Number = tuple[int, int]
"""Major and minor number of a device node."""

_PROC = Path("/proc")
_INITIAL_PIDS = "pid:[4026531836]"
"""The initial namespace of process ids has this number: PROC_PID_INIT_INO in the kernel's include/linux/proc_ns.h."""
_TITLE = b"devherd: "
"""How the titles of devherd's processes begin (devherd/fork.py)."""
_MOST_ANCESTORS = 64
_POD = re.compile(
    r"pod(?P<uid>[0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32})(?:\.slice)?(?:[/:]|$)", re.MULTILINE
)
_CONTAINER = re.compile(r"[/:-](?P<id>[0-9a-f]{64})(?:\.scope)?(?:/|$)", re.MULTILINE)
_OF_DRIVERS = frozenset(
    {
        "/dev/kfd",
        "/dev/nvidiactl",
        "/dev/nvidia-modeset",
        "/dev/nvidia-uvm",
        "/dev/nvidia-uvm-tools",
        "/dev/vfio/vfio",
        "/dev/infiniband/rdma_cm",
    }
)
"""Nodes of a driver that every user of one of its devices has open; skipped even if the host has only one device."""


class NotSeenError(Exception):
    """The processes of the host cannot be looked at; the text is the reason and what to do."""


@dataclass(frozen=True, slots=True, order=True)
class ContainerPlace:
    """The container of a process; all fields are empty outside containers."""

    pod_uid: str = ""
    """As in the API, with `-`; empty for a process outside pods."""
    container_id: str = ""
    """As in the runtime; empty if the cgroup does not name it."""


@dataclass(frozen=True, slots=True, order=True)
class Opened:
    """A process that has a device node open."""

    number: Number
    pid: int
    started: int
    """Start time in clock ticks since the boot: the process id may be reused."""
    command: str
    """As in /proc/<pid>/comm."""
    place: ContainerPlace
    is_killed: bool = False
    """Whether it was killed and has not ended: it waits in the kernel, as for a silent device."""


def own_nodes(inventory: devices_pb2.Inventory, host_root: Path) -> dict[Number, tuple[DeviceKey, str]]:
    """The device of each node that belongs to one device alone, and the node's path, by number.

    MIG devices of one GPU share its node: an open node does not tell which of them is used.
    """
    found: dict[Number, dict[DeviceKey, str]] = defaultdict(dict)
    for known in inventory.devices:
        device = known.device
        for path in device.paths:
            if path.is_node and not any(path.path.endswith(name) for name in _OF_DRIVERS):
                for number in _numbers(path, host_root):
                    found[number][device.vendor, device.card, device.id] = path.path
    return {number: next(iter(devices.items())) for number, devices in found.items() if len(devices) == 1}


def _numbers(path: devices_pb2.HostPath, host_root: Path) -> Iterator[Number]:
    if path.HasField("number"):
        yield path.number.major, path.number.minor
        return
    try:
        status = (host_root / path.path.lstrip("/")).stat()
    except OSError:
        return
    if stat.S_ISCHR(status.st_mode) or stat.S_ISBLK(status.st_mode):
        yield os.major(status.st_rdev), os.minor(status.st_rdev)


def place_of(text: str) -> ContainerPlace:
    """The container that the content of a cgroup file names."""
    pod, container = _POD.search(text), _CONTAINER.search(text)
    return ContainerPlace(pod["uid"].replace("_", "-") if pod else "", container["id"] if container else "")


def opened(numbers: Collection[Number], ignore: Collection[str], supervisor: int) -> list[Opened]:
    """The processes that have nodes with these numbers open, sorted. Raises NotSeenError.

    Leaves out processes whose names fit a glob of `ignore`, and processes of devherd: of this instance, found by its
    supervisor, and of other instances, found by their titles.
    """
    if why := _hidden():
        raise NotSeenError(why)
    try:
        found, refused, examined = open_devices(_PROC, frozenset(numbers))
    except OSError as error:
        raise NotSeenError(f"{_PROC} cannot be read: {error.strerror}") from error
    if refused >= examined:  # a security module may guard single ones
        raise NotSeenError(
            f"{refused} of the host's processes must not be looked at: its pod needs the component `ledger`"
            " (appArmorProfile: Unconfined)"
        )
    return sorted(
        one
        for pid, number in found
        if (one := _process(pid, number)) is not None
        and not any(fnmatchcase(one.command, glob) for glob in ignore)
        and not _is_of_devherd(pid, supervisor)
    )


_NEEDED = {2: "CAP_DAC_READ_SEARCH", 19: "CAP_SYS_PTRACE"}
"""Without these, only processes of the same user without further rights can be examined: ptrace(2)."""


def _lacking() -> list[str]:
    """The capabilities that this process lacks."""
    lines = (_PROC / "self/status").read_text().splitlines()
    effective = next(int(line.split()[1], 16) for line in lines if line.startswith("CapEff:"))
    return [name for number, name in _NEEDED.items() if not effective >> number & 1]


def _hidden() -> str:
    """Why the processes of the host cannot be seen; empty if they can."""
    if lacking := _lacking():
        return f"{' and '.join(lacking)} missing: add the component `ledger` in a pod, CapabilityBoundingSet= in a unit"
    try:
        if not is_in_container() or str((_PROC / "self/ns/pid").readlink()) == _INITIAL_PIDS:
            return ""
        if (_PROC / "1/ns/mnt").readlink() != (_PROC / "self/ns/mnt").readlink():
            return ""
    except OSError:
        pass
    return "only the processes of devherd's own container can be seen: its pod needs the component `ledger` (hostPID)"


def _process(pid: int, number: Number) -> Opened | None:
    """What is known of a process; None if it has ended meanwhile."""
    place = _PROC / str(pid)
    try:
        stat = stat_of(pid)
        cgroup = (place / "cgroup").read_text(errors="replace")
        status = (place / "status").read_text(errors="replace")
    except OSError:
        return None
    return Opened(number, pid, stat.started, stat.name, place_of(cgroup), is_killed=_is_killed(status))


def _is_killed(status: str) -> bool:
    """Whether SIGKILL is pending: masks of the thread and of the process, of which signal 1 is the lowest bit."""
    masks = [line.split()[1] for line in status.splitlines() if line.startswith(("SigPnd:", "ShdPnd:"))]
    return any(int(mask, 16) >> (signal.SIGKILL - 1) & 1 for mask in masks)


def _is_of_devherd(pid: int, supervisor: int) -> bool:
    if supervisor in _and_ancestors(pid):
        return True
    try:
        return (_PROC / str(pid) / "cmdline").read_bytes().startswith(_TITLE)
    except OSError:
        return False


def _and_ancestors(pid: int) -> Iterator[int]:
    for _ in range(_MOST_ANCESTORS):
        yield pid
        try:
            pid = stat_of(pid).parent
        except OSError:
            return
