"""/metrics by `exporter.device_metrics`: series, bytes and CPU time; and the time that each process takes on it."""

import gzip
import os
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import count, repeat
from typing import get_args

from herds import DEVICES
from measure import figure, headline, median_seconds, milliseconds
from prometheus_client.parser import text_string_to_metric_families

from devherd.config.sections import DeviceMetrics
from devherd.counters import HEALTH_CHANGES
from devherd.exporter import metrics
from devherd.exporter.exposition import Family, Writer
from devherd.exporter.metrics import usage_of_process
from devherd.instance.read import InstanceState
from devherd.process import Heartbeats
from devherd.proto import spool_pb2
from devherd.spool import listed

REPEATS = 7
NAME = "nvidia.com/gpu"
PID = str(os.getpid())


def main() -> None:
    """Print the figures."""
    for title, devices, replicas in (("8 GPUs, 100 replicas each", 8, 100), (f"{DEVICES} devices", DEVICES, 0)):
        headline(f"/metrics of {title}, one of them Unhealthy")
        herd = _herd(devices, replicas)
        for setting in get_args(DeviceMetrics):
            page = Writer(as_openmetrics=False).page(_families(herd, setting))
            series = sum(not line.startswith(b"#") for line in page.splitlines())
            sizes = f"{len(page) / 1e3:.0f} kB, {len(gzip.compress(page, 6)) / 1e3:.0f} kB as gzip"
            figure(f"{setting}: series", str(series), "", sizes)
            families = list(text_string_to_metric_families(page.decode()))
            floor = _cpu_seconds(partial(_written, families))
            figure("  floor: the library writes these families, all of them ready", milliseconds(floor))
            scrapes, changing = metrics.Scrapes(Heartbeats(1)), _with_a_device_that_changes(herd)
            for what, work in (
                ("all of it new", partial(_first_page, herd, setting)),
                ("one device changed", partial(_next_page, scrapes, changing, setting)),
                ("nothing new since the last one", partial(_next_page, scrapes, repeat(herd), setting)),
            ):
                taken = _cpu_seconds(work)
                figure(f"  CPU time to make it, {what}", milliseconds(taken), "200 ms", f"{taken / floor:.2f}x")
    headline("what /proc says of one process")
    figure("time to read and parse it", milliseconds(median_seconds(lambda: usage_of_process(PID), 1000)))


def _cpu_seconds(work: Callable[[], object]) -> float:
    return median_seconds(work, REPEATS, time.process_time)


def _families(herd: InstanceState, setting: DeviceMetrics) -> Iterator[Family]:
    return metrics.families(herd, None, Heartbeats(1), of_devices=setting)


def _page(herd: InstanceState, setting: DeviceMetrics, writer: Writer) -> bytes:
    return writer.page(_families(herd, setting))


def _written(families: Iterable[Family]) -> bytes:
    return Writer(as_openmetrics=False).page(families)


def _first_page(herd: InstanceState, setting: DeviceMetrics) -> bytes:
    return _page(herd, setting, Writer(as_openmetrics=False))


def _next_page(scrapes: metrics.Scrapes, herds: Iterator[InstanceState], setting: DeviceMetrics) -> object:
    return scrapes.page(next(herds), None, setting, kubelet_listens=True)


def _with_a_device_that_changes(herd: InstanceState) -> Iterator[InstanceState]:
    """The same devices as they are read again after one has become Unhealthy or Healthy."""
    versions = [bytes(_changed(herd, reasons).SerializeToString(deterministic=True)) for reasons in (["xid"], [])]
    for version in count(2):
        resource = spool_pb2.Offer.FromString(versions[version % 2])
        yield InstanceState(resources=[resource], version=version, scanner_counters=herd.scanner_counters)


def _changed(herd: InstanceState, reasons: list[str]) -> spool_pb2.Offer:
    offer = spool_pb2.Offer.FromString(herd.resources[0].SerializeToString())
    offer.devices[-1].reasons.extend(reasons)
    return offer


def _herd(devices: int, replicas: int) -> InstanceState:
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
    changes = [
        spool_pb2.Series(metric=HEALTH_CHANGES.name, labels=(NAME, device_id), total=len(device.reasons))
        for device_id, device in listed(resource)
    ]
    return InstanceState(resources=[resource], version=1, scanner_counters=changes)


if __name__ == "__main__":
    main()
