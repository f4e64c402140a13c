"""A node that boots: runtime and run directory are empty, kubelet and devherd start anew, the manifests are there.

The kubelet admits static pods some 70 ms after it takes registrations, and a pod that it refuses then stays refused
(kubernetes#125579). devherd can win that race only when it is there first; no plugin can win it from behind.
"""

import shutil

import pytest

CRYPTO = "fpga.intel.com/af-695.d84.aVKNtusxV3qMNmj5-qCB9thCTcSko8QT-J5DNoP5BAs"
REFUSED = "Pod was rejected: Allocate failed due to no healthy devices present; cannot allocate unhealthy devices"
BOOTS = 10


@pytest.fixture
def booting_node(whole_node):
    """A node on which a static pod had two FPGAs, and whose runtime is up again and knows of nothing."""
    whole_node.start("fpga-8")
    whole_node.until_allocatable(CRYPTO, 4)
    pod = whole_node.static_pod("a", {CRYPTO: 2})
    whole_node.running(pod)
    switch_off_and_on(whole_node)
    return whole_node, pod


def switch_off_and_on(node):
    """Everything has stopped and nothing is started yet but the runtime, which knows of no container."""
    node.herd.stop()
    node.kubelet.stop()
    node.runtime.stop()
    shutil.rmtree(node.directory / "run/devherd")
    node.start_runtime()


def test_a_pod_admitted_before_devherd_is_there_is_refused_and_stays_so(booting_node):
    """It does not run without its devices, for the checkpoint knows of them; once devherd is there, others get them."""
    node, pod = booting_node
    node.start_kubelet()
    assert phase_of(node, pod) == "Failed"
    status = node.pods()[pod]["status"]
    assert status["reason"] == "UnexpectedAdmissionError"
    assert status["message"].startswith(REFUSED)
    node.start_herd()
    node.until_allocatable(CRYPTO, 4)
    assert node.pods()[pod]["status"]["phase"] == "Failed"
    check_devices(node, node.static_pod("b", {CRYPTO: 2}))


def test_a_pod_admitted_when_devherd_was_ready_before_the_kubelet_has_its_devices(booting_node):
    """In one boot of ten at least: on a busy machine the kubelet may be first. It never runs without its devices."""
    node, pod = booting_node
    for _ in range(BOOTS):
        node.start_herd_as_unit()
        node.start_kubelet()
        node.until_allocatable(CRYPTO, 4)
        if phase_of(node, pod) == "Running":
            check_devices(node, pod)
            return
        assert node.pods()[pod]["status"]["message"].startswith(REFUSED)
        assert node.runtime.containers(pod) == []
        switch_off_and_on(node)
    pytest.fail(f"refused in each of {BOOTS} boots\n{node.ends_of_logs()}")


def phase_of(node, pod):
    """Running or Failed, once the kubelet has admitted or refused it."""

    def decided():
        phase = node.pods()[pod]["status"]["phase"]
        return phase if phase in {"Running", "Failed"} else None

    return node.eventually(decided, f"{pod} runs or is refused")


def check_devices(node, pod):
    """It runs with what scan says of the devices that it holds."""
    assert node.running(pod).given == node.as_scanned(pod)
    assert len(node.held(pod)["main"][CRYPTO]) == 2
