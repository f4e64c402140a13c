"""Replaces a server that the kubelet watches by another one: no call is lost, no device is ever missing.

Both servers are in one process, or in processes of two instances. Then the old process calls `serve_on` when its
supervisor asks for it (supervisor/hand_over.py), and the new process finds it as its `OtherProcess`.

Up to 1.36, when any stream of a resource ends, the kubelet disconnects the client that has registered this resource
name last. So the successor registers first, and then makes one Register fail, which leaves the name without a client:
the end of the old stream then changes nothing. Then the successor registers a second socket of its server, so that the
kubelet will notice its end. From 1.37 on, the kubelet keeps a client for each socket, and the first registration is
enough. To tell the two apart: after the end of the old stream, a kubelet from 1.37 on closes the old connection, and an
older one leaves it open.

Sources: pkg/kubelet/cm/devicemanager/plugin/v1beta1/server.go and handler.go, Kubernetes 1.36 and 1.37.
"""

import asyncio
import logging
import os
import socket
import stat
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Protocol, Self

import grpc
import grpc.aio

from devherd.kubelet import deadline
from devherd.kubelet.endpoint import Endpoint, Identity, generations, hand_over_socket
from devherd.kubelet.registration import KubeletSocket, RegistrationError, bind
from devherd.process import Child
from devherd.proto import deviceplugin_v1beta1_pb2 as v1beta1
from devherd.proto.deviceplugin_v1beta1_pb2_grpc import DevicePluginServicer, add_DevicePluginServicer_to_server

log = logging.getLogger(__name__)

LATE_SECONDS = 0.25
"""A call that the kubelet was about to make to a replaced server arrives within this time."""
FIND_SECONDS = 1.0
RELEASE_SECONDS = 5.0
"""Limit for the end of the predecessor; one that hangs is no longer waited for."""
CLOSE_SECONDS = 0.5
"""The kubelet handles the end of a stream within this time; from 1.37 on it also closes the connection."""
_NOTICE_SECONDS = 0.05
"""The kubelet notices within this time that the process of a stream was killed. It is short, because a kubelet up to
1.36 does not notice the successor's end until it knows another socket of the successor."""
_LOOK_SECONDS = 0.005
_MOST_DESCRIPTORS = 4096
"""A resource's process may open no more."""
_RELEASE, _OPEN, _CLOSED = b"release\n", b"open\n", b"closed\n"


class Predecessor(Protocol):
    """A server of the same resource, watched by the kubelet, in this process or in another instance."""

    def lives(self, met: Identity | None) -> bool:
        """True while this kubelet watches it, as far as is known."""

    async def release(self) -> bool:
        """End it; call this once the successor is registered and the kubelet knows no client by the resource's name.

        Returns True if the kubelet has left the connection open: another socket must then be registered.
        """

    async def stop(self) -> None:
        """Clean up if it is not released."""


class OtherProcess:
    """The Predecessor in an instance that hands over, reached by its socket in the kubelet's directory.

    A killed process is released, too: if its stream ends while the successor registers, a kubelet up to 1.36 mistakes
    this for the end of the successor, and then never notices the successor's real end.
    """

    def __init__(
        self, connection: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None, sockets: Iterable[Path]
    ) -> None:
        """`connection` is None if the process was killed."""
        self._connection = connection
        self._is_released = False
        self._sockets = [*sockets]

    @classmethod
    async def find(cls, directory: Path, resource_name: str) -> Self | None:
        """The process that hands over this resource, or was killed while it did; None if there is none."""
        path = hand_over_socket(directory, resource_name)
        sockets = [path, *generations(directory, resource_name).values()]
        try:
            async with asyncio.timeout(FIND_SECONDS):
                return cls(await asyncio.open_unix_connection(path), sockets)
        except FileNotFoundError:
            return None
        except ConnectionRefusedError:
            return cls(None, sockets)
        except (OSError, TimeoutError):
            path.unlink(missing_ok=True)
            return None

    def lives(self, met: Identity | None) -> bool:
        """True until it was released."""
        del met  # which kubelet watches it is not known
        return not self._is_released

    async def release(self) -> bool:
        """Make it end its stream. Also returns True if it does not answer."""
        self._is_released = True
        answer = b""
        if self._connection is not None:
            reader, writer = self._connection
            with suppress(OSError, TimeoutError):
                async with asyncio.timeout(RELEASE_SECONDS):
                    writer.write(_RELEASE)
                    answer = await reader.readline()
        if not answer:
            log.warning("the process that handed over gave no answer: registering a second socket to be sure")
            await asyncio.sleep(_NOTICE_SECONDS)
        await self.stop()
        return answer != _CLOSED

    async def stop(self) -> None:
        """Close the connection, and remove the sockets that the process left behind, for example if it was killed."""
        if self._connection is not None:
            self._connection[1].close()
        sockets, self._sockets = self._sockets, []
        for path in sockets if self._has_ended() else ():
            path.unlink(missing_ok=True)

    def _has_ended(self) -> bool:
        if self._connection is None:
            return True
        reader, _ = self._connection
        return reader.at_eof() or reader.exception() is not None


async def serve_on(child: Child, server: Predecessor, directory: Path, resource_name: str) -> None:
    """Serve the hand-over socket as the next instance's OtherProcess; return once it has released this server."""
    is_released = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.CancelledError):  # at the end of the process, asyncio would log the latter
            if await reader.readline() == _RELEASE:
                leaves_open = await server.release()
                close()  # before the answer: the next process may soon hand over, too, by the same path
                writer.write(_OPEN if leaves_open else _CLOSED)
                await writer.drain()
                is_released.set()
        writer.close()

    def close() -> None:
        if listening.is_serving():
            listening.close()
            path.unlink(missing_ok=True)

    path = hand_over_socket(directory, resource_name)
    path.unlink(missing_ok=True)  # left by a killed process
    listening = await asyncio.start_unix_server(answer, path)
    try:
        child.yields()
        await is_released.wait()
    finally:
        close()


async def replaced(
    predecessor: Predecessor, kubelet: KubeletSocket, socket_of_nobody: Endpoint, resource_name: str
) -> bool:
    """Release the predecessor of a server that is registered, so that the kubelet does not notice its end.

    Returns True if the kubelet has left the connection open: the server must then register another socket.
    """
    await asyncio.sleep(LATE_SECONDS)  # before `forget_clients`: nothing depends on how long it takes till then
    await forget_clients(kubelet, socket_of_nobody, resource_name)
    return await predecessor.release()


class PluginConnections:
    """The connections that this process has accepted at some sockets."""

    def __init__(self, paths: Iterable[Path]) -> None:
        names = {str(path) for path in paths}
        self._accepted = {
            descriptor: name for descriptor in range(_MOST_DESCRIPTORS) if (name := _accepted_at(descriptor)) in names
        }

    async def stay_open(self) -> bool:
        """True if a connection is still open after CLOSE_SECONDS; returns False as soon as all are closed."""
        until = time.monotonic() + CLOSE_SECONDS
        while any(_accepted_at(descriptor) == name for descriptor, name in self._accepted.items()):
            if time.monotonic() >= until:
                return True
            await asyncio.sleep(_LOOK_SECONDS)
        return False


def _accepted_at(descriptor: int) -> str:
    """The path of the socket at which a connection was accepted; empty for any other descriptor."""
    try:
        if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
            return ""
        with socket.socket(fileno=os.dup(descriptor)) as connection:
            listens = connection.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
            return "" if listens or connection.family != socket.AF_UNIX else str(connection.getsockname())
    except OSError:
        return ""


class _Nobody(DevicePluginServicer):
    """A device plugin that the kubelet does not accept. The method's name is the protocol's."""

    async def GetDevicePluginOptions(  # noqa: N802
        self, request: v1beta1.Empty, context: grpc.aio.ServicerContext[v1beta1.Empty, v1beta1.DevicePluginOptions]
    ) -> v1beta1.DevicePluginOptions:
        """Fail."""
        del request
        await context.abort(
            grpc.StatusCode.FAILED_PRECONDITION,
            "this failure is intended: devherd hands its devices over to a new process without a gap",
        )


async def forget_clients(kubelet: KubeletSocket, socket_of_nobody: Endpoint, resource_name: str) -> None:
    """Make the kubelet forget the clients with the resource's name, by a registration that fails.

    The endpoint that the kubelet calls for Allocate stays the same. Raises OSError if the socket cannot be bound,
    MuteError if gRPC ends nothing any more.
    """
    server = grpc.aio.server()
    add_DevicePluginServicer_to_server(_Nobody(), server)  # type: ignore[abstract]  # nothing else is called
    bind(server, socket_of_nobody.path)
    try:
        await deadline.in_time(server.start(), 0.0, "the start of a server")
        socket_of_nobody.bound()
        with suppress(RegistrationError):  # expected
            await kubelet.registration(socket_of_nobody, resource_name, v1beta1.DevicePluginOptions()).done()
    finally:
        await deadline.stop(server, None)
        socket_of_nobody.remove()
