"""/metrics by `exporter.device_metrics`: series, bytes and time; and the time that each process takes on it."""

import gzip
import os
from functools import partial
from typing import get_args

from measure import figure, headline, median_seconds, milliseconds

from devherd import counted
from devherd.config.resolved import DeviceMetrics
from devherd.counters import Counters
from devherd.exporter import exposition, metrics, processes
from devherd.heartbeat import Heartbeats
from devherd.instance import Herd
from devherd.proto import spool_pb2
from devherd.spool.listing import listed

REPEATS = 7
NAME = "nvidia.com/gpu"
PID = str(os.getpid())


def main() -> None:
    """Print the figures."""
    for title, devices, replicas in (("8 GPUs, 100 replicas each", 8, 100), ("10 000 devices", 10_000, 0)):
        headline(f"/metrics of {title}, one of them Unhealthy")
        herd = _herd(devices, replicas)
        for setting in get_args(DeviceMetrics):
            text = _page(herd, setting)
            series = sum(not line.startswith("#") for line in text.splitlines())
            sizes = f"{len(text) / 1e3:.0f} kB, {len(gzip.compress(text.encode(), 6)) / 1e3:.0f} kB as gzip"
            figure(f"{setting}: series", str(series), "", sizes)
            seconds = median_seconds(partial(_page, herd, setting), REPEATS)
            figure("  time to make it", milliseconds(seconds))
    headline("what /proc says of one process")
    figure("time to read and parse it", milliseconds(median_seconds(lambda: processes.usage(PID), 1000)))


def _page(herd: Herd, setting: DeviceMetrics) -> str:
    return exposition.text(metrics.families(herd, None, Heartbeats(1), of_devices=setting))


def _herd(devices: int, replicas: int) -> Herd:
    resource = spool_pb2.Resource(
        name=NAME,
        vendor="nvidia",
        devices=[
            spool_pb2.Device(
                id=f"GPU-{number}",
                replicas=replicas,
                reasons=["xid"] if number == 0 else [],
                attributes={"model": "NVIDIA H200", "pci_address": f"0000:{number:02x}:00.0"},
            )
            for number in range(devices)
        ],
    )
    counters = Counters(counted.BY_THE_SCANNER)
    for device_id, device in listed(resource):
        counters.add(counted.HEALTH_CHANGES, NAME, device_id, amount=len(device.reasons))
    return Herd(resources=[resource], scanner_counters=list(counters))


if __name__ == "__main__":
    main()
