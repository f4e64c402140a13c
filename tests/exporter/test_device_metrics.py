"""Which devices have series of their own: all, each physical one once, those with trouble, or none."""

import os
import re
import signal

import pytest
from exporter_instance import eventually, samples_of
from hypothesis import given
from hypothesis import strategies as st
from test_metrics_page import FPGA

from devherd import spool
from devherd.config.resolved import ResolvedConfig, read_resolved, write_resolved
from devherd.config.sections import ExporterOptions
from devherd.counters import BY_THE_SCANNER, HEALTH_CHANGES, XIDS, Counters
from devherd.exporter import declarations
from devherd.exporter.device_series import Kept, device_families
from devherd.exporter.metrics import counter_families
from devherd.instance.read import InstanceState
from devherd.instance.read import read_instance as instance_of
from devherd.proto import health_pb2, spool_pb2
from devherd.proto.spool_pb2 import Device, Offer
from devherd.settings import Settings

SHARED = Offer(
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
        counters.add(HEALTH_CHANGES, SHARED.name, f"GPU-1::{number}", amount=5)
        counters.add(XIDS, SHARED.name, f"GPU-1::{number}", "79", amount=2)


def show(instance, of_devices):
    """Leave the configuration as the loader does."""
    config = read_resolved(instance.run_dir / "config.json")
    exporter = ExporterOptions(device_metrics=of_devices)
    write_resolved(instance.run_dir / "config.json", ResolvedConfig(common=config.common, exporter=exporter))


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
                "health_changes_total": {"GPU-1", "GPU-2"},
                "xids_total": {"GPU-1"},
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
    allocated = samples_of(device_families(InstanceState([SHARED]), HELD, "physical"))["devherd_device_allocated"]
    assert [(sample.labels["device_id"], sample.labels["pod"]) for sample in allocated] == [
        ("GPU-1", "one"),
        ("GPU-1", "two"),
    ]


@pytest.mark.parametrize("of_devices", ["all", "physical", "faults", "none"])
def test_allocated_replicas_are_counted_as_the_kubelet_counts_them(of_devices):
    """So that they can be taken from `devherd_devices`; nothing is said while the kubelet does not answer."""

    def allocated(held):
        samples = samples_of(device_families(InstanceState([SHARED]), held, of_devices))["devherd_devices_allocated"]
        return {sample.labels["health"]: sample.value for sample in samples}

    assert allocated(HELD | {(SHARED.name, "GPU-2::1"): TWO}) == {"Healthy": 1, "Unhealthy": 3}
    assert allocated({}) == {"Healthy": 0, "Unhealthy": 0}
    assert allocated(None) == {}


def test_a_node_with_shared_devices_has_few_series_more_than_one_without():
    """8 GPUs, each for ten containers: once 833 series."""
    gpus = [Device(id=f"GPU-{number}") for number in range(8)]
    shared = [Device(id=gpu.id, replicas=10) for gpu in gpus]

    def series(devices, of_devices="physical"):
        herd = InstanceState([Offer(name="a.b/gpu", vendor="nvidia", devices=devices)])
        families = [*device_families(herd, {}, of_devices), *counter_families(herd, of_devices)]
        return sum(map(len, samples_of(families).values()))

    assert series(shared) == series(gpus)
    assert series(shared, "all") == series(gpus) + 2 * 8 * 9, "only health and facts are said of each replica"


@pytest.mark.parametrize("of_devices", ["all", "physical", "faults", "none"])
def test_a_lost_device_has_its_series_with_every_setting_for_as_long_as_it_is_lost(of_devices):
    """Few series, and the ones that an alert needs most; nothing else has a device that no list has any more."""
    lost = health_pb2.LostDevice(
        vendor="nvidia",
        device="GPU-9",
        resource_name="nvidia.com/gpu",
        pci_address="0000:83:00.0",
        slot="7",
        serial="1565023018293",
        model="H100",
    )
    families = samples_of(device_families(InstanceState(lost=[lost]), None, of_devices))
    [sample] = families["devherd_device_missing"]
    assert (sample.labels, sample.value) == (
        {
            "resource_name": "nvidia.com/gpu",
            "device_id": "GPU-9",
            "vendor": "nvidia",
            "model": "H100",
            "pci_address": "0000:83:00.0",
            "slot": "7",
            "serial": "1565023018293",
        },
        1,
    )
    assert not any(samples for name, samples in families.items() if name != "devherd_device_missing")


COUNTS = [
    health_pb2.Count(pci_address="0000:3b:00.0", name="ecc-errors", kind="corrected", number=70),
    health_pb2.Count(pci_address="0000:3b:00.0", name="pcie-replays", number=5),
    health_pb2.Count(pci_address="0000:5e:00.0", name="pcie-replays", number=6),
    health_pb2.Count(pci_address="0000:3b:00.0", name="of-tomorrow", number=7),
]


@pytest.mark.parametrize(
    ("of_devices", "ids_shown"),
    [("all", {"MIG-1", "MIG-2"}), ("physical", {"MIG-1", "MIG-2"}), ("faults", set()), ("none", set())],
)
def test_what_a_card_has_counted_is_shown_for_each_device_on_it(of_devices, ids_shown):
    """Of a MIG device, those of its GPU; nothing of cards that no resource has, nor in words of tomorrow."""
    place = {"pci_address": "0000:3b:00.0"}
    parts = [Device(id="MIG-1", attributes=place), Device(id="MIG-2", attributes=place, replicas=2)]
    herd = InstanceState([Offer(name="a.b/mig", vendor="nvidia", devices=parts)], counts=COUNTS)
    samples = {
        (sample.name, sample.labels["device_id"], sample.labels.get("kind"), sample.value)
        for family in device_families(herd, None, of_devices)
        if family.name in {each.name for each in declarations.DEVICE_COUNTS.values()}
        for sample in family.samples
    }
    expected = {("devherd_device_ecc_errors_total", "corrected", 70), ("devherd_device_pcie_replays_total", None, 5)}
    assert samples == {(name, one, kind, value) for name, kind, value in expected for one in ids_shown}


def test_what_ports_and_blocks_count_is_shown_by_these_and_for_no_other_device_of_the_function():
    """Two RDMA devices of one PCI function are no two series of one name."""
    place = {"pci_address": "0000:3b:00.0"}
    devices = [Device(id=name, attributes={**place, "ibdev": name}) for name in ("mlx5_0", "mlx5_1")]
    counts = [
        health_pb2.Count(**place, ibdev=name, part="1", name="rdma-errors", kind="symbol_error", number=number)
        for number, name in enumerate(("mlx5_0", "mlx5_1"))
    ]
    counts.append(health_pb2.Count(**place, part="umc", name="ras-errors", kind="corrected", number=9))
    found = device_families(
        InstanceState([Offer(name="rdma/hca", vendor="rdma", devices=devices)], counts=counts), None, "all"
    )
    samples = {
        family.name: [(sample.labels, sample.value) for sample in family.samples]
        for family in found
        if family.name.endswith("_errors")
    }
    assert samples == {
        "devherd_device_rdma_errors": [
            ({"resource_name": "rdma/hca", "device_id": name, "port": "1", "kind": "symbol_error"}, number)
            for number, name in enumerate(("mlx5_0", "mlx5_1"))
        ],
        "devherd_device_ras_errors": [
            ({"resource_name": "rdma/hca", "device_id": name, "block": "umc", "kind": "corrected"}, 9)
            for name in ("mlx5_0", "mlx5_1")
        ],
    }


def test_a_function_that_devices_of_two_vendors_are_on_counts_once():
    """Each of them is looked at, and both see the same number."""
    error = health_pb2.Count(pci_address="0000:3b:00.0", part="port", name="pci-errors", kind="fatal", number=2)
    device = Device(id="mlx5_0", attributes={"pci_address": "0000:3b:00.0", "ibdev": "mlx5_0"})
    herd = InstanceState([Offer(name="rdma/hca", vendor="rdma", devices=[device])], counts=[error, error])
    samples = [
        (sample.labels, sample.value)
        for family in device_families(herd, None, "all")
        if family.name == "devherd_device_pci_errors"
        for sample in family.samples
    ]
    assert samples == [({"resource_name": "rdma/hca", "device_id": "mlx5_0", "end": "port", "kind": "fatal"}, 2)]


def test_numbers_of_a_source_that_fails_or_of_another_boot_are_not_shown(tmp_path):
    """They would look like those of today."""
    settings = Settings(run_dir=tmp_path)
    file = spool.path_of(settings.findings_directory, "nvml")
    file.parent.mkdir(parents=True)
    spool.write(settings.verdicts_file, health_pb2.Verdicts(boot_id="now"))
    shown = []
    for boot, failed in (("now", ""), ("now", "NVML hangs"), ("before", "")):
        spool.write(file, health_pb2.Findings(source="nvml", boot_id=boot, failed=failed, counts=COUNTS))
        shown.append(len(instance_of(settings).counts))
    assert shown == [len(COUNTS), 0, 0]


def test_what_the_scan_core_counted_in_another_boot_is_not_shown(tmp_path):
    """The scanner that writes it anew may not have looked yet."""
    settings = Settings(run_dir=tmp_path)
    spool.write(settings.verdicts_file, health_pb2.Verdicts(boot_id="now"))
    shown = []
    for boot in ("now", "before"):
        spool.write(settings.counts_file, health_pb2.Counts(boot_id=boot, counts=COUNTS))
        shown.append(len(instance_of(settings).counts))
    assert shown == [len(COUNTS), 0]


@pytest.mark.parametrize(("of_devices", "shown"), [("physical", {"1": 1, "2": 0}), ("faults", {"1": 1}), ("none", {})])
def test_of_devices_that_are_held_elsewhere_the_alert_has_its_series_where_only_faults_are_shown(of_devices, shown):
    ledger = spool_pb2.Ledger(devices=[spool_pb2.LedgerDevice(vendor="nvidia", device="1", is_held_elsewhere=True)])
    offer = Offer(name="a.b/x", devices=[Device(id=each, vendor="nvidia") for each in ("1", "2")])
    found = samples_of(device_families(InstanceState([offer], ledger=ledger), None, of_devices))
    held = found.get("devherd_device_held_elsewhere", [])
    assert {sample.labels["device_id"]: sample.value for sample in held} == shown
    assert bool(found.get("devherd_device_open_processes")) == (of_devices == "physical")


def test_a_reload_changes_which_devices_have_series(instance):
    """SIGHUP is what the supervisor sends after one."""
    instance.put(FPGA)
    instance.start()
    assert ids(instance.metrics())["healthy"] == {"dfl-port.0", "dfl-port.1"}

    show(instance, "faults")
    os.kill(instance.exporter_pid, signal.SIGHUP)

    eventually(lambda: "healthy" not in ids(instance.metrics()), "the series go")
    assert ids(instance.metrics()) == {"unhealthy_reason": {"dfl-port.1"}, "warning": {"dfl-port.1"}}


DEVICE = st.builds(
    Device,
    id=st.sampled_from(["GPU-1", "GPU-2", "GPU-3"]),
    vendor=st.just("nvidia"),
    replicas=st.sampled_from([0, 2]),
    reasons=st.sampled_from([[], ["xid"]]),
    attributes=st.sampled_from([{}, {"model": "H200"}]),
)
OFFERS = st.lists(
    st.builds(
        Offer,
        name=st.sampled_from(["a.b/x", "a.b/y"]),
        devices=st.lists(DEVICE, max_size=3, unique_by=lambda one: one.id),
    ),
    max_size=2,
    unique_by=lambda one: one.name,
)
HOLDERS = st.sampled_from([None, {}, {("a.b/x", "GPU-1"): ONE}, {("a.b/x", "GPU-1"): TWO, ("a.b/y", "GPU-2::1"): ONE}])
FOUND = st.lists(
    st.builds(
        lambda device, reason, is_over: health_pb2.Verdict(
            vendor="nvidia", device=device, held=[health_pb2.Held(source="s", reason=reason, is_over=is_over)]
        ),
        st.sampled_from(["GPU-1", "GPU-2"]),
        st.sampled_from(["xid", "gone"]),
        st.booleans(),
    ),
    max_size=2,
)
COUNTED = st.lists(st.tuples(st.sampled_from(["GPU-1", "GPU-2::0", "GPU-9"]), st.integers(1, 3)), max_size=3)
SCRAPES = st.lists(st.tuples(st.none() | OFFERS, HOLDERS, FOUND, COUNTED), max_size=6)


def test_a_device_that_changes_costs_no_lines_but_its_own():
    """What the other devices of its resource had at the last scrape is used again, also from another reading."""
    before = InstanceState([SHARED], version=1)
    other = Offer.FromString(SHARED.SerializeToString(deterministic=True))
    del other.devices[0].reasons[:]
    kept = Kept()
    [(_, [_, second])] = kept.resources(before, "physical")
    [(_, [changed, again])] = kept.resources(InstanceState([other], version=2), "physical")

    assert again is second
    assert changed.healthy == 'devherd_device_healthy{device_id="GPU-1",resource_name="a.b/shared"} 1.0\n'
    assert not changed.reasons


@given(scrapes=SCRAPES, setting=st.sampled_from(["all", "physical", "faults", "none"]))
def test_what_is_kept_from_scrape_to_scrape_is_what_would_be_made_from_nothing(scrapes, setting):
    """Ten thousand devices are the same at the next scrape; whatever changes between two shows at the second."""
    kept, version, offers = Kept(), 1, []
    for others, holders, verdicts, counted in scrapes:
        if others is not None:
            offers, version = others, version + 1
        counters = Counters(BY_THE_SCANNER)
        for device_id, times in counted:
            counters.add(HEALTH_CHANGES, "a.b/x", device_id, amount=times)
        herd = InstanceState(resources=offers, version=version, verdicts=verdicts, scanner_counters=counters.series())
        again = [*device_families(herd, holders, setting, kept), *counter_families(herd, setting, kept)]
        assert again == [*device_families(herd, holders, setting), *counter_families(herd, setting)]
