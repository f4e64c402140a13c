"""A kubelet of a few lines that can misbehave on purpose: the real order of calls, none of the rest of its work."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc

from devherd.proto import deviceplugin_v1beta1_pb2 as v1beta1
from devherd.proto.deviceplugin_v1beta1_pb2_grpc import (
    DevicePluginStub,
    RegistrationServicer,
    add_RegistrationServicer_to_server,
)


class Watched:
    """One accepted registration: the plugin's channel, and what came on its stream and when."""

    def __init__(self, directory: Path, request: v1beta1.RegisterRequest) -> None:
        self.request = request
        self.lists: list[v1beta1.ListAndWatchResponse] = []
        self.times: list[float] = []
        self.ended: grpc.StatusCode | None = None
        self._channel = grpc.insecure_channel(f"unix:{directory / request.endpoint}")
        self.plugin = DevicePluginStub(self._channel)
        self.options = self.plugin.GetDevicePluginOptions(v1beta1.Empty(), timeout=10, wait_for_ready=True)
        self._stream = None

    def open_stream(self) -> None:
        """Watch, as the kubelet does after it has answered Register."""
        self._stream = self.plugin.ListAndWatch(v1beta1.Empty())
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        try:
            for devices in self._stream:
                self.times.append(time.monotonic())
                self.lists.append(devices)
            self.ended = grpc.StatusCode.OK
        except grpc.RpcError as error:
            self.ended = error.code()

    def cut(self) -> None:
        """End the stream and the connection, as a kubelet does that disconnects a plugin."""
        if self._stream is not None:
            self._stream.cancel()
        self._channel.close()

    @property
    def health(self) -> dict[str, str]:
        """The last list as id and health."""
        return {device.ID: device.health for device in self.lists[-1].devices} if self.lists else {}

    def allocate(self, *containers: list[str]) -> v1beta1.AllocateResponse:
        """Allocate for one or several containers."""
        requests = [v1beta1.ContainerAllocateRequest(devices_ids=ids) for ids in containers]
        return self.plugin.Allocate(v1beta1.AllocateRequest(container_requests=requests), timeout=10)


class SmallKubelet(RegistrationServicer):
    """Serves Register in `directory`. Its faults are plain attributes, to be set at any time."""

    def __init__(self, kubelet_directory: Path) -> None:
        self.directory = kubelet_directory / "device-plugins"
        self.socket = self.directory / "kubelet.sock"
        self.registrations: list[Watched] = []
        self.calls: list[float] = []
        self.requests: list[v1beta1.RegisterRequest] = []
        self.refusal = ""
        self.hangs = False
        self.opens_streams = True
        self.dials_after = 0.0
        self._server: grpc.Server | None = None
        self._released = threading.Event()

    def start(self) -> "SmallKubelet":
        """Clean the directory of sockets and listen, as the kubelet does at its start."""
        self.directory.mkdir(parents=True, exist_ok=True)
        for entry in self.directory.iterdir():
            if entry.is_socket():
                entry.unlink(missing_ok=True)  # its owner may have been quicker
        self._released.clear()
        self._server = grpc.server(ThreadPoolExecutor(max_workers=32))
        add_RegistrationServicer_to_server(self, self._server)
        self._server.add_insecure_port(f"unix:{self.socket}")
        self._server.start()
        return self

    def stop(self) -> None:
        """Die: every connection ends, kubelet.sock is taken along (gRPC does that, the real one leaves it behind)."""
        self._released.set()
        for watched in self.registrations:
            watched.cut()
        if self._server is not None:
            self._server.stop(0).wait()
            self._server = None

    def restart(self) -> None:
        """Die and come back with a cleaned directory."""
        self.stop()
        self.start()

    def Register(self, request, context):
        self.calls.append(time.monotonic())
        self.requests.append(request)
        if self.hangs:
            self._released.wait(60)
        if self.refusal:
            context.abort(grpc.StatusCode.UNKNOWN, self.refusal)
        time.sleep(self.dials_after)
        watched = Watched(self.directory, request)
        if self.opens_streams:
            watched.open_stream()
        self.registrations.append(watched)
        return v1beta1.Empty()
