"""A device plugin of the usual kind, real sockets and all, whose every answer a test can bend."""

import asyncio
from contextlib import asynccontextmanager
from pathlib import Path

import grpc

from devherd.proto import deviceplugin_v1beta1_pb2 as api
from devherd.proto.deviceplugin_v1beta1_pb2_grpc import (
    DevicePluginServicer,
    RegistrationStub,
    add_DevicePluginServicer_to_server,
)
from devherd_sim.kubelet.manager import EmbeddedKubelet

RESOURCE = "example.com/gpu"


def device(name: str, health: str = "Healthy", numa_nodes: tuple[int, ...] = ()) -> api.Device:
    """A device as ListAndWatch sends it."""
    topology = api.TopologyInfo(nodes=[api.NUMANode(ID=node) for node in numa_nodes]) if numa_nodes else None
    return api.Device(ID=name, health=health, topology=topology)


async def node_for_each(device_ids: list[str]) -> api.AllocateResponse:
    """The ordinary answer to Allocate."""
    nodes = [
        api.DeviceSpec(host_path=f"/dev/{name}", container_path=f"/dev/{name}", permissions="rw") for name in device_ids
    ]
    return api.AllocateResponse(container_responses=[api.ContainerAllocateResponse(devices=sorted(nodes, key=str))])


def first_ones(available: list[str], size: int) -> list[str]:
    """The ordinary answer to GetPreferredAllocation."""
    return sorted(available)[:size]


class SmallPlugin(DevicePluginServicer):
    """Serves one resource on one socket. `calls` has the ids of every call, by its name."""

    def __init__(self, kubelet: EmbeddedKubelet, *names: str, resource: str = RESOURCE, endpoint: str = "p.sock"):
        self.kubelet = kubelet
        self.resource = resource
        self.endpoint = endpoint
        self.options = api.DevicePluginOptions()
        self.devices = [device(name) for name in names]
        self.allocate = node_for_each
        self.prefer = first_ones
        self.calls: list[tuple[str, list[str]]] = []
        self._streams: list[asyncio.Queue[list[api.Device] | None]] = []
        self._server: grpc.aio.Server | None = None

    @property
    def socket(self) -> Path:
        return self.kubelet.paths.plugin_directory / self.endpoint

    async def serve(self) -> None:
        self.socket.unlink(missing_ok=True)
        self._server = grpc.aio.server()
        add_DevicePluginServicer_to_server(self, self._server)
        self._server.add_insecure_port(f"unix:{self.socket}")
        await self._server.start()

    async def register(self, *, version: str = "v1beta1", deadline: float = 15.0) -> None:
        request = api.RegisterRequest(version=version, endpoint=self.endpoint, resource_name=self.resource)
        options = [("grpc.use_local_subchannel_pool", 1)]  # no connection to the kubelet before a restart
        async with grpc.aio.insecure_channel(f"unix:{self.kubelet.paths.kubelet_socket}", options=options) as channel:
            await RegistrationStub(channel).Register(request, timeout=deadline)

    async def up(self) -> "SmallPlugin":
        """Serve, register, and wait until the kubelet has the list."""
        await self.serve()
        mark = self.kubelet.events.mark()
        await self.register()
        await self.kubelet.events.wait("list", self.resource, since=mark)
        return self

    async def stop(self) -> None:
        if self._server is not None:
            await self._server.stop(grace=None)
            self._server = None

    def send(self, *devices: api.Device) -> None:
        """A new list on every open stream."""
        self.devices = list(devices)
        for stream in self._streams:
            stream.put_nowait(self.devices)

    def end_stream(self, index: int = 0) -> None:
        """Return from ListAndWatch."""
        self._streams[index].put_nowait(None)

    async def GetDevicePluginOptions(self, _request, _context):
        return self.options

    async def ListAndWatch(self, _request, _context):
        stream: asyncio.Queue[list[api.Device] | None] = asyncio.Queue()
        self._streams.append(stream)
        devices: list[api.Device] | None = self.devices
        while devices is not None:
            yield api.ListAndWatchResponse(devices=devices)
            devices = await stream.get()

    async def GetPreferredAllocation(self, request, _context):
        asked = request.container_requests[0]
        self.calls.append(("prefer", sorted(asked.available_deviceIDs)))
        chosen = self.prefer(list(asked.available_deviceIDs), asked.allocation_size)
        return api.PreferredAllocationResponse(
            container_responses=[api.ContainerPreferredAllocationResponse(deviceIDs=chosen)]
        )

    async def Allocate(self, request, context):
        ids = list(request.container_requests[0].devices_ids)
        self.calls.append(("allocate", sorted(ids)))
        try:
            return await self.allocate(ids)
        except PermissionError as refused:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(refused))

    async def PreStartContainer(self, request, _context):
        self.calls.append(("pre-start", sorted(request.devices_ids)))
        return api.PreStartContainerResponse()


@asynccontextmanager
async def running(kubelet_dir: Path, **node):
    """An embedded kubelet that ends with the block."""
    kubelet = EmbeddedKubelet(kubelet_dir, **node)
    await kubelet.start()
    try:
        yield kubelet
    finally:
        await kubelet.stop(clean=True)


@asynccontextmanager
async def registered(kubelet_dir: Path, *names: str, **options):
    """An embedded kubelet with one plugin; both end with the block."""
    async with running(kubelet_dir) as kubelet:
        plugin = SmallPlugin(kubelet, *names, **options)
        try:
            await plugin.up()
            yield kubelet, plugin
        finally:
            await plugin.stop()
