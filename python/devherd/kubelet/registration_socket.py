"""The kubelet's registration socket: whether a kubelet listens on it, and which one.

The file alone shows little, because it stays behind when the kubelet dies. Only a connection shows that a kubelet runs.
"""

import errno
import os
import socket
from collections.abc import Callable
from pathlib import Path

from devherd.backoff import Backoff
from devherd.kubelet.endpoint import MAX_PATH_BYTES, Endpoint, Identity, identity
from devherd.kubelet.registration import RegisterCall, Registration
from devherd.proto import deviceplugin_v1beta1_pb2 as v1beta1
from devherd.pulse import Pulse
from devherd.settings import Settings

_REFUSALS = {errno.ENOENT: "does not exist", errno.ECONNREFUSED: "refuses connections"}
_FIRST_KNOCK_SECONDS = 0.002  # between the kubelet's bind and its listen
_LAST_KNOCK_SECONDS = 1.0


class Kubelet:
    """A kubelet that is called at its registration socket.

    Who watches the directories must call `changed.tell()` after each look at them.
    """

    pending = "registering"
    """What a server generation does until it is registered, for the status."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.path = settings.kubelet_socket
        self.directories = settings.socket_directories
        self.directory = settings.socket_directory
        self.changed = Pulse()
        self._registered_with: Identity | None = None

    def identity(self) -> Identity | None:
        """The identity of kubelet.sock, None when there is none: a restarted kubelet makes another."""
        return identity(self.path)

    async def accepting(self, waiting: Callable[[str], None]) -> Identity | None:
        """Return once the kubelet accepts connections.

        `waiting` is called with the reason why it does not, and with a later reason only if that one lasts.
        """
        seen, reported = None, ""
        pauses = Backoff(_FIRST_KNOCK_SECONDS, _LAST_KNOCK_SECONDS)
        while True:
            current = self.identity()
            refusal = knock(self.path)
            if refusal is None and current is not None:
                return current
            if refusal is not None and refusal != reported and (not reported or pauses.is_longest):
                reported = refusal
                waiting(refusal)
            if current != seen:
                pauses.reset()
            seen = current
            await self.changed.wait(pauses.seconds() if current else None)

    def is_away(self) -> bool:
        """Whether no kubelet can be called at present."""
        return knock(self.path) is not None

    def needs_another(self, met: Identity | None) -> bool:
        """Whether another kubelet has replaced `met`, so that Register must be called again."""
        return self.identity() not in (None, met)

    def registration(
        self, endpoint: Endpoint, resource_name: str, options: v1beta1.DevicePluginOptions
    ) -> Registration:
        """The registration of one server generation."""
        request = v1beta1.RegisterRequest(
            version="v1beta1", endpoint=endpoint.name, resource_name=resource_name, options=options
        )
        return RegisterCall(self.path, request)

    def has_restarted(self) -> bool:
        """Whether the registration that has just succeeded is with another kubelet than the one before it."""
        current, before = self.identity(), self._registered_with
        self._registered_with = current or before
        return None not in (before, current) and current != before


def may_listen(settings: Settings) -> bool:
    """Whether a kubelet takes registrations. One that looks for plugins by itself need not show its own socket."""
    path = settings.kubelet_socket
    if settings.registration == "plugins_registry" and not path.exists():
        return True
    return knock(path) is None


def knock(path: Path) -> str | None:
    """Why a socket accepts no connection; None when it does. Never waits."""
    if len(os.fsencode(path)) > MAX_PATH_BYTES:
        return f"{path} {os.strerror(errno.ENAMETOOLONG)}"
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC) as client:
            error = client.connect_ex(str(path))
    except OSError as refused:  # out of file descriptors
        return f"{path} cannot be reached: {refused.strerror}"
    if error in (0, errno.EAGAIN):  # EAGAIN: a process listens, and its queue of connections is full
        return None
    return f"{path} {_REFUSALS.get(error) or os.strerror(error)}"
