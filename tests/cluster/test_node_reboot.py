"""A node that boots: runtime and run directory are empty, kubelet and devherd start anew, the manifests are there.

The kubelet admits static pods some 70 ms after it takes registrations, and a pod that it refuses then stays refused
(kubernetes#125579). devherd can win that race only when it is there first; no plugin can win it from behind.
"""

import shutil

import pytest

CRYPTO = "fpga.intel.com/af-695.d84.aVKNtusxV3qMNmj5-qCB9thCTcSko8QT-J5DNoP5BAs"
REFUSED = "Pod was rejected: Allocate failed due to no healthy devices present; cannot allocate unhealthy devices"


@pytest.fixture
def booting_node(whole_node):
    """A node on which a static pod had two FPGAs, and whose runtime is up again and knows of nothing."""
    whole_node.start("fpga-8")
    whole_node.until_allocatable(CRYPTO, 4)
    pod = whole_node.static_pod("a", {CRYPTO: 2})
    whole_node.running(pod)
    whole_node.herd.stop()
    whole_node.kubelet.stop()
    whole_node.runtime.stop()
    shutil.rmtree(whole_node.directory / "run/devherd")
    whole_node.start_runtime()
    return whole_node, pod


def test_a_pod_admitted_before_devherd_is_there_is_refused_and_stays_so(booting_node):
    """It does not run without its devices, for the checkpoint knows of them; once devherd is there, others get them."""
    node, pod = booting_node
    node.start_kubelet()
    node.eventually(lambda: node.pods().get(pod, {}).get("status", {}).get("phase") == "Failed", "the pod has failed")
    status = node.pods()[pod]["status"]
    assert status["reason"] == "UnexpectedAdmissionError"
    assert status["message"].startswith(REFUSED)
    node.start_herd()
    node.until_allocatable(CRYPTO, 4)
    assert node.pods()[pod]["status"]["phase"] == "Failed"
    check_devices(node, node.static_pod("b", {CRYPTO: 2}))


def test_a_pod_admitted_when_devherd_was_ready_before_the_kubelet_has_its_devices_or_is_refused(booting_node):
    """Refused only where the machine is too busy; it never runs without, and the devices are there in either case."""
    node, pod = booting_node
    node.start_herd_as_unit()
    node.start_kubelet()
    node.until_allocatable(CRYPTO, 4)
    node.eventually(lambda: node.pods().get(pod, {}).get("status", {}).get("phase") in {"Running", "Failed"}, "decided")
    if node.pods()[pod]["status"]["phase"] == "Running":
        check_devices(node, pod)
    else:
        assert node.pods()[pod]["status"]["message"].startswith(REFUSED)
        assert node.runtime.containers(pod) == []
        check_devices(node, node.static_pod("b", {CRYPTO: 2}))


def check_devices(node, pod):
    """It runs with what scan says of the devices that it holds."""
    assert node.running(pod).given == node.as_scanned(pod)
    assert len(node.held(pod)["main"][CRYPTO]) == 2
