"""/metrics: the contract's names, the truth of the run directory, and counters that outlive their process."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from exporter_instance import samples_of
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from devherd import spool
from devherd.counters import (
    ALLOCATION_DURATION,
    ALLOCATIONS,
    FINDINGS,
    HEALTH_CHANGES,
    KUBELET_RESTARTS,
    SCAN_FAILURES,
    SCANS,
)
from devherd.exporter.device_series import device_families
from devherd.instance.read import InstanceState
from devherd.proto.health_pb2 import IGNORE, WARN, Held, SourceState, Verdict
from devherd.proto.spool_pb2 import Child, Device, Offer, Problem, Series

GOLDEN = Path(__file__).with_name("metrics.txt")
WHAT_PASSES = "process_[a-z_]+|devherd_child_(?:last_heartbeat|resident_memory|cpu|open_fds|start_time)[a-z_]*"

FPGA = Offer(
    name="fpga.intel.com/af-695.d84.aVKNtusxV3qMNmj5-qCB9thCTcSko8QT-J5DNoP5BAs",
    vendor="intel-fpga",
    devices=[
        Device(
            id="dfl-port.0",
            numa_nodes=[1],
            attributes={"pci_address": "0000:81:00.0", "afu_id": "d8424dc4a4a3c413f89e433683f9040b"},
        ),
        Device(
            id="dfl-port.1",
            vendor="intel-fpga",
            reasons=["fme-error", "port-error"],
            warnings=["pci-aer"],
            attributes={"afu_id": 'with "quotes" and \\'},
        ),
    ],
)
ILL = Verdict(
    vendor="intel-fpga",
    device="dfl-port.1",
    held=[
        Held(source="fpga-errors", reason="port-error", file="/sys/errors"),
        Held(source="fpga-errors", reason="port-error", file="/sys/first_error"),
        Held(source="pci-aer-nonfatal", reason="pci-aer", action=WARN),
        Held(source="kernel-log", reason="xid", action=IGNORE),
        Held(source="rdma-port", reason="port-down", is_waiting=True),
        Held(source="pci-aer-fatal", reason="pci-aer", is_over=True),
    ],
)
SIMULATED = Offer(
    name="example.com/gpu", vendor="simulated", devices=[Device(id="0", numa_nodes=[0, 1], vendor="other")]
)


def scanned(counters):
    """What a scanner has counted."""
    counters.add(SCANS, "intel-fpga", amount=3)
    counters.add(SCANS, "generic", amount=2)
    counters.add(SCAN_FAILURES, "generic", amount=0)
    counters.add(FINDINGS, "pci-aer-nonfatal", "pci-aer", amount=4)


def small_herd(instance):
    """A resource with a device in order and one that is not, a resource without a process, a restarted child."""
    instance.put(FPGA)
    instance.put(SIMULATED)
    instance.put_state(FPGA.name, registered=True, streams=1)
    instance.put_scan(Problem(vendor="intel-fpga", path="/sys/x", error="no"), period_seconds=30)
    instance.put_verdict(
        ILL,
        SourceState(source="nvml", failed="the driver is not loaded", last_report_timestamp_seconds=1_763_800_000),
        SourceState(source="kernel-log"),
    )
    instance.count("scanner", scanned)
    instance.count(
        f"resource:{FPGA.name.replace('/', '_')}",
        lambda counters: counters.observe(ALLOCATION_DURATION, 0.25, FPGA.name),
    )
    instance.start()
    instance.put_children(
        Child(name="scanner", heartbeat_slot=0, state="RUNNING", pid=1, restarts={"exit": 2}),
        Child(name="exporter", heartbeat_slot=1, state="RUNNING", pid=1),
        Child(name=f"resource:{FPGA.name.replace('/', '_')}", heartbeat_slot=2, state="RUNNING", pid=1),
        Child(name="resource:example.com_gpu", heartbeat_slot=3, state="BACKOFF", last_exit="signal 9"),
    )


def test_metrics_of_a_small_herd_are_as_written_down(instance):
    """Names, types, labels and values of the whole page; `UPDATE_GOLDEN=1` writes them down anew."""
    small_herd(instance)

    _, headers, page = instance.ask("/metrics")
    page = re.sub(rf"^({WHAT_PASSES})(\{{.*\}})? \S+$", r"\1\2 NOW", page, flags=re.MULTILINE)
    page = re.sub(r'version="[^"]+"', 'version="VERSION"', page)
    if "UPDATE_GOLDEN" in os.environ:
        GOLDEN.write_text(page)

    assert page == GOLDEN.read_text()
    assert headers["Content-Type"].startswith("text/plain; version=0.0.4")


def test_metrics_please_promtool(instance, tool):
    """Prometheus's own linter finds nothing to say."""
    command = [tool("promtool"), "check", "metrics"]
    small_herd(instance)

    page = instance.ask("/metrics")[2]
    outcome = subprocess.run(command, check=False, input=page, text=True, capture_output=True, timeout=60)

    assert (outcome.returncode, outcome.stdout, outcome.stderr) == (0, "", "")


def test_openmetrics_is_given_to_who_asks_for_it(instance):
    """Prometheus asks for OpenMetrics first; the same families come in that format."""
    small_herd(instance)

    _, headers, page = instance.ask("/metrics", Accept="application/openmetrics-text; version=1.0.0")
    families = {family.name: family for family in text_string_to_metric_families(page)}

    assert headers["Content-Type"].startswith("application/openmetrics-text; version=1.0.0")
    assert families["devherd_child_restarts"].type == "counter"
    assert families["devherd_allocation_duration_seconds"].type == "histogram"
    assert families["devherd_devices"].type == "gauge"


def test_counters_go_on_where_a_restarted_child_left_them(instance):
    """Two processes of the same child name, one after the other, count on the same series."""
    instance.put(SIMULATED)

    def counting(allocations, seconds):
        def count(counters):
            counters.add(ALLOCATIONS, SIMULATED.name, amount=allocations)
            counters.observe(ALLOCATION_DURATION, seconds, SIMULATED.name)

        return count

    instance.count("resource:example.com_gpu", counting(2, 0.5))
    instance.count("resource:example.com_gpu", counting(1, 5))
    instance.start()

    metrics = instance.metrics()

    assert metrics['devherd_allocations_total{resource_name="example.com/gpu"}'] == 3
    assert metrics['devherd_allocation_duration_seconds_bucket{le="0.3",resource_name="example.com/gpu"}'] == 0
    assert metrics['devherd_allocation_duration_seconds_bucket{le="1.0",resource_name="example.com/gpu"}'] == 1
    assert metrics['devherd_allocation_duration_seconds_count{resource_name="example.com/gpu"}'] == 2
    assert metrics['devherd_allocation_duration_seconds_sum{resource_name="example.com/gpu"}'] == 5.5


def test_a_restart_of_the_kubelet_counts_once_though_every_child_sees_it(instance):
    """The figure is that of the child that saw most."""
    for child, seen in (("resource:a.b_c", 3), ("resource:a.b_d", 3), ("resource:late.b_e", 1), ("resource:n.b_f", 0)):
        instance.count(child, lambda counters, seen=seen: counters.add(KUBELET_RESTARTS, amount=seen))
    instance.start()

    assert instance.metrics()["devherd_kubelet_restarts_total"] == 3


def test_series_of_what_is_gone_disappear(instance):
    """A device, then its whole resource: no gauge and no counter keeps naming them."""
    instance.put(FPGA)
    instance.count("scanner", lambda counters: counters.add(HEALTH_CHANGES, FPGA.name, "dfl-port.1", amount=4))
    instance.start()
    assert any('"dfl-port.1"' in series for series in instance.metrics())
    assert [value for series, value in instance.metrics().items() if "health_changes" in series] == [0, 4]

    instance.put(Offer(name=FPGA.name, devices=FPGA.devices[:1]))

    assert not any('"dfl-port.1"' in series for series in instance.metrics())
    assert any('"dfl-port.0"' in series for series in instance.metrics())

    instance.take_away(FPGA.name)

    assert not any(FPGA.name in series for series in instance.metrics())


def test_a_torn_state_file_costs_only_what_is_in_it(instance):
    """A file that a failing disk has spoilt, or one that another version has written, does not take the page down."""
    instance.put(SIMULATED)
    instance.count("resource:example.com_gpu", lambda counters: counters.add(ALLOCATIONS, SIMULATED.name))
    (instance.run_dir / "scanner.pb").write_bytes(b"\xff\xff\x00\x00")
    for key, content in (("empty", b""), ("torn", b"\x40\0\0 no message")):
        path = spool.path_of(instance.run_dir / "state", key)
        path.parent.mkdir()
        path.write_bytes(content)
    other = [Series(metric="devherd_allocations", labels=[SIMULATED.name, "more"], total=7)]
    other += [Series(metric="devherd_allocation_duration_seconds", labels=[SIMULATED.name], buckets=[1, 2])]
    other += [Series(metric="devherd_unheard_of", total=7)]
    instance.put_state("a.b/c", counters=other)
    instance.start()

    metrics = instance.metrics()

    assert metrics['devherd_allocations_total{resource_name="example.com/gpu"}'] == 1
    assert not any("unheard_of" in series or ("duration" in series and "gpu" in series) for series in metrics)


def test_a_resource_whose_child_is_dead_is_not_registered(instance):
    """What the child last said of itself does not count when the supervisor knows better."""
    instance.put(SIMULATED)
    instance.put_state(SIMULATED.name, registered=True, streams=1)
    instance.start()
    registered = 'devherd_registered{resource_name="example.com/gpu"}'
    assert instance.metrics()[registered] == 1

    instance.put_children(Child(name="resource:example.com_gpu", state="BACKOFF"))

    assert instance.metrics()[registered] == 0
    assert instance.metrics()['devherd_list_and_watch_streams{resource_name="example.com/gpu"}'] == 0


def test_an_empty_run_directory_is_no_error(instance):
    """The exporter may be up before the first scan is."""
    shutil.rmtree(instance.run_dir / "state")
    instance.start()

    status, _, page = instance.ask("/metrics")

    assert status == 200
    assert 'devherd_build_info{revision="0123abc",version=' in page


@pytest.mark.parametrize(
    ("vendor", "attributes", "model"),
    [
        ("nvidia", {"model": "NVIDIA H100 80GB HBM3", "device_id": "0x2330"}, "NVIDIA H100 80GB HBM3"),
        ("amd", {"product_name": "AMD Instinct MI210", "device_id": "0x740f"}, "AMD Instinct MI210"),
        ("amd", {"device_id": "0x6860"}, "0x6860"),
        ("intel-gpu", {"driver": "xe", "device_id": "0xe20b"}, "0xe20b"),
        ("xilinx-fpga", {"vbnv": "xilinx_u200_xdma_201830_2", "device_id": "0x5001"}, "xilinx_u200_xdma_201830_2"),
        ("rdma", {"hca_type": "MT4123", "device_id": "0x101b"}, "MT4123"),
        ("intel-fpga", {"afu_id": "d8424d", "interface_id": "69528d", "device_id": "0x0b30"}, "d8424d"),
        ("intel-fpga", {"interface_id": "69528d", "device_id": "0x0b30"}, "69528d"),
        ("generic", {"usb_id": "1a86:7523", "path": "/dev/ttyUSB0"}, "1a86:7523"),
        ("generic", {"path": "/dev/kvm"}, ""),
    ],
)
def test_the_label_model_has_each_vendors_best_word_for_what_a_device_is(vendor, attributes, model):
    """A card without a name, as AMD's older ones are, has its PCI device id; what is no hardware has nothing."""
    herd = InstanceState([Offer(name="a/b", vendor=vendor, devices=[Device(id="0", attributes=attributes)])])
    (sample,) = samples_of(device_families(herd, None))["devherd_device_info"]
    assert sample.labels["model"] == model
