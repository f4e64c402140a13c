"""Servers in the place of vendors' monitors of GPUs: they say of a simulated node what is written for them in it.

AMD's metrics exporter answers when it is asked, Intel's xpumd sends everything again whenever it has measured.
"""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Self

import grpc

from devherd.health.sources.amd_exporter import LIST
from devherd.health.sources.xpumd import WATCH
from devherd.kubelet.endpoint import target
from devherd.proto import xpumd_pb2
from devherd.proto.amd_exporter_pb2 import GPUState, GPUStateResponse
from devherd.proto.xpumd_pb2 import DeviceHealth, DeviceHealthResponse, DeviceInformation, HealthStatus, PciInfo
from devherd_sim.node.monitors import MONITORS, Monitor

MEASURE_SECONDS = 0.2
"""Between two looks of xpumd at what it is to say."""
_LISTENERS = 4
_SEVERITIES = {
    "ok": xpumd_pb2.SEVERITY_LEVEL_OK,
    "warning": xpumd_pb2.SEVERITY_LEVEL_WARNING,
    "failed": xpumd_pb2.SEVERITY_LEVEL_FAILED,
    "critical": xpumd_pb2.SEVERITY_LEVEL_CRITICAL,
}
_DOMAIN = "core_temperature"


class MonitorServer:
    """One of them, on its usual socket of the node below `root`, from `start` to `stop`."""

    def __init__(self, root: Path, name: str) -> None:
        monitor = MONITORS[name]
        self.socket = root / monitor.socket
        self._is_over = False
        self._server = grpc.server(ThreadPoolExecutor(_LISTENERS))
        method = LIST if "amdgpu" in monitor.drivers else WATCH
        service, _, call = method.strip("/").partition("/")
        handler = self._answering(root, monitor) if method == LIST else self._sending(root, monitor)
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {call: handler}),))

    def start(self) -> Self:
        """Listen. Raises OSError where that cannot be."""
        self.socket.parent.mkdir(parents=True, exist_ok=True)
        self.socket.unlink(missing_ok=True)
        try:
            self._server.add_insecure_port(target(self.socket))
        except RuntimeError as error:
            raise OSError(str(error)) from error
        self._server.start()
        return self

    def stop(self) -> None:
        """Hang up, and leave no socket behind."""
        self._is_over = True
        self._server.stop(0).wait()
        self.socket.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _answering(self, root: Path, monitor: Monitor) -> "grpc.RpcMethodHandler[bytes, GPUStateResponse]":
        def answer(_request: bytes, _context: grpc.ServicerContext) -> GPUStateResponse:
            return gpu_states(monitor.said(root))

        return grpc.unary_unary_rpc_method_handler(answer, bytes, GPUStateResponse.SerializeToString)

    def _sending(self, root: Path, monitor: Monitor) -> "grpc.RpcMethodHandler[bytes, DeviceHealthResponse]":
        def send(_request: bytes, context: grpc.ServicerContext) -> Iterator[DeviceHealthResponse]:
            return self._measurements(lambda: device_health(monitor.said(root)), context.is_active)

        return grpc.unary_stream_rpc_method_handler(send, bytes, DeviceHealthResponse.SerializeToString)

    def _measurements(
        self, measure: Callable[[], DeviceHealthResponse], is_heard: Callable[[], bool]
    ) -> Iterator[DeviceHealthResponse]:
        while is_heard() and not self._is_over:
            yield measure()
            time.sleep(MEASURE_SECONDS)


def gpu_states(said: dict[str, str]) -> GPUStateResponse:
    """The answer of AMD's exporter."""
    return GPUStateResponse(GPUState=[GPUState(Device=gpu, Health=word) for gpu, word in said.items()])


def device_health(said: dict[str, str]) -> DeviceHealthResponse:
    """A measurement of xpumd."""
    return DeviceHealthResponse(
        devices=[
            DeviceHealth(
                info=DeviceInformation(pci=PciInfo(bdf=gpu)),
                health=[HealthStatus(name=_DOMAIN, severity=_SEVERITIES[word], message=f"it is {word}")],
            )
            for gpu, word in said.items()
        ]
    )
