"""Is the kubelet there? Its socket file says little: it stays behind when the kubelet dies. A connection says it."""

import errno
import os
import socket
from collections.abc import Callable
from pathlib import Path

from prometheus_client import Counter

from devherd.plugin.allocatable import until_forgotten
from devherd.plugin.endpoint import MAX_PATH_BYTES, Endpoint, Identity, identity
from devherd.plugin.pulse import Pulse
from devherd.plugin.register_call import RegisterCall
from devherd.plugin.registration import Registration
from devherd.plugin.resource_file import ResourceFile
from devherd.proto import deviceplugin_v1beta1_pb2 as v1beta1
from devherd.settings import Settings

RESTARTS = Counter("devherd_kubelet_restarts", "Restarts of the kubelet.")
"""Every resource child counts each restart it lives through: the highest of them is the node's number."""

_REFUSALS = {errno.ENOENT: "is not there", errno.ECONNREFUSED: "takes no connections"}
_FIRST_KNOCK_SECONDS = 0.002  # between the kubelet's bind and its listen
_LAST_KNOCK_SECONDS = 1.0


class Kubelet:
    """The other side of the registration socket. `changed` is told whenever its directories were looked at."""

    pending = "registering"
    """What a generation does until it is registered, for people."""

    def __init__(self, settings: Settings) -> None:
        self.path = settings.kubelet_socket
        self.directories = settings.socket_directories
        self.directory = settings.socket_directory
        self._pod_resources = settings.pod_resources_socket
        self._check_seconds = settings.kubelet_check
        self.changed = Pulse()
        self._met: Identity | None = None

    def identity(self) -> Identity | None:
        """Which kubelet.sock this is, None when there is none: a restarted kubelet makes another."""
        return identity(self.path)

    async def accepting(self, waiting: Callable[[str], None]) -> Identity | None:
        """Until the kubelet takes connections. `waiting` is told why it does not, and why later if that lasts."""
        seen, pause, told = None, _FIRST_KNOCK_SECONDS, ""
        while True:
            current = self.identity()
            refusal = knock(self.path)
            if refusal is None and current is not None:
                return current
            if refusal is not None and refusal != told and (not told or pause == _LAST_KNOCK_SECONDS):
                told = refusal
                waiting(refusal)
            pause = _FIRST_KNOCK_SECONDS if current != seen else min(2 * pause, _LAST_KNOCK_SECONDS)
            seen = current
            await self.changed.wait(pause if current else None)

    def needs_another(self, met: Identity | None) -> bool:
        """Whether this is no more the kubelet that was met, and has to be called anew."""
        return self.identity() not in (None, met)

    def registration(
        self, endpoint: Endpoint, resource_name: str, options: v1beta1.DevicePluginOptions
    ) -> Registration:
        """For one generation."""
        request = v1beta1.RegisterRequest(
            version="v1beta1", endpoint=endpoint.name, resource_name=resource_name, options=options
        )
        return RegisterCall(self.path, request)

    def has_registered(self) -> None:
        """Remember which kubelet this is: when the next one to register is another, it was restarted."""
        current = self.identity()
        if None not in (self._met, current) and current != self._met:
            RESTARTS.inc()
        self._met = current or self._met

    async def forgets(self, resource: ResourceFile) -> str:
        """Until it has lost a resource's devices without a sign; why to register anew."""
        return await until_forgotten(self._pod_resources, resource, self._check_seconds)


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
