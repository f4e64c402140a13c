"""Pods on the kubelet's own admission path: what containers get from devherd, and in which words they are refused."""

import os
import re
import signal

import pytest
from harness_program import KUBERNETES
from raw_plugin import RawPlugin, register
from real_kubelet import container, pod
from resource_child import RESOURCE, device, eventually

from devherd.proto import spool_pb2

NIC = "example.com/nic"


def test_each_container_of_a_pod_gets_devices_of_its_own(child_node):
    """Nodes, permissions and ids, as the runtime gets them."""
    child_node.kubelet.start()
    child_node.serve(*(device(str(number)) for number in range(3)))
    containers = [container("one", {RESOURCE: 1}), container("two", {RESOURCE: 2}), container("none", {})]
    admitted = child_node.kubelet.admit(pod("a", containers=containers))
    one, two, none = (admitted.containers[name] for name in ("one", "two", "none"))
    assert sorted([*one.paths, *two.paths]) == ["/dev/0", "/dev/1", "/dev/2"]
    (device_id,) = one.device_ids[RESOURCE]
    path = f"/dev/{device_id}"
    assert one.devices == [{"host_path": path, "container_path": path, "permissions": "rw"}]
    assert (none.devices, none.device_ids) == ([], {})


def test_everything_that_devices_bring_reaches_the_container_once(child_node):
    """Mounts, environment, annotations and CDI names of two devices in one answer."""

    def rich(number):
        shared = spool_pb2.Mount(host_path="/opt/lib", container_path="/usr/lib/x", read_only=True)
        own = spool_pb2.Mount(host_path=f"/srv/{number}", container_path=f"/data/{number}")
        return device(
            str(number),
            mounts=[shared, own],
            envs={"VISIBLE": str(number), "MODE": "exclusive"},
            annotations={"example.com/mode": "whole"},
            cdi_devices=[f"example.com/gpu={number}"],
        )

    child_node.kubelet.start()
    child_node.serve(rich(0), rich(1))
    main = child_node.kubelet.admit(pod("a", {RESOURCE: 2})).main
    assert main.paths == ["/dev/0", "/dev/1"]
    assert main.envs == {"VISIBLE": "0,1", "MODE": "exclusive"}
    assert main.annotations == {"example.com/mode": "whole"}
    assert main.cdi == ["example.com/gpu=0", "example.com/gpu=1"]
    assert main.mounts == [
        {"host_path": "/opt/lib", "container_path": "/usr/lib/x", "read_only": True},
        {"host_path": "/srv/0", "container_path": "/data/0", "read_only": False},
        {"host_path": "/srv/1", "container_path": "/data/1", "read_only": False},
    ]


def test_two_resources_in_one_container_are_served_by_two_children(child_node):
    """Each answers for its own; the kubelet puts the answers together."""
    child_node.kubelet.start()
    child_node.serve(device("gpu"))
    child_node.serve(device("nic"), name=NIC)
    main = child_node.kubelet.admit(pod("a", {RESOURCE: 1, NIC: 1})).main
    assert sorted(main.paths) == ["/dev/gpu", "/dev/nic"]
    assert main.device_ids == {RESOURCE: ["gpu"], NIC: ["nic"]}


def test_devices_of_an_init_container_are_used_again_by_the_containers_after_it(child_node):
    """The same ids are allocated a second time, which devherd must not refuse."""
    child_node.kubelet.start()
    child_node.serve(*(device(str(number)) for number in range(3)))
    spec = pod("a", {RESOURCE: 3}, init=[container("load", {RESOURCE: 1}), container("check", {RESOURCE: 2})])
    admitted = child_node.kubelet.admit(spec)
    load, check, main = (set(admitted.containers[name].paths) for name in ("load", "check", "main"))
    assert load < check < main == {"/dev/0", "/dev/1", "/dev/2"}


def test_a_sidecar_keeps_its_device(child_node):
    """It runs beside the containers that come after it."""
    child_node.kubelet.start()
    child_node.serve(device("0"), device("1"))
    admitted = child_node.kubelet.admit(pod("a", {RESOURCE: 1}, init=[container("proxy", {RESOURCE: 1}, sidecar=True)]))
    assert sorted([*admitted.containers["proxy"].paths, *admitted.main.paths]) == ["/dev/0", "/dev/1"]


def test_one_too_many_is_refused_until_a_pod_is_over(child_node):
    """What is free is the kubelet's business; devherd keeps no books."""
    child_node.kubelet.start()
    child_node.serve(device("0"), device("1"), device("2", "xid"))
    child_node.kubelet.admit(pod("a", {RESOURCE: 1}))
    rejected = child_node.kubelet.admit(pod("b", {RESOURCE: 2}))
    assert rejected.message == (
        f"Allocate failed due to requested number of devices unavailable for {RESOURCE}. Requested: 2, Available: 1,"
        " which is unexpected"
    )
    child_node.kubelet.ask("free", uid="a")
    assert child_node.kubelet.admit(pod("b", {RESOURCE: 2})).main.paths == ["/dev/0", "/dev/1"]


def test_a_failing_device_is_given_to_nobody_and_its_holder_is_told(child_node):
    """The allocatedResourcesStatus of the pod shows it, and the recovery too."""
    kubelet = child_node.kubelet
    kubelet.start()
    child_node.serve(device("0"), device("1"))
    (held,) = kubelet.admit(pod("a", {RESOURCE: 1})).main.device_ids[RESOURCE]
    child_node.write(*(device(each, *(["fme-error"] if each == held else [])) for each in ("0", "1")))
    child_node.until_capacity(2, 1)
    assert kubelet.ask("pod_health", uid="a") == {"main": {RESOURCE: {held: "Unhealthy"}}}
    assert kubelet.admit(pod("b", {RESOURCE: 1})).main.device_ids[RESOURCE] != [held]
    child_node.write(device("0"), device("1"))
    child_node.until_capacity(2, 2)
    assert kubelet.ask("pod_health", uid="a") == {"main": {RESOURCE: {held: "Healthy"}}}
    assert kubelet.ask("run", pod=pod("a", {RESOURCE: 1}))["main"]["devices"][0]["host_path"] == f"/dev/{held}"


@pytest.mark.skipif(KUBERNETES < (1, 36), reason="the kubelet's ResourceHealthStatus is on from Kubernetes 1.36")
def test_the_status_of_a_pod_is_written_anew_when_its_device_fails(child_node):
    """At once, and not when the kubelet looks at the pod for another reason."""
    child_node.kubelet.start()
    child_node.serve(device("0"))
    child_node.kubelet.admit(pod("a", {RESOURCE: 1}))
    child_node.write(device("0", "fme-error"))
    child_node.until_capacity(1, 0)
    eventually(lambda: {"event": "update", "content": ["a"]} in child_node.kubelet.events)


def test_a_pod_with_a_resource_that_nobody_registered_starts_without_it(child_node):
    """Why devherd registers as early as it can."""
    child_node.kubelet.start()
    admitted = child_node.kubelet.admit(pod("a", {"example.com/later": 1}))
    assert admitted.admitted
    assert admitted.main.devices == []


def test_more_than_one_of_a_shared_device_is_refused_in_devherds_words(child_node):
    """The text stands in the pod's status: what, why, what to do."""
    child_node.kubelet.start()
    shared = device("0")
    shared.replicas = 2
    child_node.serve(shared, fail_requests_greater_than_one=True)
    rejected = child_node.kubelet.admit(pod("a", {RESOURCE: 2}))
    assert (rejected.admitted, rejected.reason) == (False, "UnexpectedAdmissionError")
    assert rejected.message.startswith(
        f"Allocate failed due to rpc error: code = InvalidArgument desc = 2 devices of {RESOURCE} requested"
    )
    assert child_node.kubelet.admit(pod("b", {RESOURCE: 1})).admitted


@pytest.mark.parametrize(
    ("device_id", "words"),
    [
        ("7", f"rpc error: code = InvalidArgument desc = {RESOURCE} has no device '7'"),
        ("1", "rpc error: code = FailedPrecondition desc = device '1' is unhealthy: fme-error, port-error"),
    ],
)
def test_a_device_that_cannot_be_had_is_named_in_the_pods_status(child_node, device_id, words):
    """The kubelet believes another list here: a second plugin streams it, and Allocate goes to devherd, the newest."""
    kubelet = child_node.kubelet
    kubelet.start()
    other = RawPlugin(kubelet.plugins / "other.sock")
    assert register(kubelet.plugins, "other.sock", RESOURCE) == ""
    child_node.serve(device("0"), device("1", "fme-error", "port-error"))
    other.send(device_id)
    child_node.until_capacity(1, 1)
    rejected = kubelet.admit(pod("a", {RESOURCE: 1}))
    assert rejected.message == f"Allocate failed due to {words}, which is unexpected"
    other.stop()


def test_a_child_killed_during_an_admission_rejects_that_pod_only(child_node):
    """The kubelet's words, whether it has asked the child already or not; the next pod is served by the next child."""
    child_node.kubelet.start()
    child_node.serve(device("0"))
    pids = child_node.pids
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    asked = child_node.kubelet.send("admit", pod=pod("a", {RESOURCE: 1}))
    eventually(lambda: not asked.done())
    child_node.end(signal.SIGKILL)
    rejected = asked.result(30)
    assert not rejected["admitted"]
    assert re.search("code = Unavailable|no healthy devices present", rejected["message"])
    child_node.run()
    child_node.until_capacity(1, 1)
    assert child_node.kubelet.admit(pod("b", {RESOURCE: 1})).main.paths == ["/dev/0"]


def test_a_container_that_starts_again_gets_what_it_had_without_asking_devherd(child_node):
    """Also while no child runs: the answer is the kubelet's own."""
    child_node.kubelet.start()
    child_node.serve(device("0"))
    first = child_node.kubelet.admit(pod("a", {RESOURCE: 1})).main
    child_node.end()
    again = child_node.kubelet.ask("run", pod=pod("a", {RESOURCE: 1}))["main"]
    assert again["devices"] == first.devices
