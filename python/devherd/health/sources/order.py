"""What the process of a source that listens is to do: the request that the scanner writes for it."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from devherd import spool
from devherd.config.resolved import Config, External
from devherd.health.seen import Seen
from devherd.health.sources import AMD_EXPORTER, AMD_KFD, AMD_NIC_EXPORTER, EXTERNAL, XPUMD
from devherd.proto import health_pb2

_USUAL = {
    AMD_EXPORTER: "var/lib/amd-metrics-exporter/amdgpu_device_metrics_exporter_grpc.socket",
    AMD_NIC_EXPORTER: "var/lib/amd-metrics-exporter/amdnic_device_metrics_exporter_grpc.socket",
    XPUMD: "run/xpumd/intelxpuinfo.sock",
    AMD_KFD: "dev/kfd",
}
"""Where vendors' monitors listen on the host, and AMD's driver."""
_AMD_RAS = "amd-ras"
"""The source of the scan core that reads the same counters as AMD's exporter."""
_INTERVAL, _DEADLINE, _SILENCE = 30.0, 5.0, 180.0
"""How often the exporter is asked, how long it may take, and after how much silence what it said is let go: seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """A program to run, a file to read or a socket or device to ask; times in seconds."""

    command: tuple[str, ...] = ()
    file: str = ""
    socket: str = ""
    interval: float | None = None
    """Between two runs; None for a program that goes on running."""
    timeout: float
    max_age: float
    on_silence: Literal["keep", "drop"]
    boot_id: str
    is_optional: bool = False
    """Whether it is well that nothing is at the socket."""


def requests_for(config: Config, findings: Path | None, boot_id: str) -> dict[str, str]:
    """The content of each request, by source. A monitor is asked once it is there, and until what it said is let go."""
    orders = {f"{EXTERNAL}{external.name}": _order(external, boot_id) for external in config.health.external}
    for source, socket in config.health.monitors.items():
        order = _order_to_ask(source, socket, config.host_root, boot_id)
        if socket and (not order.is_optional or Path(order.socket).exists() or _is_waited_for(findings, source)):
            orders[source] = order
    return {source: json.dumps(asdict(order)) for source, order in orders.items()}


def _is_waited_for(findings: Path | None, source: str) -> bool:
    """Whether what a monitor said still counts, or would if it could be asked."""
    if findings is None:
        return False
    said = spool.read_or_empty(spool.path_of(findings, source), health_pb2.Findings)
    return bool(said.source) and not said.lets_go


def left_to_others(seen: Seen) -> set[str]:
    """Sources of the scan core that a monitor which answers asks for: both would keep the card's firmware busy."""
    answers = AMD_EXPORTER in seen.reported and AMD_EXPORTER not in seen.failed
    return {_AMD_RAS} if answers else set()


def order_in(request: bytes) -> Order:
    """What a request asks for. Raises ValueError, TypeError and KeyError for one that was not made here."""
    said = json.loads(request)
    return Order(**{**said, "command": tuple(said["command"])})


def _order(external: External, boot_id: str) -> Order:
    return Order(
        command=tuple(external.command or ()),
        file=str(external.file or ""),
        interval=external.interval,
        timeout=external.timeout,
        max_age=external.max_age,
        on_silence=external.on_silence,
        boot_id=boot_id,
    )


def _order_to_ask(source: str, socket: str, host_root: Path, boot_id: str) -> Order:
    is_usual = socket == "auto"
    return Order(
        socket=str(host_root / (_USUAL[source] if is_usual else socket.lstrip("/"))),
        interval=_INTERVAL,
        timeout=_DEADLINE,
        max_age=_SILENCE,
        on_silence="drop",
        boot_id=boot_id,
        is_optional=is_usual,
    )
