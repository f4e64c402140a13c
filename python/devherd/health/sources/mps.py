"""Whether NVIDIA's MPS control daemon lives: one for each resource whose devices are shared through it.

It listens at `control` in the resource's pipe directory, where CUDA programs find it; its own log says so ("Starting
control daemon using socket …/pipe/control"). The vendor's plugin asks it for a default once, when the plugin starts,
through the client program that comes with the driver; here its socket is looked at, again and again, and the daemon
does not hear of it.
"""

import errno
import os
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path

from devherd._native import Finding
from devherd.health.registry import MPS, MPS_DAEMON
from devherd.health.seen import Seen
from devherd.inventory import DeviceKey
from devherd.proto import spool_pb2

_ABSENT = frozenset({errno.ENOENT, errno.ENOTDIR})
_LISTENS = frozenset({0, errno.EPROTOTYPE})


class NotSeenError(Exception):
    """The socket may not be looked at, so that nothing is known of the daemon."""


def take_in(
    seen: Seen, shared: Mapping[str, Sequence[DeviceKey]], host_root: Path, mps_root: str
) -> list[spool_pb2.Problem]:
    """Look at the daemons of these resources, by name, and note what is wrong with their devices.

    What may not be looked at is a problem.
    """
    problems = []
    for resource_name, keys in shared.items():
        try:
            finding = look(host_root, mps_root, resource_name)
        except NotSeenError as error:
            for key in keys:
                seen.not_looked.setdefault(key, {})[MPS] = str(error)
            problems.append(spool_pb2.Problem(vendor="nvidia", path=resource_name, error=str(error)))
        else:
            for key in keys:
                seen.add(key, [finding] if finding else [])
    return problems


def look(host_root: Path, mps_root: str, resource_name: str) -> Finding | None:
    """What is wrong with the daemon of a resource; None if it lives.

    Raises NotSeenError.
    """
    pipe = Path(mps_root) / resource_name / "pipe"
    error = _connect(host_root / pipe.relative_to("/"))
    if error in _LISTENS:
        return None
    if error in _ABSENT:
        value, what = "absent", "there is no socket of NVIDIA's MPS control daemon"
    elif error == errno.ECONNREFUSED:
        value, what = "nobody listens", "NVIDIA's MPS control daemon is dead"
    else:
        raise NotSeenError(f"{pipe / 'control'}: {os.strerror(error)}")
    return Finding(
        source=MPS,
        reason=MPS_DAEMON,
        detail=f"{what} for {resource_name}: start it; where devherd is a pod, mount `mps_root` in it",
        file=str(pipe / "control"),
        value=value,
    )


def _connect(directory: Path) -> int:
    """The kernel's error for a connection of a kind that the daemon does not take, so that none comes about.

    It looks for a socket that lives before it compares kinds: unix(7), `EPROTOTYPE`.
    """
    try:
        opened = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as failed:
        return failed.errno or errno.EIO
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as probe:
            # A socket's address has 108 bytes at most, and a directory's path may have more.
            return probe.connect_ex(f"/proc/self/fd/{opened}/control")
    finally:
        os.close(opened)
