"""Sources of change notifications: inotify, uevents, the kernel log. Without them devherd only polls."""

import os
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from devherd import _native
from devherd.config.resolved import is_simulated
from devherd.doctor.line import Line, ok, problem, warning
from devherd.scanner.host_events import is_in_user_namespace

TOPIC = "notifications"
_FEW_INSTANCES = 128
"""Limit for each user, shared with the kubelet and the runtime; devherd needs one a process."""
_KOBJECT_UEVENT, _KERNEL = 15, 1
_MOST_NAMED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Notifications:
    """Facts about the sources; the texts are the reasons why one cannot be used, empty if it can."""

    inotify: str
    inotify_instances: int
    uevents: str
    is_user_namespace: bool
    kernel_log: str
    restricts_kernel_log: bool
    hidden_interfaces: tuple[str, ...]
    """Network interfaces of the host's cards in another network namespace than this process."""


def look(host_root: Path) -> Notifications:
    """Open each source once."""
    instances = _text(Path("/proc/sys/fs/inotify/max_user_instances"))
    return Notifications(
        inotify=_inotify(),
        inotify_instances=int(instances) if instances.isdecimal() else 0,
        uevents=_uevents(),
        is_user_namespace=is_in_user_namespace(),
        kernel_log=_kernel_log(host_root / "dev/kmsg"),
        restricts_kernel_log=_text(Path("/proc/sys/kernel/dmesg_restrict")) == "1",
        hidden_interfaces=_hidden_interfaces(host_root, {name for _, name in socket.if_nameindex()}),
    )


def judge(found: Notifications, *, has_network_cards: bool = False) -> Iterator[Line]:
    """The report lines; on devlink only if the node has network cards."""
    raise_it = "raise it: `sysctl fs.inotify.max_user_instances=8192`"
    if found.inotify:
        yield problem(TOPIC, f"inotify cannot be used: {found.inotify}", raise_it)
    elif found.inotify_instances < _FEW_INSTANCES:
        yield warning(TOPIC, f"fs.inotify.max_user_instances is {found.inotify_instances}", raise_it)
    else:
        yield ok(TOPIC, f"inotify works ({found.inotify_instances} instances a user)")
    if found.uevents:
        cure = "allow netlink sockets; until then changes are found by the rescan each `scan.period`"
        yield warning(TOPIC, f"the kernel's device events cannot be received: {found.uevents}", cure)
    elif found.is_user_namespace:
        cure = "leave `hostUsers: false` out of the pod; until then changes are found by the rescan each `scan.period`"
        yield warning(TOPIC, "a user namespace receives no device events", cure)
    else:
        yield ok(TOPIC, "the kernel's device events can be received")
    if found.kernel_log:
        how = "add the component deploy/kubernetes/components/kernel-log, or use CAP_SYSLOG"
        cure = f"{how}; Xids and other messages are not seen without"
        restricted = " (kernel.dmesg_restrict is 1)" if found.restricts_kernel_log else ""
        yield warning(TOPIC, f"the kernel log cannot be read: {found.kernel_log}{restricted}", cure)
    else:
        yield ok(TOPIC, "the kernel log can be read")
    if has_network_cards:
        yield _of_devlink(found.hidden_interfaces)


def _of_devlink(hidden: tuple[str, ...]) -> Line:
    if not hidden:
        return ok(TOPIC, "devlink can report on the network cards' firmware")
    which = ", ".join(hidden[:_MOST_NAMED]) + (" …" if len(hidden) > _MOST_NAMED else "")
    what = f"devlink cannot report on the network cards' firmware: {which} of the host in another network namespace"
    return warning(
        TOPIC,
        what,
        "add the component host-network of deploy/kubernetes; without it a card whose firmware fails is Healthy",
    )


def _inotify() -> str:
    try:
        _native.DirectoryWatch()
    except OSError as error:
        return error.strerror or str(error)
    return ""


def _uevents() -> str:
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _KOBJECT_UEVENT) as netlink:
            netlink.bind((0, _KERNEL))
    except OSError as error:
        return error.strerror or str(error)
    return ""


def _kernel_log(path: Path) -> str:
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC))
    except OSError as error:
        return f"{path}: {error.strerror or error}"
    return ""


def _hidden_interfaces(host_root: Path, own: set[str]) -> tuple[str, ...]:
    """From the host's sysfs: a mount of it shows the interfaces of the namespace in which it was created."""
    if is_simulated(host_root):  # devlink of a simulated node works in every namespace
        return ()
    host = host_root / "sys/class/net"
    try:
        names = sorted(path.name for path in host.iterdir() if (path / "device").exists())
    except OSError:
        return ()
    return tuple(name for name in names if name not in own)


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8", errors="replace").strip()
    except OSError:
        return ""
