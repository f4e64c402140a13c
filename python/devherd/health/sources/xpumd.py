"""Source `xpumd`: what Intel's xpumd says of GPUs by domain, as Intel's own plugin listens to it.

<https://github.com/intel/xpumanager>. The plugin takes a GPU away for every warning, also that its memory is warm; here
a warning warns.
"""

import logging
import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import grpc

from devherd.backoff import Backoff
from devherd.health.registry import EXTERNAL
from devherd.health.sources.external.report import LONGEST_DETAIL, Key, Report, plain
from devherd.health.sources.grpc_client import channel_to, check, why
from devherd.health.sources.order import Order
from devherd.proto import health_pb2, xpumd_pb2
from devherd.proto.xpumd_pb2 import DeviceHealth, DeviceHealthResponse

log = logging.getLogger(__name__)

WATCH = "/deviceinfo.DeviceInfo/WatchDeviceHealth"
_WORDS = {
    xpumd_pb2.SEVERITY_LEVEL_WARNING: "warning",
    xpumd_pb2.SEVERITY_LEVEL_CRITICAL: "critical",
    xpumd_pb2.SEVERITY_LEVEL_FAILED: "failed",
}
_LONGEST_NAME = 64


class Xpumd:
    """Listens to its stream, and calls again when that ends or is silent."""

    def __init__(self, order: Order) -> None:
        self.report = Report(order.socket)
        self.spoke_at = time.monotonic()
        self._order = order
        self._channel = channel_to(order.socket)
        self._backoff = Backoff(1.0, 30.0)
        self._stream: Stream | None = None
        self._due_at = self._called_at = self.spoke_at

    def listen(self, timeout: float) -> None:
        """Take in what comes."""
        now = time.monotonic()
        if self._stream is None and now < self._due_at:
            time.sleep(min(timeout, self._due_at - now))
            return
        try:
            if self._stream is None:
                check(self._order.socket)
                self._stream, self._called_at = Stream(self._channel), now
            said = self._stream.next(timeout)
        except grpc.RpcError as error:
            self._call_again(why(error))
            return
        if said is not None and said.devices:  # it has measured nothing yet where there is none
            self.report.findings = findings_of(said.devices, self.report.origin)
            self.report.failed = ""
            self.spoke_at = time.monotonic()
            self._backoff.reset()
        elif time.monotonic() - max(self.spoke_at, self._called_at) > self._order.max_age:
            self._call_again(f"it said nothing for {self._order.max_age:g} s")

    def close(self) -> None:
        """Hang up."""
        self._channel.close()

    def _call_again(self, complaint: str) -> None:
        if self._stream is not None:
            self._stream.cancel()
        self._stream = None
        self.report.failed = complaint
        self._due_at = time.monotonic() + self._backoff.seconds()


class Stream:
    """What a call brings, read by a thread of its own: gRPC waits for ever for the next message."""

    def __init__(self, channel: grpc.Channel) -> None:
        watch: Callable[..., Any] = channel.unary_stream(
            WATCH, request_serializer=lambda _: b"", response_deserializer=DeviceHealthResponse.FromString
        )
        self._call = watch(None)
        self._came: queue.SimpleQueue[DeviceHealthResponse | grpc.RpcError] = queue.SimpleQueue()
        threading.Thread(target=self._read, name="xpumd", daemon=True).start()

    def next(self, timeout: float) -> DeviceHealthResponse | None:
        """The next message; None when none came in time. Raises RpcError when the call has ended."""
        try:
            came = self._came.get(timeout=timeout)
        except queue.Empty:
            return None
        if isinstance(came, grpc.RpcError):
            raise came
        return came

    def cancel(self) -> None:
        """End the call."""
        self._call.cancel()

    def _read(self) -> None:
        try:
            for message in self._call:
                self._came.put(message)
        except grpc.RpcError as error:
            self._came.put(error)
        else:
            self._came.put(grpc.RpcError("it ended the stream"))


def findings_of(devices: Iterable[DeviceHealth], origin: str) -> dict[Key, health_pb2.Finding]:
    """Each domain of each GPU that is worse than well; one of unknown state says nothing. Pure."""
    return {(found.at.SerializeToString(), found.file): found for found in _findings(devices, origin)}


def _findings(devices: Iterable[DeviceHealth], origin: str) -> Iterator[health_pb2.Finding]:
    for device in devices:
        address = device.info.pci.bdf.lower()
        for domain in device.health if address else ():
            name = plain(domain.name, _LONGEST_NAME)
            if domain.severity in _WORDS:
                yield health_pb2.Finding(
                    at=health_pb2.Target(vendor="intel-gpu", pci_address=address),
                    reason=EXTERNAL,
                    detail=plain(f"{name}: {domain.message or domain.reason}", LONGEST_DETAIL),
                    file=f"{origin}#{name}",
                    value=_WORDS[domain.severity],
                )
