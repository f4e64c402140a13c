"""A plugin of no manners, and a bare Register: for what devherd itself never does."""

import queue
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc

from devherd.proto import deviceplugin_v1beta1_pb2 as v1beta1
from devherd.proto import pluginregistration_v1_pb2 as registration
from devherd.proto.deviceplugin_v1beta1_pb2_grpc import (
    DevicePluginServicer,
    RegistrationStub,
    add_DevicePluginServicer_to_server,
)
from devherd.proto.pluginregistration_v1_pb2_grpc import RegistrationServicer, add_RegistrationServicer_to_server


def register(plugins: Path, endpoint: str, resource: str, *, version="v1beta1", seconds=15.0) -> str:
    """Call Register, whoever serves the endpoint; the kubelet's refusal, empty when it took it."""
    request = v1beta1.RegisterRequest(version=version, endpoint=endpoint, resource_name=resource)
    with grpc.insecure_channel(f"unix:{plugins / 'kubelet.sock'}") as channel:
        try:
            RegistrationStub(channel).Register(request, timeout=seconds)
        except grpc.RpcError as error:
            return f"{error.code().name}: {error.details()}"
    return ""


class RawPlugin(DevicePluginServicer, RegistrationServicer):
    """Serves a socket, also as one in plugins_registry; sends the lists given to `send`."""

    def __init__(self, socket: Path, *, resource="example.com/raw", versions=("v1beta1",)) -> None:
        self.told: list[tuple[bool, str]] = []
        """What NotifyRegistrationStatus brought."""
        self.options_error = ""
        self.pre_start_error: str | None = None
        """None: PreStartContainer is not asked for; empty: it succeeds."""
        self.asked, self.wait = threading.Event(), threading.Event()
        """Allocate sets the one and waits for the other."""
        self.wait.set()
        self._info = registration.PluginInfo(type="DevicePlugin", name=resource, supported_versions=versions)
        self._lists: queue.Queue[list[v1beta1.Device] | None] = queue.Queue()
        self._server = grpc.server(ThreadPoolExecutor(8))
        add_DevicePluginServicer_to_server(self, self._server)
        add_RegistrationServicer_to_server(self, self._server)
        self._server.add_insecure_port(f"unix:{socket}")
        self._server.start()

    def send(self, *device_ids: str) -> None:
        """A list in which all are healthy."""
        self.send_on_nodes(dict.fromkeys(device_ids, ()))

    def send_on_nodes(self, devices: Mapping[str, Sequence[int]]) -> None:
        """A list of healthy devices with their NUMA nodes; a device without has no topology."""
        made = [v1beta1.Device(ID=each, health="Healthy") for each in devices]
        for device in made:
            for node in devices[device.ID]:
                device.topology.nodes.add(ID=node)
        self._lists.put(made)

    def stop(self) -> None:
        """End streams and server."""
        self._lists.put(None)
        self._server.stop(None).wait()

    def GetInfo(self, _request, _context):
        return self._info

    def NotifyRegistrationStatus(self, request, _context):
        self.told.append((request.plugin_registered, request.error))
        return registration.RegistrationStatusResponse()

    def GetDevicePluginOptions(self, _request, context):
        if self.options_error:
            context.abort(grpc.StatusCode.INTERNAL, self.options_error)
        return v1beta1.DevicePluginOptions(pre_start_required=self.pre_start_error is not None)

    def ListAndWatch(self, _request, _context):
        while (devices := self._lists.get()) is not None:
            yield v1beta1.ListAndWatchResponse(devices=devices)

    def Allocate(self, request, _context):
        self.asked.set()
        self.wait.wait(60)
        envs = {"IDS": ",".join(sorted(request.container_requests[0].devices_ids))}
        return v1beta1.AllocateResponse(container_responses=[v1beta1.ContainerAllocateResponse(envs=envs)])

    def PreStartContainer(self, _request, context):
        if self.pre_start_error:
            context.abort(grpc.StatusCode.INTERNAL, self.pre_start_error)
        return v1beta1.PreStartContainerResponse()
