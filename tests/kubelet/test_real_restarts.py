"""Kubelet and child end and begin again, with pods that hold devices: nothing is lost, nothing is given twice."""

import signal
import time

from real_kubelet import container, pod
from resource_child import RESOURCE, device, eventually
from seeds import random_of

ROUNDS = 15


def running(*uids):
    """The runtime's list: the containers of these pods run."""
    return [{"pod_uid": uid, "name": "main", "id": f"{uid}/main", "running": True} for uid in uids]


def test_a_restarted_kubelet_restores_what_pods_hold_from_its_checkpoint(child_node):
    """Same ids, same answers, and what is free is right."""
    kubelet = child_node.kubelet
    kubelet.start()
    child_node.serve(*(device(str(number)) for number in range(4)))
    before = {uid: kubelet.admit(pod(uid, {RESOURCE: 1})).main for uid in ("a", "b")}

    kubelet.restart(sources_ready=False, containers=running("a", "b"))
    for uid, main in before.items():
        assert kubelet.admit(pod(uid, {RESOURCE: 1})).main == main
    kubelet.ask("sources_ready")
    child_node.until_capacity(4, 4)

    held = [device_id for main in before.values() for device_id in main.device_ids[RESOURCE]]
    rest = kubelet.admit(pod("c", {RESOURCE: 2})).main.device_ids[RESOURCE]
    assert sorted([*held, *rest]) == ["0", "1", "2", "3"]
    assert "Requested: 1, Available: 0" in kubelet.admit(pod("d", {RESOURCE: 1})).message


def test_the_checkpoint_is_one_that_the_kubelets_code_believes(child_node):
    """Who holds what, by NUMA node, and what is registered."""
    child_node.kubelet.start(numa_nodes=[0, 1], policy="best-effort")
    child_node.serve(device("0", numa=[1]), device("1", "gone", numa=[0]))
    child_node.kubelet.admit(pod("a", {RESOURCE: 1}))
    file = child_node.kubelet.ask("checkpoint")
    assert (file["error"], file["path"]) == ("", str(child_node.kubelet.checkpoint_file))
    assert file["registered"] == {RESOURCE: ["0"]}
    assert file["pods"] == [{"uid": "a", "container": "main", "resource": RESOURCE, "devices": {"1": ["0"]}}]
    assert sorted(path.name for path in child_node.kubelet.plugins.iterdir() if path.is_file()) == [
        child_node.kubelet.checkpoint_file.name
    ]  # devherd leaves nothing of its own there that would look like a checkpoint


def test_a_kubelet_that_has_lost_its_checkpoint_is_served_like_a_new_one(child_node):
    """A torn file is ignored, and every device is free again."""
    kubelet = child_node.kubelet
    kubelet.start()
    child_node.serve(device("0"), device("1"))
    kubelet.admit(pod("a", {RESOURCE: 1}))
    kubelet.kill()
    kubelet.checkpoint_file.write_text('{"Data":{"PodDeviceEntries":[]},"Checksum":1}')
    kubelet.start()
    child_node.until_capacity(2, 2)
    assert kubelet.admit(pod("b", {RESOURCE: 2})).main.paths == ["/dev/0", "/dev/1"]


def test_pods_that_run_are_admitted_again_while_devherd_is_away(child_node):
    """A kubelet that restarts before its plugin does: running pods stay, others are refused until it is there."""
    kubelet = child_node.kubelet
    kubelet.start()
    child_node.serve(device("0"), device("1"))
    main = kubelet.admit(pod("a", {RESOURCE: 1})).main
    kubelet.admit(pod("b", {RESOURCE: 1}))
    child_node.end()
    kubelet.restart(sources_ready=False, containers=running("a"))

    assert kubelet.admit(pod("a", {RESOURCE: 1})).main == main
    rejected = kubelet.admit(pod("b", {RESOURCE: 1}))
    assert "no healthy devices present" in rejected.message
    child_node.run()
    child_node.until_capacity(2, 2)
    kubelet.ask("sources_ready")
    assert kubelet.admit(pod("c", {RESOURCE: 1})).main.device_ids[RESOURCE] != main.device_ids[RESOURCE]


def test_an_init_container_that_has_ended_is_admitted_again_once_devherd_is_back(child_node):
    """It is not running, so its devices must be healthy: registering quickly is what keeps the pod."""
    kubelet = child_node.kubelet
    kubelet.start()
    child_node.serve(device("0"))
    spec = pod("a", {RESOURCE: 1}, init=[container("load", {RESOURCE: 1})])
    before = kubelet.admit(spec)
    kubelet.restart(sources_ready=False, containers=running("a"))
    child_node.until_capacity(1, 1)
    assert kubelet.admit(spec) == before


def test_changes_that_a_kubelet_missed_are_in_the_first_list_of_its_successor(child_node):
    """And what the checkpoint still names is gone."""
    child_node.kubelet.start()
    child_node.serve(device("0"), device("1"))
    child_node.kubelet.kill()
    child_node.write(device("1", "xid"), device("2"), device("3"))
    child_node.kubelet.start()
    child_node.until_capacity(3, 2)
    assert sorted(child_node.kubelet.devices(RESOURCE)) == ["2", "3"]


def test_a_kubelet_that_ends_its_streams_in_good_order_is_waited_for(child_node):
    """The stream's end says it; the next kubelet is registered with."""
    child_node.kubelet.start()
    child_node.serve(device("0"))
    child_node.kubelet.ask("stop")
    eventually(lambda: not child_node.state().registered)
    child_node.kubelet.restart()
    child_node.until_capacity(1, 1)
    eventually(lambda: child_node.state().registered)
    assert len(child_node.sockets()) == 1


def test_a_kubelet_restarted_again_and_again_always_knows_the_devices(child_node, request):
    """Killed at any moment, also during a registration; the seed is at the head of the output."""
    moment = random_of(request.node.name)
    child_node.kubelet.start()
    child_node.serve(device("0"), device("1"))
    main = child_node.kubelet.admit(pod("a", {RESOURCE: 1})).main
    for _ in range(ROUNDS):
        child_node.kubelet.restart(sources_ready=False, containers=running("a"))
        time.sleep(moment.choice([0, 0, 0.002, 0.02, 0.1]) * moment.random())
    child_node.until_capacity(2, 2)
    assert child_node.kubelet.admit(pod("a", {RESOURCE: 1})).main == main
    eventually(lambda: child_node.state().registered)
    assert len(child_node.sockets()) == 1


def test_a_child_that_ends_again_and_again_is_always_registered_anew(child_node, request):
    """The kubelet takes down the newest registration when an old stream ends; devherd sees that and registers again."""
    moment = random_of(request.node.name)
    child_node.kubelet.start()
    child_node.serve(device("0"), device("1"))
    for _ in range(ROUNDS):
        child_node.end(moment.choice([signal.SIGKILL, signal.SIGTERM]))
        child_node.run()
        if moment.random() < 0.5:
            child_node.until_capacity(2, 2)
    child_node.until_capacity(2, 2)
    eventually(lambda: child_node.state().registered and child_node.state().streams == 1)
    time.sleep(0.5)  # an end of an old stream that comes late
    child_node.until_capacity(2, 2)
    assert child_node.kubelet.admit(pod("a", {RESOURCE: 2})).main.paths == ["/dev/0", "/dev/1"]
    assert len(child_node.sockets()) == 1


def test_a_socket_that_was_removed_is_replaced_by_a_registration(child_node):
    """The kubelet has still its stream, but nobody could dial any more."""
    child_node.kubelet.start()
    child_node.serve(device("0"))
    (first,) = child_node.sockets()
    (child_node.kubelet.plugins / first).unlink()
    eventually(lambda: child_node.sockets() not in ([], [first]))
    child_node.until_capacity(1, 1)
    eventually(lambda: child_node.kubelet.admit(pod("a", {RESOURCE: 1})).admitted)
