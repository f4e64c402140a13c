"""Is the kubelet there? Its socket file says little: it stays behind when the kubelet dies. A connection says it."""

import errno
import os
import socket
from collections.abc import Callable
from pathlib import Path

from prometheus_client import Counter

from devherd.plugin.allocatable import until_forgotten
from devherd.plugin.endpoint import MAX_PATH_BYTES, Identity, identity
from devherd.plugin.pulse import Pulse
from devherd.plugin.resource_file import ResourceFile
from devherd.settings import Settings

RESTARTS = Counter("devherd_kubelet_restarts", "Restarts of the kubelet.")
"""Every resource child counts each restart it lives through: the highest of them is the node's number."""

_REFUSALS = {errno.ENOENT: "is not there", errno.ECONNREFUSED: "takes no connections"}
_FIRST_KNOCK_SECONDS = 0.002  # between the kubelet's bind and its listen
_LAST_KNOCK_SECONDS = 1.0


class Kubelet:
    """The other side of the registration socket. `changed` is told whenever its directory was looked at."""

    def __init__(self, settings: Settings) -> None:
        self.path = settings.kubelet_socket
        self._pod_resources = settings.pod_resources_socket
        self._check_seconds = settings.kubelet_check
        self.changed = Pulse()
        self._met: Identity | None = None

    def identity(self) -> Identity | None:
        """Which kubelet.sock this is, None when there is none: a restarted kubelet makes another."""
        return identity(self.path)

    async def accepting(self, waiting: Callable[[str], None]) -> Identity:
        """Until the kubelet takes connections. `waiting` is told why it does not, and why later if that lasts."""
        seen, pause, told = None, _FIRST_KNOCK_SECONDS, ""
        while True:
            current = self.identity()
            refusal = knock(self.path)
            if refusal is None and current is not None:
                self._meet(current)
                return current
            if refusal is not None and refusal != told and (not told or pause == _LAST_KNOCK_SECONDS):
                told = refusal
                waiting(refusal)
            pause = _FIRST_KNOCK_SECONDS if current != seen else min(2 * pause, _LAST_KNOCK_SECONDS)
            seen = current
            await self.changed.wait(pause if current else None)

    async def forgets(self, resource: ResourceFile) -> str:
        """Until it has lost a resource's devices without a sign; why to register anew."""
        return await until_forgotten(self._pod_resources, resource, self._check_seconds)

    def _meet(self, current: Identity) -> None:
        if self._met not in (None, current):
            RESTARTS.inc()
        self._met = current


def knock(path: Path) -> str | None:
    """Why a socket takes no connection; None when it does. Never waits."""
    if len(os.fsencode(path)) > MAX_PATH_BYTES:
        return f"{path} {os.strerror(errno.ENAMETOOLONG)}"
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC) as client:
            error = client.connect_ex(str(path))
    except OSError as refused:  # out of file descriptors
        return f"{path} cannot be reached: {refused.strerror}"
    if error in (0, errno.EAGAIN):  # EAGAIN: somebody listens, and has callers waiting
        return None
    return f"{path} {_REFUSALS.get(error) or os.strerror(error)}"
