"""Registration of a server generation by a call of Register, and the kubelet's registration socket.

`plugins_registry` has the other mechanism, in which the kubelet finds the server.
"""

import asyncio
import errno
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import grpc
import grpc.aio

from devherd.backoff import Backoff
from devherd.kubelet.cures import AWAY
from devherd.kubelet.deadline import in_time
from devherd.kubelet.endpoint import MAX_PATH_BYTES, Endpoint, Identity, identity, target
from devherd.proto import deviceplugin_v1beta1_pb2 as v1beta1
from devherd.proto.deviceplugin_v1beta1_pb2_grpc import RegistrationStub
from devherd.settings import Settings

DEADLINE_SECONDS = 15.0
"""Longer than the 10 s after which the kubelet reports that it cannot dial back, so that its error arrives."""

_REFUSALS = {errno.ENOENT: "does not exist", errno.ECONNREFUSED: "refuses connections"}
_NO_DESCRIPTOR = (errno.EMFILE, errno.ENFILE)
_FIRST_KNOCK_SECONDS = 0.002  # between the kubelet's bind and its listen
_LAST_KNOCK_SECONDS = 1.0


class RegistrationError(Exception):
    """The kubelet did not register the resource: its error, or why the call failed."""


class NotFoundError(RegistrationError):
    """The kubelet has not looked for the socket; perhaps it does not run yet. Not a failure."""


def bind(server: grpc.aio.Server, path: Path) -> None:
    """Make a server listen at a path, before it is started. Raises OSError."""
    try:
        server.add_insecure_port(target(path))
    except RuntimeError as error:
        raise OSError(f"cannot bind {path}: {_refusal(path) or error}") from error


def _refusal(path: Path) -> str | None:
    """The kernel's reason why a socket cannot be bound, which gRPC does not pass on; None if it can be bound now."""
    try:
        with socket.socket(socket.AF_UNIX) as probe:
            probe.bind(str(path))
    except OSError as error:
        return error.strerror
    path.unlink(missing_ok=True)
    return None


class Registration(Protocol):
    """The registration of one server generation."""

    def serve(self, server: grpc.aio.Server) -> None:
        """Add the services that the kubelet calls, other than the device plugin itself."""

    async def done(self) -> None:
        """Return once the kubelet has registered the resource. Raises RegistrationError, or MuteError."""


class RegisterCall:
    """A Registration by a call of Register on a new channel."""

    def __init__(self, kubelet_socket: Path, request: v1beta1.RegisterRequest) -> None:
        self._kubelet_socket = kubelet_socket
        self._request = request

    def serve(self, server: grpc.aio.Server) -> None:
        """Add nothing: the kubelet calls the device plugin only."""

    async def done(self) -> None:
        """Return once Register is answered; the kubelet has called GetDevicePluginOptions here before that.

        Raises RegistrationError, and MuteError if gRPC does not end the call.
        """
        try:
            await in_time(self._call(), DEADLINE_SECONDS, "a call of Register")
        except grpc.aio.AioRpcError as error:
            raise RegistrationError(_reason(error)) from error

    async def _call(self) -> None:
        async with grpc.aio.insecure_channel(target(self._kubelet_socket)) as channel:
            await RegistrationStub(channel).Register(self._request, timeout=DEADLINE_SECONDS)


def _reason(error: grpc.aio.AioRpcError) -> str:
    if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
        return f"the kubelet did not answer within {DEADLINE_SECONDS:.0f} s"
    if error.code() is grpc.StatusCode.UNAVAILABLE:
        return f"the kubelet closed the connection: {error.details()}"
    return f"the kubelet refused: {error.details()}"


class Broadcast:
    """Wakes all waiters at once. Check the condition, then wait: on one loop nothing happens between the two."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self.calls = 0
        """Of `notify_all`: tells who does something else in between whether he has missed one."""

    def notify_all(self) -> None:
        """Wake all current waiters."""
        self.calls += 1
        self._event.set()
        self._event.clear()

    async def wait(self, seconds: float | None = None) -> None:
        """Return at the next call of `notify_all`, or after `seconds`."""
        if seconds is None:
            await self._event.wait()
            return
        try:
            async with asyncio.timeout(seconds):
                await self._event.wait()
        except TimeoutError:
            pass


class KubeletSocket:
    """A kubelet that takes registrations at its socket.

    The watcher of the directories must call `changed.notify_all()` after each look at them.
    """

    pending = "registering"
    """The status of a server generation until it is registered."""
    takes_hand_overs = True
    """True if a server can be replaced without a gap (device_plugin/hand_over.py)."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.path = settings.kubelet_socket
        self.directories = settings.socket_directories
        self.directory = settings.socket_directory
        self.changed = Broadcast()
        self._registered_with: Identity | None = None

    def identity(self) -> Identity | None:
        """The identity of kubelet.sock, None if it does not exist; a restarted kubelet creates a new one."""
        return identity(self.path)

    async def accepting(self, waiting: Callable[[str], None]) -> Identity | None:
        """Return once the kubelet accepts connections.

        Until then, calls `waiting` with the reason, and with another reason only if that one lasts.
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
        """True if no kubelet accepts connections at present."""
        return knock(self.path) is not None

    def needs_another(self, met: Identity | None) -> bool:
        """True if another kubelet has replaced `met`, so that Register must be called again."""
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
        """True if the registration that has just succeeded is with another kubelet than the previous one."""
        current, before = self.identity(), self._registered_with
        self._registered_with = current or before
        return None not in (before, current) and current != before


def may_listen(settings: Settings) -> bool:
    """True if a kubelet may accept registrations. With `plugins_registry`, its own socket need not be visible."""
    path = settings.kubelet_socket
    if settings.registration == "plugins_registry" and not path.exists():
        return True
    return knock(path) is None


def is_away(settings: Settings) -> bool:
    """True if no kubelet listens here. False if one may, and something else keeps devherd from it."""
    refusal = None if may_listen(settings) else refused(settings.kubelet_socket)
    return refusal is not None and refusal.errno in AWAY


def knock(path: Path) -> str | None:
    """The reason why a socket accepts no connection, as text; None if it accepts them. Does not block."""
    refusal = refused(path)
    if refusal is None:
        return None
    if refusal.errno in _NO_DESCRIPTOR:
        return f"{path} cannot be reached: {refusal.strerror}"
    return f"{path} {_REFUSALS.get(refusal.errno or 0) or refusal.strerror}"


def refused(path: Path) -> OSError | None:
    """The error of a connection to a socket; None if somebody listens there. Does not block."""
    if len(os.fsencode(path)) > MAX_PATH_BYTES:
        return OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC) as client:
            error = client.connect_ex(str(path))
    except OSError as failed:  # out of file descriptors
        return failed
    # EAGAIN: a process listens, and its queue of connections is full
    return None if error in (0, errno.EAGAIN) else OSError(error, os.strerror(error))
