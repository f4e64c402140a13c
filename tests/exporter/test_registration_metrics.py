"""Why a resource is not registered, and what a scan could not look at: what an alert tells apart."""

import socket

import pytest
from prometheus_client.parser import text_string_to_metric_families
from test_metrics_page import SIMULATED, small_herd

from devherd.counters import BY_RESOURCE_CHILDREN, BY_THE_SCANNER, XIDS
from devherd.exporter import declarations
from devherd.proto.spool_pb2 import Child, Problem


def states(instance):
    """The states that hold."""
    return [
        series.partition('state="')[2].removesuffix('"}')
        for series, value in instance.metrics().items()
        if series.startswith("devherd_registration_state") and value
    ]


@pytest.fixture
def kubelet_socket(instance):
    """A kubelet that listens and answers nothing."""
    path = instance.kubelet_dir / "device-plugins" / "kubelet.sock"
    path.parent.mkdir(parents=True)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen(64)
        yield path


def test_a_kubelet_that_is_away_is_not_one_that_does_not_accept(instance, kubelet_socket):
    """One means to look at the kubelet, the other at what it says."""
    instance.put(SIMULATED)
    instance.put_state(SIMULATED.name, registered=False, detail="the kubelet refused: no")
    instance.start()
    assert states(instance) == ["not-accepted"]

    kubelet_socket.unlink()
    assert states(instance) == ["kubelet-away"]

    instance.put_children(Child(name="resource:example.com_gpu", state="BACKOFF"))
    assert states(instance) == ["child-down"]

    instance.put_children(Child(name="resource:example.com_gpu", state="RUNNING"))
    instance.put_state(SIMULATED.name, registered=True)
    assert states(instance) == ["registered"]


def test_a_kubelet_that_looks_for_plugins_itself_need_not_show_its_socket(instance):
    """It is then never said to be away."""
    instance.configure("127.0.0.1:0", registration="plugins_registry")
    instance.put(SIMULATED)
    instance.put_state(SIMULATED.name, registered=False, detail="waiting")
    instance.start()
    assert states(instance) == ["not-accepted"]


def test_scan_problems_are_listed_with_their_paths_and_a_flood_of_them_only_counted(instance):
    """A path is a label: a host on which everything is wrong must not fill Prometheus."""
    instance.put_scan(*(Problem(vendor="amd", path=f"/sys/{number}", error="no") for number in range(70)))
    instance.start()

    metrics = instance.metrics()

    assert metrics['devherd_scan_problems{vendor="amd"}'] == 70
    assert len([series for series in metrics if series.startswith("devherd_scan_problem_info")]) == 50


def test_every_family_has_the_labels_that_it_is_declared_with(instance):
    """docs/metrics.md is made of these declarations."""
    small_herd(instance)
    instance.count("scanner", lambda counters: counters.add(XIDS, SIMULATED.name, "0", "79"))
    counters = (*BY_RESOURCE_CHILDREN, *BY_THE_SCANNER)
    declared = {each.name: set(each.labels) for each in (*declarations.ALL, *counters)}

    found = {family.name: family for family in text_string_to_metric_families(instance.ask("/metrics")[2])}

    assert found.keys() - declared.keys() == set()
    labels = {
        name: {label for sample in family.samples for label in sample.labels} - {"le"}
        for name, family in found.items()
        if family.samples
    }
    assert labels == {name: declared[name] for name in labels}
    assert declared.keys() - labels.keys() == {
        "devherd_device_allocated",
        "devherd_device_held_elsewhere",
        "devherd_device_open_processes",
        "devherd_device_missing",
        "devherd_devices_allocated",
        "devherd_preferred_allocation_duration_seconds",
        *(each.name for each in declarations.DEVICE_COUNTS.values()),  # of cards that are not there
    }
