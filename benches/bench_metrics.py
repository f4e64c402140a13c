"""/metrics by `exporter.device_metrics`: series, bytes and time; and the time that each process takes on it."""

import gzip
import os
from collections.abc import Iterable, Iterator
from functools import partial
from typing import get_args

from measure import figure, headline, median_seconds, milliseconds
from prometheus_client.core import Metric

from devherd.config.sections import DeviceMetrics
from devherd.counters import BY_THE_SCANNER, HEALTH_CHANGES, Counters
from devherd.exporter import metrics
from devherd.exporter.exposition import Writer
from devherd.exporter.usage import usage_of_process
from devherd.instance.read import Herd
from devherd.process import Heartbeats
from devherd.proto import spool_pb2
from devherd.spool import listed

REPEATS = 7
NAME = "nvidia.com/gpu"
PID = str(os.getpid())


def main() -> None:
    """Print the figures."""
    for title, devices, replicas in (("8 GPUs, 100 replicas each", 8, 100), ("10 000 devices", 10_000, 0)):
        headline(f"/metrics of {title}, one of them Unhealthy")
        herd = _herd(devices, replicas)
        for setting in get_args(DeviceMetrics):
            families = list(_families(herd, setting))
            page = Writer(as_openmetrics=False).page(families)
            series = sum(not line.startswith(b"#") for line in page.splitlines())
            sizes = f"{len(page) / 1e3:.0f} kB, {len(gzip.compress(page, 6)) / 1e3:.0f} kB as gzip"
            figure(f"{setting}: series", str(series), "", sizes)
            floor = median_seconds(partial(_written, families), REPEATS)
            figure("  floor: the library writes these families, all of them ready", milliseconds(floor))
            first = median_seconds(partial(_first_page, herd, setting), REPEATS)
            figure("  time to make it, all of it new", milliseconds(first), "500 ms", f"{first / floor:.2f}x")
            scrapes = metrics.Scrapes(Heartbeats(1))
            page_again = partial(scrapes.page, herd, None, setting, kubelet_listens=True)
            again = median_seconds(page_again, REPEATS)
            figure(
                "  time to make it, nothing new since the last one",
                milliseconds(again),
                "200 ms",
                f"{again / floor:.2f}x",
            )
    headline("what /proc says of one process")
    figure("time to read and parse it", milliseconds(median_seconds(lambda: usage_of_process(PID), 1000)))


def _families(herd: Herd, setting: DeviceMetrics) -> Iterator[Metric]:
    return metrics.families(herd, None, Heartbeats(1), of_devices=setting)


def _page(herd: Herd, setting: DeviceMetrics, writer: Writer) -> bytes:
    return writer.page(_families(herd, setting))


def _written(families: Iterable[Metric]) -> bytes:
    return Writer(as_openmetrics=False).page(families)


def _first_page(herd: Herd, setting: DeviceMetrics) -> bytes:
    return _page(herd, setting, Writer(as_openmetrics=False))


def _herd(devices: int, replicas: int) -> Herd:
    resource = spool_pb2.Offer(
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
    counters = Counters(BY_THE_SCANNER)
    for device_id, device in listed(resource):
        counters.add(HEALTH_CHANGES, NAME, device_id, amount=len(device.reasons))
    return Herd(resources=[resource], version=1, scanner_counters=list(counters))


if __name__ == "__main__":
    main()
