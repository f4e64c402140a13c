"""Which devices have series of their own: all, each physical one once, those with trouble, or none."""

import os
import re
import signal

import pytest
from exporter_instance import eventually
from test_metrics_page import FPGA

from devherd import counted
from devherd.config import resolved_file
from devherd.config.resolved import Config, ExporterOptions
from devherd.exporter.device_metrics import families
from devherd.instance import Herd
from devherd.proto.spool_pb2 import Device, Resource

SHARED = Resource(
    name="a.b/shared",
    vendor="nvidia",
    devices=[Device(id="GPU-1", replicas=3, reasons=["xid"], warnings=["pci-aer"]), Device(id="GPU-2", replicas=3)],
)
ONE = [{"namespace": "n", "pod": "one", "container": "c"}]
TWO = [{"namespace": "n", "pod": "two", "container": "c"}]
HELD = {(SHARED.name, "GPU-1::0"): ONE, (SHARED.name, "GPU-1::1"): ONE, (SHARED.name, "GPU-1::2"): TWO}


def counting(counters):
    """A scanner counts for each replica."""
    for number in range(3):
        counters.add(counted.HEALTH_CHANGES, SHARED.name, f"GPU-1::{number}", amount=5)
        counters.add(counted.XIDS, SHARED.name, f"GPU-1::{number}", "79", amount=2)


def show(instance, of_devices):
    """Leave the configuration as the loader does."""
    config = resolved_file.read(instance.run_dir / "config.json")
    exporter = ExporterOptions(device_metrics=of_devices)
    resolved_file.write(instance.run_dir / "config.json", Config(common=config.common, exporter=exporter))


def ids(metrics):
    """The device ids of each metric that has any."""
    found = {}
    for series in metrics:
        name, _, labels = series.partition("{")
        if match := re.search(r'device_id="([^"]*)"', labels):
            found.setdefault(name.removeprefix("devherd_device_"), set()).add(match[1])
    return found


REPLICAS = {f"GPU-{gpu}::{number}" for gpu in (1, 2) for number in range(3)}
ILL = {f"GPU-1::{number}" for number in range(3)}


@pytest.mark.parametrize(
    ("of_devices", "expected"),
    [
        (
            "all",
            {
                "healthy": REPLICAS,
                "info": REPLICAS,
                "unhealthy_reason": ILL,
                "warning": ILL,
                "health_changes_total": REPLICAS,
                "xids_total": ILL,
            },
        ),
        (
            "physical",
            {
                "healthy": {"GPU-1", "GPU-2"},
                "info": {"GPU-1", "GPU-2"},
                "unhealthy_reason": {"GPU-1"},
                "warning": {"GPU-1"},
                "health_changes_total": {"GPU-1", "GPU-2"},
                "xids_total": {"GPU-1"},
            },
        ),
        (
            "faults",
            {
                "unhealthy_reason": {"GPU-1"},
                "warning": {"GPU-1"},
                "health_changes_total": {"GPU-1"},
                "xids_total": {"GPU-1"},
            },
        ),
        ("none", {}),
    ],
)
def test_devices_have_the_series_that_the_configuration_asks_for(instance, of_devices, expected):
    """What a resource has is counted all the same, replica by replica, as the kubelet does."""
    instance.put(SHARED)
    instance.count("scanner", counting)
    show(instance, of_devices)
    instance.start()

    metrics = instance.metrics()

    assert ids(metrics) == expected
    assert metrics['devherd_devices{health="Healthy",resource_name="a.b/shared"}'] == 3
    assert metrics['devherd_devices{health="Unhealthy",resource_name="a.b/shared"}'] == 3
    assert {value for series, value in metrics.items() if "health_changes" in series and "GPU-1" in series} <= {5}
    assert {value for series, value in metrics.items() if "xids" in series} <= {2}


def test_a_physical_device_is_held_once_by_each_container_that_has_replicas_of_it():
    """Two series of the same name and labels would make Prometheus refuse the whole scrape."""
    (allocated,) = (
        family for family in families(Herd([SHARED]), HELD, "physical") if family.name == "devherd_device_allocated"
    )
    assert [(labels["device_id"], labels["pod"]) for _, labels, _ in allocated.samples] == [
        ("GPU-1", "one"),
        ("GPU-1", "two"),
    ]


def test_a_reload_changes_which_devices_have_series(instance):
    """SIGHUP is what the supervisor sends after one."""
    instance.put(FPGA)
    instance.start()
    assert ids(instance.metrics())["healthy"] == {"dfl-port.0", "dfl-port.1"}

    show(instance, "faults")
    os.kill(instance.exporter_pid, signal.SIGHUP)

    eventually(lambda: "healthy" not in ids(instance.metrics()), "the series go")
    assert ids(instance.metrics()) == {"unhealthy_reason": {"dfl-port.1"}, "warning": {"dfl-port.1"}}
