"""Sources `amd-exporter`, `amd-nic-exporter` and `xpumd`: vendors' monitors, asked over gRPC."""

import contextlib
import functools
import logging
import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import grpc

from devherd import signals
from devherd.backoff import Backoff
from devherd.kubelet.deadline import LATE_SECONDS, MuteError
from devherd.kubelet.endpoint import target
from devherd.proto import health_pb2, xpumd_pb2
from devherd.proto.amd_exporter_pb2 import GPUStateResponse, NICStateResponse
from devherd.proto.xpumd_pb2 import DeviceHealth, DeviceHealthResponse
from devherd.reasons.registry import ALL_AT_ONCE, AMD_EXPORTER, AMD_NIC_EXPORTER, EXTERNAL, XPUMD
from devherd.sources.report import LONGEST_DETAIL, Key, Report, plain
from devherd.sources.request import Order, distrusted

_OPTIONS = (
    ("grpc.use_local_subchannel_pool", 1),  # no back-off inherited from the last attempt
    ("grpc.enable_http_proxy", 0),
    ("grpc.max_reconnect_backoff_ms", 30_000),
)


def channel_to(socket: str) -> grpc.Channel:
    """A channel that connects at its first call, and again after a restart of the monitor."""
    return grpc.insecure_channel(target(Path(socket)), options=_OPTIONS)


def check(socket: str) -> None:
    """Raises RpcError if users other than root could have replaced the monitor's socket."""
    with contextlib.suppress(OSError):  # the call reports a missing socket
        complaint = distrusted(Path(socket))
        if complaint:
            raise grpc.RpcError(complaint)


def why(error: grpc.RpcError) -> str:
    """The failure of a call as text."""
    if isinstance(error, grpc.Call):
        return f"{error.code().name}: {error.details()}"
    return str(error)


log = logging.getLogger(__name__)

LIST = "/metricssvc.MetricsService/List"
LIST_NICS = "/nicmetricssvc.MetricsService/List"
_DETAIL = "AMD's metrics exporter calls the device unhealthy"
_ALL_DETAIL = (
    "AMD's metrics exporter calls every device unhealthy at once: more likely its agent fails than all of them"
)

_UNHEALTHY, _HEALTHY = "unhealthy", "healthy"

States = Iterable[tuple[str, str]]
"""Device and health in the exporter's words."""
Findings = dict[Key, health_pb2.Finding]


class AmdExporter:
    """Asks AMD's device metrics exporter at intervals."""

    def __init__(self, order: Order, source: str = AMD_EXPORTER) -> None:
        self.report = Report(order.socket)
        self._of_nics = source == AMD_NIC_EXPORTER
        self.spoke_at = time.monotonic()
        self._order = order
        self._channel = channel_to(order.socket)
        method, answer = (LIST_NICS, NICStateResponse) if self._of_nics else (LIST, GPUStateResponse)
        self._list: Callable[..., Any] = self._channel.unary_unary(
            method, request_serializer=lambda _: b"", response_deserializer=answer.FromString
        )
        self._due_at = self.spoke_at

    def listen(self, timeout: float) -> None:
        """Ask if a call is due."""
        now = time.monotonic()
        if now < self._due_at:
            signals.rest(min(timeout, self._due_at - now))
            return
        self._due_at = now + (self._order.interval or 0.0)
        try:
            check(self._order.socket)
            answer = self._list(None, timeout=self._order.timeout)
        except grpc.RpcError as error:
            self.report.failed = why(error)
            return
        answered = answer.NICState if self._of_nics else answer.GPUState
        states = [(state.Device, state.Health) for state in answered]
        targets_of = _nic if self._of_nics else _gpu
        self.report.findings = amd_exporter_findings(
            states, self.report.findings.values(), self.report.origin, targets_of
        )
        self.report.failed = ""
        self.spoke_at = time.monotonic()

    def close(self) -> None:
        """Close the channel."""
        self._channel.close()


def _gpu(device: str) -> list[health_pb2.Target]:
    """The targets of a PCI address: function 0 is a GPU with all its partitions; another is a partition or a VF."""
    slot, _, function = device.rpartition(".")
    if not slot or function == "0":
        return [health_pb2.Target(vendor="amd", pci_address=slot or device)]
    return [
        health_pb2.Target(vendor="amd", pci_address=device),
        health_pb2.Target(vendor="amd", pci_address=f"{slot}.0", partition=function),
    ]


def _nic(device: str) -> list[health_pb2.Target]:
    """The target of a network function."""
    return [health_pb2.Target(vendor="rdma", pci_address=device)]


def amd_exporter_findings(
    states: States,
    before: Iterable[health_pb2.Finding],
    origin: str,
    targets_of: "Callable[[str], list[health_pb2.Target]]" = _gpu,
) -> Findings:
    """The findings after an answer: unhealthy devices, and unknown ones that were unhealthy before. Pure.

    Devices are doubted if all are unhealthy and most of their cards became so with this answer.
    """
    known = {found.at.SerializeToString(): found.value for found in before}
    health = _by_device(states)
    cards = {_card(device) for device in health}
    ill = {device for device, word in health.items() if word == _UNHEALTHY}
    known_cards = {_card(device) for device in ill if _values(targets_of(device), known)}
    are_all_ill = len(cards) > 1 and len(ill) == len(health)
    are_most_new = 2 * len(cards - known_cards) > len(cards)
    found: Findings = {}
    for device, word in health.items():
        values = _values(targets_of(device), known)
        if word == _UNHEALTHY or (word != _HEALTHY and values):
            is_doubtful = are_all_ill and (ALL_AT_ONCE in values or (not values and are_most_new))
            for target in targets_of(device):
                value = ALL_AT_ONCE if is_doubtful else _UNHEALTHY
                found[target.SerializeToString(), value] = health_pb2.Finding(
                    at=target,
                    reason=EXTERNAL,
                    detail=_ALL_DETAIL if is_doubtful else _DETAIL,
                    file=origin,
                    value=value,
                )
    return found


def _by_device(states: States) -> dict[str, str]:
    """The health of each device: the worst of its entries, in whatever order they are listed.

    Where the kernel puts the number of a partition elsewhere than in the function, AMD's gpuagent gives all partitions
    of a GPU the address of the first; the exporter lists them from a Go map, in random order.
    """
    health: dict[str, str] = {}
    for device, word in states:
        if device:
            health[device.lower()] = max(health.get(device.lower(), _HEALTHY), word, key=_badness)
    return health


def _badness(word: str) -> int:
    """Unhealthy is worse than unknown words, and these are worse than healthy: they give no device back."""
    return {_HEALTHY: 0, _UNHEALTHY: 2}.get(word, 1)


def _card(device: str) -> str:
    """The PCI slot of an address: partitions and virtual functions of a card share it."""
    return device.rpartition(".")[0] or device


def _values(targets: Iterable[health_pb2.Target], known: Mapping[bytes, str]) -> set[str]:
    keys = (target.SerializeToString() for target in targets)
    return {known[key] for key in keys if key in known}


WATCH = "/deviceinfo.DeviceInfo/WatchDeviceHealth"
_WORDS = {
    xpumd_pb2.SEVERITY_LEVEL_WARNING: "warning",
    xpumd_pb2.SEVERITY_LEVEL_CRITICAL: "critical",
    xpumd_pb2.SEVERITY_LEVEL_FAILED: "failed",
}
_LONGEST_NAME = 64


class Xpumd:
    """Reads the stream of Intel's xpumd; calls again when the stream ends or is silent."""

    def __init__(self, order: Order) -> None:
        self.report = Report(order.socket)
        self.spoke_at = time.monotonic()
        self._order = order
        self._channel = channel_to(order.socket)
        self._backoff = Backoff(1.0, 30.0)
        self._stream: Stream | None = None
        self._due_at = self._called_at = self.spoke_at

    def listen(self, timeout: float) -> None:
        """Read the next message of the stream."""
        now = time.monotonic()
        if self._stream is None and now < self._due_at:
            signals.rest(min(timeout, self._due_at - now))
            return
        try:
            if self._stream is None:
                check(self._order.socket)
                self._stream, self._called_at = Stream(self._channel), now
            message = self._stream.next(timeout)
        except grpc.RpcError as error:
            self._call_again(why(error))
            return
        if message is not None and message.devices:  # without devices, xpumd has measured nothing yet
            self.report.findings = xpumd_findings(message.devices, self.report.origin)
            self.report.failed = ""
            self.spoke_at = time.monotonic()
            self._backoff.reset()
        elif time.monotonic() - max(self.spoke_at, self._called_at) > self._order.max_age:
            self._call_again(f"no report for {self._order.max_age:g} s")

    def close(self) -> None:
        """Close the channel."""
        self._channel.close()

    def _call_again(self, complaint: str) -> None:
        if self._stream is not None:
            self._stream.cancel()
        self._stream = None
        self.report.failed = complaint
        self._due_at = time.monotonic() + self._backoff.seconds()


class Stream:
    """The messages of a call, read in a thread: gRPC has no timeout for the next message."""

    def __init__(self, channel: grpc.Channel) -> None:
        watch: Callable[..., Any] = channel.unary_stream(
            WATCH, request_serializer=lambda _: b"", response_deserializer=DeviceHealthResponse.FromString
        )
        self._call = watch(None)
        self._came: queue.SimpleQueue[DeviceHealthResponse | grpc.RpcError] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, name="xpumd", daemon=True)
        self._reader.start()

    def next(self, timeout: float) -> DeviceHealthResponse | None:
        """The next message; None after `timeout` seconds without one. Raises RpcError when the call has ended."""
        try:
            came = self._came.get(timeout=timeout)
        except queue.Empty:
            return None
        if isinstance(came, grpc.RpcError):
            raise came
        return came

    def cancel(self) -> None:
        """End the call. Raises MuteError if gRPC does not end it."""
        self._call.cancel()
        self._reader.join(LATE_SECONDS)
        if self._reader.is_alive():
            raise MuteError("a call of xpumd", 0.0)

    def _read(self) -> None:
        try:
            for message in self._call:
                self._came.put(message)
        except grpc.RpcError as error:
            self._came.put(error)
        else:
            self._came.put(grpc.RpcError("it ended the stream"))


def xpumd_findings(devices: Iterable[DeviceHealth], origin: str) -> dict[Key, health_pb2.Finding]:
    """A finding for each health domain of a GPU that is not well; unknown states have none. Pure."""
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


WAYS: Mapping[str, Callable[[Order], AmdExporter | Xpumd]] = MappingProxyType(
    {
        AMD_EXPORTER: AmdExporter,
        AMD_NIC_EXPORTER: functools.partial(AmdExporter, source=AMD_NIC_EXPORTER),
        XPUMD: Xpumd,
    }
)
"""The client of each monitor in the registry."""
