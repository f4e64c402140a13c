"""Sources `amd-exporter` and `amd-nic-exporter`: what AMD's device metrics exporter says, as AMD's own plugins ask it.

<https://github.com/ROCm/device-metrics-exporter>: it calls a GPU unhealthy for uncorrectable errors and fatal records,
and all of them when its own agent does not answer: that is its trouble, which looks like that of every GPU. It calls
a logical interface of a network card unhealthy that is administratively down.
"""

import logging
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import grpc

from devherd.health.registry import ALL_AT_ONCE, EXTERNAL
from devherd.health.sources import AMD_EXPORTER, AMD_NIC_EXPORTER
from devherd.health.sources.external.report import Key, Report
from devherd.health.sources.grpc_client import channel_to, check, why
from devherd.health.sources.order import Order
from devherd.proto import health_pb2
from devherd.proto.amd_exporter_pb2 import GPUStateResponse, NICStateResponse

if TYPE_CHECKING:
    from collections.abc import Callable

log = logging.getLogger(__name__)

LIST = "/metricssvc.MetricsService/List"
LIST_NICS = "/nicmetricssvc.MetricsService/List"
_DETAIL = "AMD's metrics exporter calls the device unhealthy"
_ALL_DETAIL = (
    "AMD's metrics exporter calls every device unhealthy at once: more likely its agent fails than all of them"
)

States = Iterable[tuple[str, str]]
"""Device and health, as the exporter spells them."""
Findings = dict[Key, health_pb2.Finding]


class AmdExporter:
    """Asks at intervals."""

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
        """Ask when it is due."""
        now = time.monotonic()
        if now < self._due_at:
            time.sleep(min(timeout, self._due_at - now))
            return
        self._due_at = now + (self._order.interval or 0.0)
        try:
            check(self._order.socket)
            answer = self._list(None, timeout=self._order.timeout)
        except grpc.RpcError as error:
            self.report.failed = why(error)
            return
        said = answer.NICState if self._of_nics else answer.GPUState
        states = [(state.Device, state.Health) for state in said]
        targets_of = _nic if self._of_nics else _gpu
        self.report.findings = findings_of(states, self.report.findings.values(), self.report.origin, targets_of)
        self.report.failed = ""
        self.spoke_at = time.monotonic()

    def close(self) -> None:
        """Hang up."""
        self._channel.close()


def _gpu(device: str) -> list[health_pb2.Target]:
    """A GPU with all its partitions; one partition, whose number is that of a function, or the function that it is."""
    slot, _, function = device.rpartition(".")
    if not slot or function == "0":
        return [health_pb2.Target(vendor="amd", pci_address=slot or device)]
    return [
        health_pb2.Target(vendor="amd", pci_address=device),
        health_pb2.Target(vendor="amd", pci_address=f"{slot}.0", partition=function),
    ]


def _nic(device: str) -> list[health_pb2.Target]:
    """The function of a logical interface alone."""
    return [health_pb2.Target(vendor="rdma", pci_address=device)]


def findings_of(
    states: States,
    before: Iterable[health_pb2.Finding],
    origin: str,
    targets_of: "Callable[[str], list[health_pb2.Target]]" = _gpu,
) -> Findings:
    """What stands after an answer: each unhealthy device, and each unknown one that was unhealthy. Pure."""
    known = {found.at.SerializeToString(): found.value for found in before}
    health = {device.lower(): word for device, word in states if device}
    ill = [device for device, word in health.items() if word == "unhealthy"]
    news = [device for device in ill if not _values(targets_of(device), known)]
    are_all_ill = len(health) > 1 and len(ill) == len(health)
    found: Findings = {}
    for device, word in health.items():
        values = _values(targets_of(device), known)
        if word == "unhealthy" or (word != "healthy" and values):
            is_doubtful = are_all_ill and (ALL_AT_ONCE in values or (not values and 2 * len(news) > len(health)))
            for target in targets_of(device):
                value = ALL_AT_ONCE if is_doubtful else "unhealthy"
                found[target.SerializeToString(), value] = health_pb2.Finding(
                    at=target,
                    reason=EXTERNAL,
                    detail=_ALL_DETAIL if is_doubtful else _DETAIL,
                    file=origin,
                    value=value,
                )
    return found


def _values(targets: Iterable[health_pb2.Target], known: Mapping[bytes, str]) -> set[str]:
    keys = (target.SerializeToString() for target in targets)
    return {known[key] for key in keys if key in known}
