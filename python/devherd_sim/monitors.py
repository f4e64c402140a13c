"""Servers that replace vendors' GPU monitors and report the health states in files of a simulated node.

AMD's metrics exporter answers requests; Intel's xpumd streams all health states after each measurement.
"""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Self

import grpc

from devherd.kubelet.endpoint import target
from devherd.proto import xpumd_pb2
from devherd.proto.amd_exporter_pb2 import GPUState, GPUStateResponse
from devherd.proto.xpumd_pb2 import DeviceHealth, DeviceHealthResponse, DeviceInformation, HealthStatus, PciInfo
from devherd.sources.monitors import LIST, WATCH
from devherd_sim.node.faults.services import MONITORS, Monitor

MEASURE_SECONDS = 0.2
"""Interval of xpumd's measurements."""
_LISTENERS = 4
_SEVERITIES = {
    "ok": xpumd_pb2.SEVERITY_LEVEL_OK,
    "warning": xpumd_pb2.SEVERITY_LEVEL_WARNING,
    "failed": xpumd_pb2.SEVERITY_LEVEL_FAILED,
    "critical": xpumd_pb2.SEVERITY_LEVEL_CRITICAL,
}
_DOMAIN = "core_temperature"


class MonitorServer:
    """A monitor that serves on its usual socket below `root`, from `start` to `stop`."""

    def __init__(self, root: Path, name: str) -> None:
        monitor = MONITORS[name]
        self.socket = root / monitor.socket
        self._is_over = False
        self._server = grpc.server(ThreadPoolExecutor(_LISTENERS))
        method = LIST if "amdgpu" in monitor.drivers else WATCH
        service, _, call = method.strip("/").partition("/")
        handler = self._unary(root, monitor) if method == LIST else self._stream(root, monitor)
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {call: handler}),))

    def start(self) -> Self:
        """Start to listen. Raises OSError when that fails."""
        self.socket.parent.mkdir(parents=True, exist_ok=True)
        self.socket.unlink(missing_ok=True)
        try:
            self._server.add_insecure_port(target(self.socket))
        except RuntimeError as error:
            raise OSError(str(error)) from error
        self._server.start()
        return self

    def stop(self) -> None:
        """End all calls and remove the socket."""
        self._is_over = True
        self._server.stop(0).wait()
        self.socket.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _unary(self, root: Path, monitor: Monitor) -> "grpc.RpcMethodHandler[bytes, GPUStateResponse]":
        def answer(_request: bytes, _context: grpc.ServicerContext) -> GPUStateResponse:
            return gpu_states(monitor.health(root))

        return grpc.unary_unary_rpc_method_handler(answer, bytes, GPUStateResponse.SerializeToString)

    def _stream(self, root: Path, monitor: Monitor) -> "grpc.RpcMethodHandler[bytes, DeviceHealthResponse]":
        def send(_request: bytes, context: grpc.ServicerContext) -> Iterator[DeviceHealthResponse]:
            return self._measurements(lambda: device_health(monitor.health(root)), context.is_active)

        return grpc.unary_stream_rpc_method_handler(send, bytes, DeviceHealthResponse.SerializeToString)

    def _measurements(
        self, measure: Callable[[], DeviceHealthResponse], is_active: Callable[[], bool]
    ) -> Iterator[DeviceHealthResponse]:
        while is_active() and not self._is_over:
            yield measure()
            time.sleep(MEASURE_SECONDS)


def gpu_states(health: dict[str, str]) -> GPUStateResponse:
    """The answer of AMD's exporter, from health words by PCI address."""
    return GPUStateResponse(GPUState=[GPUState(Device=gpu, Health=word) for gpu, word in health.items()])


def device_health(health: dict[str, str]) -> DeviceHealthResponse:
    """A measurement of xpumd, from health words by PCI address."""
    return DeviceHealthResponse(
        devices=[
            DeviceHealth(
                info=DeviceInformation(pci=PciInfo(bdf=gpu)),
                health=[HealthStatus(name=_DOMAIN, severity=_SEVERITIES[word], message=f"it is {word}")],
            )
            for gpu, word in health.items()
        ]
    )
