"""A whole cluster of one node: what the API server has of devherd's devices, and what happens to the pods."""

import shutil
import signal

import pytest
from control_plane import ControlPlane

from devherd_sim.node import faults

CRYPTO = "fpga.intel.com/af-695.d84.aVKNtusxV3qMNmj5-qCB9thCTcSko8QT-J5DNoP5BAs"
CODEC = "fpga.intel.com/af-695.f7d.aVKNtusxV3qMNmj5-qCB9vffQFy9es9yIvFEsLk6zRg"


@pytest.fixture
def cluster(whole_node):
    """A cluster whose node has eight FPGAs, four of each accelerator function."""
    control_plane = ControlPlane(whole_node)
    whole_node.start("fpga-8")
    control_plane.until_ready()
    control_plane.until_numbers(CRYPTO, 4, 4)
    control_plane.until_numbers(CODEC, 4, 4)
    return control_plane


def test_a_scheduled_pod_gets_its_devices_as_scan_says(cluster):
    """CreateContainer, PodResources and devherd's own metrics agree about which they are."""
    node = cluster.node
    cluster.create("both", {CRYPTO: 2, CODEC: 1})
    container = node.running("both")
    held = node.held("both")["main"]
    assert {resource: len(ids) for resource, ids in held.items()} == {CRYPTO: 2, CODEC: 1}
    assert container.given == node.as_scanned("both")
    wanted = {(resource, each, "default", "both", "main") for resource, ids in held.items() for each in ids}
    node.eventually(lambda: node.allocated_in_metrics() == wanted, f"devherd_device_allocated has {wanted}")
    assert cluster.numbers(CRYPTO) == (4, 4)


def test_one_pod_too_many_is_pending_until_another_is_gone(cluster):
    """The scheduler counts with what the node says of itself."""
    cluster.create("first", {CRYPTO: 3})
    cluster.node.running("first")
    cluster.create("second", {CRYPTO: 2})
    cluster.node.eventually(lambda: f"Insufficient {CRYPTO}" in cluster.why_not_scheduled("second"), "no room for it")
    assert cluster.pod("second")["status"]["phase"] == "Pending"
    cluster.delete("first")
    cluster.node.running("second")
    assert len(cluster.node.held("second")["main"][CRYPTO]) == 2


@pytest.mark.parametrize("fault", ["fpga-errors", "node"])
def test_a_device_that_fails_is_seen_in_the_node_and_in_its_pod_until_it_is_well(cluster, fault):
    """Allocatable is lowered; `allocatedResourcesStatus` says it of the pod that holds the device, and of no other."""
    cluster.create("sick", {CRYPTO: 1})
    cluster.until_running("sick")
    cluster.create("well", {CRYPTO: 1})
    cluster.until_running("well")
    (device,), (other,) = (cluster.node.held(name)["main"][CRYPTO] for name in ("sick", "well"))
    faults.inject(cluster.node.node, fault, device)
    cluster.until_numbers(CRYPTO, 4, 3)
    cluster.until_health("sick", {CRYPTO: {device: "Unhealthy"}})
    assert cluster.health("well") in ({}, {CRYPTO: {other: "Healthy"}})
    assert cluster.numbers(CODEC) == (4, 4)
    faults.clear(cluster.node.node, fault, device)
    cluster.until_numbers(CRYPTO, 4, 4)
    cluster.until_health("sick", {CRYPTO: {device: "Healthy"}})
    assert [cluster.pod(name)["status"]["phase"] for name in ("sick", "well")] == ["Running", "Running"]


@pytest.mark.parametrize(
    ("number", "run_dir"),
    [(signal.SIGTERM, "devherd"), (signal.SIGTERM, "devherd-new"), (signal.SIGKILL, "devherd")],
    ids=["restart", "upgrade", "crash"],
)
def test_running_pods_lose_nothing_when_devherd_ends_and_another_starts(cluster, number, run_dir):
    """Restart, upgrade (the new one has a run directory of its own), crash: same containers, same devices."""
    node = cluster.node
    pods = {"a": {CRYPTO: 1}, "b": {CRYPTO: 2, CODEC: 1}}
    for name, limits in pods.items():
        cluster.create(name, limits)
    before = {name: cluster.until_running(name) for name in pods}
    held = {name: node.held(name) for name in pods}
    allocated = node.eventually(
        lambda: len(node.allocated_in_metrics()) == 4 and node.allocated_in_metrics(), "4 are held"
    )
    node.herd.stop(number)
    cluster.until_numbers(CRYPTO, 4, 0)
    node.start_herd(run_dir)
    cluster.until_numbers(CRYPTO, 4, 4)
    cluster.until_numbers(CODEC, 4, 4)
    node.eventually(lambda: node.allocated_in_metrics() == allocated, "devherd knows again who holds what")
    assert {name: cluster.until_running(name) for name in pods} == before
    assert {name: node.held(name) for name in pods} == held
    cluster.create("rest", {CRYPTO: 1})
    cluster.until_running("rest")
    assert len({each for name in ("a", "b", "rest") for each in node.held(name)["main"][CRYPTO]}) == 4


def test_a_pod_that_was_scheduled_before_its_node_booted_has_devices_again_or_is_refused(cluster):
    """The kubelet's choice, by milliseconds; never does it run without, and the next pod gets what it asks for."""
    node = cluster.node
    cluster.create("a", {CRYPTO: 3})
    cluster.until_running("a")
    for program in (node.herd, node.kubelet, node.runtime):
        program.stop()
    shutil.rmtree(node.directory / "run/devherd")
    node.start_runtime()
    node.start_herd_as_unit()
    node.start_kubelet()
    node.until_allocatable(CRYPTO, 4)
    node.eventually(
        lambda: node.runtime.containers("a", "RUNNING") or cluster.has_failed("a"), "the kubelet has decided"
    )
    if cluster.has_failed("a"):
        assert cluster.pod("a")["status"]["reason"] == "UnexpectedAdmissionError"
        assert node.runtime.containers("a") == []
        cluster.create("b", {CRYPTO: 3})
    name = "b" if cluster.has_failed("a") else "a"
    assert node.running(name).given == node.as_scanned(name)
    assert len(node.held(name)["main"][CRYPTO]) == 3


def test_running_pods_lose_nothing_when_the_kubelet_is_killed(cluster):
    """It registers with the next one, and the node's numbers are as before."""
    cluster.create("a", {CRYPTO: 3})
    before, held = cluster.until_running("a"), cluster.node.held("a")
    cluster.node.kubelet.stop(signal.SIGKILL)
    cluster.node.start_kubelet()
    cluster.node.until_allocatable(CRYPTO, 4)
    cluster.until_numbers(CRYPTO, 4, 4)
    cluster.create("rest", {CRYPTO: 1})
    cluster.until_running("rest")
    assert (cluster.until_running("a"), cluster.node.held("a")) == (before, held)
