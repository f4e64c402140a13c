"""The Registration service, with the kubelet's checks, in the same order, and its messages."""

import asyncio
import contextlib
import itertools
import os
import socket
import stat
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import grpc

from devherd.errors import AlreadyRunningError, UsageError
from devherd.proto import deviceplugin_v1beta1_pb2 as api
from devherd.proto.deviceplugin_v1beta1_pb2_grpc import RegistrationServicer
from devherd.text import is_resource_name
from devherd_sim.kubelet.connections import ConnectedPlugins, PluginError
from devherd_sim.kubelet.events import Events
from devherd_sim.kubelet.go_words import quoted

VERSION = "v1beta1"


@dataclass(slots=True)
class Disturbance:
    """A simulated disturbance of the next Register calls for a resource: a delay, and optionally a refusal."""

    times: int
    """Number of calls."""
    error: str | None
    """Message of the refusal; None: the call is only delayed."""
    delay: float
    """Seconds before the answer."""


class RegistrationService(RegistrationServicer):
    """Answers Register after it has dialled the plugin and got its options."""

    def __init__(
        self,
        directory: Path,
        connections: ConnectedPlugins,
        events: Events,
        disturbances: Mapping[str, Disturbance],
    ) -> None:
        self.calls: Counter[str] = Counter()
        """Register calls by resource, counted before any check, as in `kubelet_device_plugin_registration_total`."""
        self.unanswered: dict[str, float] = {}
        """The resources whose last call is not answered yet, and when it came, in monotonic seconds."""
        self._directory = directory
        self._connections = connections
        self._events = events
        self._disturbances = disturbances

    async def Register(  # noqa: N802 - the service's own name
        self, request: api.RegisterRequest, context: "grpc.aio.ServicerContext[Any, Any]"
    ) -> api.Empty:
        """Register a plugin. Every refusal has the status UNKNOWN."""
        resource = request.resource_name
        self.calls[resource] += 1
        self._events.record("register-called", resource, endpoint=request.endpoint)
        self.unanswered[resource] = called_at = time.monotonic()
        try:
            refused = await self._judged(request, context)
        except asyncio.CancelledError:
            self._events.record("register-abandoned", resource, endpoint=request.endpoint)
            raise
        finally:
            if self.unanswered.get(resource) == called_at:
                del self.unanswered[resource]
        if refused is not None:
            await self._refuse(request, context, refused)
        self._events.record("registered", resource, endpoint=request.endpoint)
        return api.Empty()

    async def _judged(self, request: api.RegisterRequest, context: "grpc.aio.ServicerContext[Any, Any]") -> str | None:
        """Connect to the plugin; returns why it is refused, None if it is not."""
        refused = _refusal(request) or await self._disturbed(request.resource_name)
        if refused is None:
            try:
                await self._connect(request, context)
            except PluginError as error:
                refused = str(error)
        return refused

    async def _disturbed(self, resource: str) -> str | None:
        """Wait for the delay of the resource's disturbance, if any. Returns its refusal; None if there is none."""
        disturbance = self._disturbances.get(resource)
        if disturbance is None or disturbance.times < 1:
            return None
        disturbance.times -= 1
        await asyncio.sleep(disturbance.delay)
        return disturbance.error

    async def _connect(self, request: api.RegisterRequest, context: "grpc.aio.ServicerContext[Any, Any]") -> None:
        socket = _joined(self._directory, request.endpoint)
        await self._connections.connect(request.resource_name, socket, context.time_remaining())

    async def _refuse(
        self, request: api.RegisterRequest, context: "grpc.aio.ServicerContext[Any, Any]", text: str
    ) -> NoReturn:
        details = _details(self._directory, request.endpoint)
        self._events.record("register-refused", request.resource_name, error=text, **details)
        await context.abort(grpc.StatusCode.UNKNOWN, text)
        raise AssertionError("abort has raised")


def _details(directory: Path, endpoint: str) -> dict[str, Any]:
    socket = _joined(directory, endpoint)
    return {"endpoint": endpoint, "socket": socket, "socket_exists": os.path.lexists(socket)}


def _refusal(request: api.RegisterRequest) -> str | None:
    """The reason to refuse a request for its content; None if it is valid."""
    if request.version != VERSION:
        return (
            f"requested API version {quoted(request.version)} is not supported by kubelet."
            f' Supported version is ["{VERSION}"]'
        )
    if not is_resource_name(request.resource_name):
        return f"the ResourceName {quoted(request.resource_name)} is invalid"
    return None


def _joined(directory: Path, endpoint: str) -> str:
    """Join paths like Go: a leading slash of `endpoint` is ignored, `..` may lead out of the directory."""
    return os.path.normpath(f"{directory}/{endpoint}")


_numbers = itertools.count()
_LONGEST_PATH = 107  # bytes: sun_path of unix(7), less the zero at its end


class GrpcListener:
    """A gRPC server on a Unix socket. `add_services` adds its services.

    Plugins compare inode and ctime of kubelet.sock to see a restart. The socket is therefore bound under a private name
    and renamed: the file that plugins see changes neither while the server runs nor when it stops. The private name is
    in the same directory, which may be a mount of its own.
    """

    def __init__(
        self,
        public: Path,
        add_services: Callable[[grpc.aio.Server], None],
        interceptors: Sequence[grpc.aio.ServerInterceptor] = (),
    ) -> None:
        self._public = public
        self._private = public.with_name(f".{os.getpid()}-{next(_numbers)}.sock")
        self._add_services = add_services
        self._interceptors = interceptors
        self._server: grpc.aio.Server | None = None

    async def open(self) -> None:
        """Start to listen. Raises UsageError when the path is too long for a socket, OSError when listening fails."""
        if len(os.fsencode(self._private)) > _LONGEST_PATH or len(os.fsencode(self._public)) > _LONGEST_PATH:
            raise UsageError(
                f"{self._public} is too long for a socket",
                f"{_LONGEST_PATH} bytes is the limit",
                "use a shorter directory",
            )
        self._server = grpc.aio.server(interceptors=self._interceptors)
        self._add_services(self._server)
        self._private.unlink(missing_ok=True)
        try:
            self._server.add_insecure_port(f"unix:{self._private}")
        except RuntimeError as error:
            raise OSError(f"cannot listen on {self._private}: {error}") from error
        await self._server.start()
        self._private.rename(self._public)

    async def close(self, *, leave_file: bool) -> None:
        """Cancel all calls and stop the server. Idempotent."""
        if self._server is None:
            return
        await self._server.stop(grace=None)
        self._server = None
        if not leave_file:
            self._public.unlink(missing_ok=True)


def refuse_second(public: Path) -> None:
    """Raise AlreadyRunningError if a process listens on a socket: a real kubelet, or another simulated one."""
    with socket.socket(socket.AF_UNIX) as probe, contextlib.suppress(OSError):
        probe.connect(str(public))
        raise AlreadyRunningError(
            f"{public} is taken", "a kubelet listens there", "give another directory with --kubelet-dir"
        )


def clean(directory: Path) -> list[str]:
    """Create a directory if needed and remove every socket and link to a socket in it; returns their names.

    Other files and subdirectories stay. Raises OSError when something cannot be removed; a kubelet exits then.
    """
    directory.mkdir(mode=0o755, parents=True, exist_ok=True)
    sockets = [path for path in directory.iterdir() if _is_socket(path)]
    for path in sockets:
        path.unlink(missing_ok=True)
    return sorted(path.name for path in sockets)


def _is_socket(path: Path) -> bool:
    try:
        return stat.S_ISSOCK(path.stat().st_mode)
    except OSError:
        return False  # a dangling link; the kubelet logs it and continues
