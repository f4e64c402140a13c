"""Pods with claims in a whole cluster of one node: what they get of devherd, and what they notice of its faults.

The kubelet looks again at a pod whose claim could not be prepared after a minute: nothing here takes that long.
"""

import os
import shutil
import signal
import time

import pytest
from control_plane import PODS
from dra_cluster import AS_BY_DEFAULT, CLAIMS, COUNTS, ENVIRONMENT, GPU, RESOURCE, SIMULATED, one_claim, render

KILLS = int(os.environ.get("DEVHERD_TEST_KILLS", "2"))
"""Of each process, with a pod each."""
LATE_SECONDS = 3.0
TICK_SECONDS = 0.1


def test_a_pod_with_a_claim_gets_the_devices_that_the_scheduler_chose(dra):
    """By CDI names that stand in specs; nothing else reaches the container, and the record ends with the pod."""
    devices = one_claim(dra, count=2)
    assert len(devices) == 2
    container = dra.node.running("a")
    assert (container.given["nodes"], container.given["mounts"]) == ([], [])
    assert set(dra.given("a")[0]) >= {f"/dev/{render(each)}" for each in devices}
    assert dra.given("a")[0] == dra.wanted("a")
    assert dra.prepared() == ["a"]
    dra.end("a")
    dra.node.eventually(lambda: dra.prepared() == [], "nothing is prepared")
    dra.node.eventually(lambda: dra.allocated("a") == [], "the claim is free")


def test_a_pod_of_a_template_has_a_claim_of_its_own_which_is_gone_with_it(dra):
    dra.template("one", SIMULATED)
    for name in ("a", "b"):
        dra.with_claim(name, template="one")
        dra.node.running(name)
    claims = [dra.claim_of(name) for name in ("a", "b")]
    assert len({device for claim in claims for _, device in dra.allocated(claim)}) == 2
    assert dra.prepared() == sorted(claims)
    dra.end("a", "b")
    dra.node.eventually(lambda: dra.get(CLAIMS)["items"] == [], "the claims are gone")


@pytest.mark.parametrize("driver", [GPU, SIMULATED])
def test_a_pod_that_asks_for_a_number_of_a_resource_gets_devices_of_dra(dra, driver):
    """The name is the device plugin's of before: `amd.com/gpu: 2`. The node's status has none of it."""
    assert dra.numbers(RESOURCE[driver]) == (-1, -1)
    dra.create("a", {RESOURCE[driver]: 2})
    dra.node.running("a")
    claim = dra.claim_of("a")
    assert [each for each, _ in dra.allocated(claim)] == [driver, driver]
    assert dra.given("a")[0] == dra.wanted(claim)
    dra.end("a")


def test_pods_that_share_a_claim_have_the_same_device(dra):
    """And the last of them frees it."""
    one_claim(dra)
    dra.with_claim("b", "a")
    dra.node.running("b")
    assert dra.given("a") == dra.given("b")
    dra.end("a")
    assert dra.prepared() == ["a"]
    dra.end("b")
    assert dra.prepared() == []


def test_a_container_that_starts_again_has_the_same_devices(dra):
    one_claim(dra)
    first, given = dra.node.running("a"), dra.given("a")
    dra.node.runtime.exit(first)
    dra.node.eventually(lambda: dra.node.running("a").id != first.id, "another container runs", 60)
    assert dra.given("a") == given


def test_a_device_of_a_pod_that_was_deleted_by_force_is_free_when_its_container_has_ended(dra):
    """The API server has neither pod nor claim any more, and the scheduler gives the device away at once."""
    devices = one_claim(dra, count=COUNTS[GPU])
    container = dra.node.running("a")
    dra.node.runtime.linger(container, 4)
    dra.made(f"{PODS}/a", {"gracePeriodSeconds": 0}, "DELETE")
    dra.made(f"{CLAIMS}/a", None, "DELETE")
    dra.claim("b", GPU, len(devices))
    dra.with_claim("b", "b")
    dra.node.eventually(lambda: dra.allocated("b"), "the scheduler has given the devices away")
    assert dra.node.runtime.containers("a", "RUNNING")
    dra.node.running("b")
    assert not dra.node.runtime.containers("a", "RUNNING")
    assert dra.prepared() == ["b"]


def test_after_a_boot_the_pod_runs_again_with_its_devices(dra):
    """/run is empty, CDI specs below it too; the kubelet has its checkpoint, and looks for the pod's driver early."""
    one_claim(dra)
    given, node = dra.given("a"), dra.node
    for program in (node.herd, node.kubelet, node.runtime):
        program.stop()
    for place in (node.directory / "run/devherd", node.directory / "node/var/run/cdi"):
        shutil.rmtree(place)
    node.start_runtime()
    node.change_kubelet(syncFrequency="1s")  # a pod that was first would wait for a minute
    node.start_herd_as_unit(**ENVIRONMENT)
    node.start_kubelet()
    assert dra.given("a") == given
    dra.until_registered()
    dra.until_published()
    node.change_kubelet(**AS_BY_DEFAULT)
    node.kubelet.stop()
    node.start_kubelet()
    dra.until_published()
    dra.until_registered()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_slices_are_back_after_a_kubelet_has_wiped_them_and_claims_are_as_before(dra, number):
    """Each start of a kubelet deletes them, a moment after it has asked the driver for its name."""
    one_claim(dra)
    given, before = dra.given("a"), {each["metadata"]["uid"] for each in dra.slices()}
    dra.node.kubelet.stop(number)
    dra.node.start_kubelet()
    dra.node.eventually(
        lambda: before.isdisjoint({each["metadata"]["uid"] for each in dra.slices()}), "the slices are others"
    )
    dra.until_published()
    dra.until_registered()
    dra.with_claim("b", "a")
    dra.node.running("b")
    assert dra.given("b") == dra.given("a") == given


@pytest.mark.timeout(600)
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
@pytest.mark.parametrize("name", ["dra:a", "dra:b", "kubernetes", "scanner"])
def test_no_pod_is_late_that_comes_when_a_process_ends(dra, name, number):
    """Each is made in the moment of the signal."""
    late = []
    for count in range(KILLS):
        pod = f"{name.replace(':', '-')}-{count}"
        dra.claim(pod, SIMULATED)
        pid = dra.kill(name, number)
        late.append(dra.starts(pod))
        dra.until_replaced(name, pid)
    print(f"{name} {signal.Signals(number).name}: {[round(each, 2) for each in sorted(late)]}")
    if max(late) >= LATE_SECONDS:
        pytest.fail(f"{late}: {dra.refusals()[0]}\n{dra.node.ends_of_logs(6000)}")


def test_a_process_that_hangs_is_replaced_and_the_next_pod_is_served(dra):
    """The kubelet asks the process that registered last, whether that answers or not."""
    pid = dra.kill("dra:b", signal.SIGSTOP)
    dra.until_replaced("dra:b", pid)
    dra.claim("a", SIMULATED)
    assert dra.starts("a") < LATE_SECONDS


@pytest.mark.timeout(300)
def test_no_pod_is_refused_or_late_while_devherd_is_rolled_out(dra):
    """A pod each 100 ms, from before the second instance starts until a while after the first has ended."""
    node, (refused, _) = dra.node, dra.refusals()
    old, begun, started = node.herd, {}, {}
    dra.template("each", SIMULATED)
    log = len(node.log)

    def tick():
        name = f"each-{len(begun)}"
        dra.with_claim(name, template="each")
        begun[name] = time.monotonic()
        time.sleep(TICK_SECONDS)
        for container in node.runtime.containers("", "RUNNING"):
            if container.pod in begun and container.pod not in started:
                started[container.pod] = time.monotonic()
                dra.delete(container.pod)

    def ticks(until, what):
        deadline = time.monotonic() + 60
        while not until():
            assert time.monotonic() < deadline, f"{what}\n{node.ends_of_logs()}"
            tick()

    ticks(lambda: len(started) >= 10, "pods run")
    node.start_herd("devherd", "--take-over", **ENVIRONMENT)
    ticks(lambda: ": standing by: " in node.log[log:], "the second stands by")
    os.kill(old.pid, signal.SIGTERM)
    ticks(lambda: old.popen.poll() is not None, "the first has ended")
    ticks(lambda: all(dra.is_registered(each) for each in "ab"), "the second is registered")
    count = len(begun)
    ticks(lambda: len(begun) >= count + 20, "pods run")
    node.eventually(lambda: _seen(node, begun, started, dra), "all pods run", 120)
    ours, not_known = dra.refusals()
    late = sorted(started[name] - begun[name] for name in begun if name not in not_known)
    print(f"{len(begun)} pods: median {late[len(late) // 2]:.2f} s, last {late[-1]:.2f} s")
    assert ours == refused
    assert late[-1] < LATE_SECONDS
    assert dra.counts() == COUNTS


def _seen(node, begun, started, dra):
    for container in node.runtime.containers("", "RUNNING"):
        if container.pod in begun and container.pod not in started:
            started[container.pod] = time.monotonic()
            dra.delete(container.pod)
    return len(started) == len(begun)


def test_the_credential_of_the_kubelet_is_enough(dra):
    """With the authorizer for nodes, and no rule beside: to publish, and to read the claims of this node's pods."""
    before = dra.call_count()
    one_claim(dra)
    assert dra.asked() >= {("get", "resourceclaims"), ("create", "resourceslices"), ("watch", "resourceslices")}
    assert not dra.refused(before)
