"""A test of serving the kubelet without the kubelet: serves each resource on a temporary socket and calls it there.

This finds problems that only serving reveals: missing permissions on the kubelet's directory, gRPC that does not work,
and devices of this host for which no call can be answered.
"""

import asyncio
import contextlib
import logging
import secrets
import socket
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import grpc.aio

from devherd import log as logs
from devherd.counters import BY_RESOURCE_CHILDREN, Counters
from devherd.device_plugin.allocation import RefusedError, container_response
from devherd.device_plugin.service import Calls, DevicePlugin, Streams
from devherd.device_plugin.snapshot import Snapshot
from devherd.errors import DevherdError
from devherd.history import History
from devherd.kubelet import deadline
from devherd.kubelet.endpoint import SUFFIX, target
from devherd.kubelet.registration import Broadcast, knock, refused
from devherd.proto import deviceplugin_v1beta1_pb2 as v1beta1
from devherd.proto import spool_pb2
from devherd.proto.deviceplugin_v1beta1_pb2_grpc import DevicePluginStub, add_DevicePluginServicer_to_server
from devherd.settings import Settings

if TYPE_CHECKING:  # exists only in the stub file
    from devherd.proto.deviceplugin_v1beta1_pb2_grpc import DevicePluginAsyncStub

ANSWER_SECONDS = 10.0
"""Limit for all calls to a resource."""
_END_SECONDS = 1.0
"""Limit for the end of cancelled calls: gRPC logs a server that stops before them as an error of the connection."""
_PREFIX = ".devherd-rehearsal-"
"""The kubelet's plugin watcher ignores names that begin with a dot (pkg/kubelet/pluginmanager)."""

log = logging.getLogger(__name__)


class _Fixed:
    """A resource that does not change."""

    def __init__(self, resource: spool_pb2.Resource) -> None:
        self.latest = Snapshot(resource)
        self.changed = Broadcast()


def rehearse(resources: Iterable[spool_pb2.Resource], settings: Settings) -> None:
    """Serve and call each of the resources. Raises DevherdError if the kubelet could not be served.

    Does nothing if the directory for sockets does not exist yet.
    """
    directory = settings.socket_directory
    if not directory.is_dir():
        log.info("serving is not rehearsed: %s does not exist yet", directory)
        return
    _check_kubelet(settings.kubelet_socket)
    _remove_left(directory)
    _check_directory(directory)
    with logs.library_lines_as_json():
        for resource in [*resources] or [spool_pb2.Resource(name="devherd.example/none")]:
            asyncio.run(_serve_once(resource, settings))


def _check_kubelet(path: Path) -> None:
    """Raise DevherdError if permissions prevent calls to the kubelet; a kubelet that does not run is no error."""
    refusal = refused(path)
    if isinstance(refusal, PermissionError):
        raise DevherdError(
            f"the kubelet cannot be called at {path}",
            str(refusal.strerror),
            "run devherd as root, and let no security module keep it from the socket",
        ) from refusal
    if refusal is not None and not isinstance(refusal, (FileNotFoundError, ConnectionRefusedError)):
        raise refusal


def _check_directory(directory: Path) -> None:
    """Bind a socket here, because the kernel's error has more detail than gRPC's."""
    path = _path_in(directory)
    with socket.socket(socket.AF_UNIX) as server:
        try:
            server.bind(str(path))
        except OSError as error:
            raise DevherdError(
                f"the kubelet cannot be served in {directory}",
                error.strerror or str(error),
                "mount that directory of the host writable, and run devherd as root",
            ) from error
    path.unlink(missing_ok=True)


def _path_in(directory: Path) -> Path:
    return directory / f"{_PREFIX}{secrets.token_hex(4)}{SUFFIX}"


def _remove_left(directory: Path) -> None:
    """Remove sockets of rehearsals that were killed."""
    for path in directory.glob(f"{_PREFIX}*{SUFFIX}"):
        if knock(path) is not None:
            path.unlink(missing_ok=True)


async def _serve_once(resource: spool_pb2.Resource, settings: Settings) -> None:
    path = _path_in(settings.socket_directory)
    offered = _Fixed(resource)
    try:
        async with asyncio.timeout(ANSWER_SECONDS), _served(offered, path, settings), _connected(path) as plugin:
            await _ask(plugin, offered.latest)
    except TimeoutError as error:
        raise _not_served(resource.name, f"no answer within {ANSWER_SECONDS:.0f} s") from error
    except grpc.aio.AioRpcError as error:
        raise _not_served(resource.name, f"{error.code().name}: {error.details()}") from error
    except (OSError, RuntimeError) as error:  # RuntimeError: gRPC's for a socket that cannot be bound
        raise _not_served(resource.name, str(error)) from error


@asynccontextmanager
async def _served(offered: _Fixed, path: Path, settings: Settings) -> AsyncIterator[None]:
    counters = Counters(BY_RESOURCE_CHILDREN)
    streams = Streams(offered, counters, lambda _: None, lambda _: None)
    server = grpc.aio.server()
    history = History(settings.history_directory, "rehearsal")  # never written
    add_DevicePluginServicer_to_server(DevicePlugin(offered, streams, Calls(), counters, history), server)
    server.add_insecure_port(target(path))
    await server.start()
    try:
        yield
    finally:
        streams.close()
        await deadline.stop(server, _END_SECONDS)
        path.unlink(missing_ok=True)  # noqa: ASYNC240 - does not block for long


@asynccontextmanager
async def _connected(path: Path) -> AsyncIterator["DevicePluginAsyncStub"]:
    async with grpc.aio.insecure_channel(target(path)) as channel:
        yield DevicePluginStub(channel)


async def _ask(plugin: "DevicePluginAsyncStub", snapshot: Snapshot) -> None:
    """Call the resource as the kubelet does at a registration, and for a container with one device."""
    options = await plugin.GetDevicePluginOptions(v1beta1.Empty())
    stream = plugin.ListAndWatch(v1beta1.Empty())
    listed = await stream.read()
    stream.cancel()
    if listed != snapshot.device_list:
        raise _not_served(snapshot.name, "the list of its devices did not arrive")
    for device_id in sorted(snapshot.healthy)[:1]:
        if options.get_preferred_allocation_available:
            request = v1beta1.PreferredAllocationRequest()
            request.container_requests.add(available_deviceIDs=[device_id], allocation_size=1)
            await plugin.GetPreferredAllocation(request)
        with contextlib.suppress(RefusedError):  # a refusal is a valid answer
            container_response(snapshot, [device_id])


def _not_served(resource_name: str, why: str) -> DevherdError:
    return DevherdError(
        f"{resource_name} cannot be served to the kubelet",
        why,
        "see `devherd doctor`; the instance that runs goes on serving it",
    )
