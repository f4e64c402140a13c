"""Devices on NUMA nodes under each policy of the kubelet's topology manager."""

import pytest
from raw_plugin import RawPlugin, register
from real_kubelet import container, pod
from resource_child import RESOURCE, device, eventually

from devherd.proto import spool_pb2

POLICIES = ["none", "best-effort", "restricted", "single-numa-node"]
ALIGNING = POLICIES[1:]
NIC = "example.com/nic"


def on_two_nodes(count, prefix=""):
    """Even numbers on node 0, odd ones on node 1."""
    return [device(f"{prefix}{number}", numa=[number % 2]) for number in range(count)]


def nodes_of(ids):
    """The NUMA nodes of devices named as above."""
    return {int(each[-1]) % 2 for each in ids}


@pytest.mark.parametrize("policy", POLICIES)
def test_a_container_gets_devices_of_one_node_whatever_the_policy(child_node, policy):
    """Under `none` by devherd's preference alone."""
    child_node.kubelet.start(policy=policy, numa_nodes=[0, 1])
    child_node.serve(*on_two_nodes(8))
    for uid, count in (("a", 3), ("b", 4)):
        ids = child_node.kubelet.admit(pod(uid, {RESOURCE: count})).main.device_ids[RESOURCE]
        assert len(ids) == count
        assert len(nodes_of(ids)) == 1


@pytest.mark.parametrize("policy", POLICIES)
def test_the_node_that_just_suffices_is_taken_so_that_the_larger_stays_whole(child_node, policy):
    """By devherd's preference; policies that align have chosen the node already."""
    child_node.kubelet.start(policy=policy, numa_nodes=[0, 1])
    small, large = (
        [device(f"s{number}", numa=[1]) for number in range(2)],
        [device(f"l{n}", numa=[0]) for n in range(4)],
    )
    child_node.serve(*large, *small)
    ids = child_node.kubelet.admit(pod("a", {RESOURCE: 2})).main.device_ids[RESOURCE]
    assert ids == ["s0", "s1"] if policy == "none" else ids in (["s0", "s1"], ["l0", "l1"])


@pytest.mark.parametrize("policy", POLICIES)
def test_more_devices_than_a_node_has_are_had_unless_one_node_is_demanded(child_node, policy):
    """single-numa-node refuses what no node can hold."""
    child_node.kubelet.start(policy=policy, numa_nodes=[0, 1])
    child_node.serve(*on_two_nodes(4))
    admitted = child_node.kubelet.admit(pod("a", {RESOURCE: 3}))
    if policy == "single-numa-node":
        assert (admitted.admitted, admitted.reason) == (False, "TopologyAffinityError")
        assert admitted.message == "Resources cannot be allocated with Topology locality"
    else:
        assert len(admitted.main.device_ids[RESOURCE]) == 3


@pytest.mark.parametrize("policy", POLICIES)
def test_what_is_left_on_both_nodes_is_given_together_unless_alignment_is_guaranteed(child_node, policy):
    """One free device on each node, two wanted."""
    child_node.kubelet.start(policy=policy, numa_nodes=[0, 1])
    child_node.serve(*on_two_nodes(4))
    held = [child_node.kubelet.admit(pod(uid, {RESOURCE: 1})).main.device_ids[RESOURCE][0] for uid in "abcd"]
    for uid, device_id in zip("abcd", held, strict=True):
        if device_id in {"2", "3"}:
            child_node.kubelet.ask("free", uid=uid)
    admitted = child_node.kubelet.admit(pod("e", {RESOURCE: 2}))
    if policy in {"none", "best-effort"}:
        assert admitted.main.device_ids[RESOURCE] == ["2", "3"]
    else:
        assert (admitted.admitted, admitted.reason) == (False, "TopologyAffinityError")


@pytest.mark.parametrize("policy", ALIGNING)
def test_two_resources_are_given_from_the_same_node(child_node, policy):
    """The only free network card decides where the accelerators come from."""
    child_node.kubelet.start(policy=policy, numa_nodes=[0, 1])
    child_node.serve(*on_two_nodes(4))
    child_node.serve(device("nic1", numa=[1]), device("nic0", "link-degraded", numa=[0]), name=NIC)
    main = child_node.kubelet.admit(pod("a", {RESOURCE: 2, NIC: 1})).main
    assert main.device_ids == {RESOURCE: ["1", "3"], NIC: ["nic1"]}


def test_the_scope_pod_puts_all_containers_on_one_node(child_node):
    """What one container gets, the others follow."""
    child_node.kubelet.start(policy="single-numa-node", scope="pod", numa_nodes=[0, 1])
    child_node.serve(*on_two_nodes(8))
    containers = [container(name, {RESOURCE: 2}) for name in ("one", "two")]
    admitted = child_node.kubelet.admit(pod("a", containers=containers))
    ids = [each for told in admitted.containers.values() for each in told.device_ids[RESOURCE]]
    assert len(set(ids)) == 4
    assert len(nodes_of(ids)) == 1


def test_the_hints_tell_every_way_to_be_served(child_node):
    """One node is preferred where one suffices; a device on both nodes counts for each."""
    child_node.kubelet.start(policy="best-effort", numa_nodes=[0, 1])
    child_node.serve(device("0", numa=[0]), device("1", numa=[1]), device("both", numa=[0, 1]))
    hints = child_node.kubelet.ask("hints", pod=pod("a", {RESOURCE: 2}))["main"][RESOURCE]
    assert sorted(hints, key=lambda hint: hint["nodes"]) == [
        {"nodes": [0], "preferred": True},
        {"nodes": [0, 1], "preferred": False},
        {"nodes": [1], "preferred": True},
    ]


@pytest.mark.parametrize("policy", ["none", "best-effort"])
def test_the_device_of_an_init_container_is_kept_and_its_node_filled_up(child_node, policy):
    """The kubelet asks for a preference that must include it."""
    child_node.kubelet.start(policy=policy, numa_nodes=[0, 1])
    child_node.serve(*on_two_nodes(8))
    admitted = child_node.kubelet.admit(pod("a", {RESOURCE: 3}, init=[container("load", {RESOURCE: 1})]))
    (kept,) = admitted.containers["load"].device_ids[RESOURCE]
    assert kept in admitted.main.device_ids[RESOURCE]
    assert nodes_of(admitted.main.device_ids[RESOURCE]) == nodes_of([kept])


def test_without_a_preference_the_kubelet_does_not_ask(child_node):
    """`preferred: none`: it takes what it likes."""
    child_node.kubelet.start()
    child_node.serve(*on_two_nodes(4), preferred=spool_pb2.NONE)
    assert len(child_node.kubelet.admit(pod("a", {RESOURCE: 3})).main.device_ids[RESOURCE]) == 3


UNKNOWN = {"0": [0], "1": [1], "somewhere": []}
"""Devices and their NUMA nodes: a host whose firmware does not give one of them its node, `numa_node` -1."""


def admitted_one_by_one(kubelet):
    """The ids that pods with one device each get; the reason for a pod that is rejected."""
    answers = [kubelet.admit(pod(uid, {RESOURCE: 1})) for uid in "abc"]
    return [each.main.device_ids[RESOURCE][0] if each.admitted else each.reason for each in answers]


@pytest.mark.parametrize("policy", ["restricted", "single-numa-node"])
def test_a_device_listed_without_nodes_beside_others_is_never_allocated(child_node, policy):
    """Others D5: as Intel's plugins list it. It is healthy and allocatable, and each pod for it is rejected."""
    kubelet = child_node.kubelet
    kubelet.start(policy=policy, numa_nodes=[0, 1])
    plugin = RawPlugin(kubelet.plugins / "raw.sock", resource=RESOURCE)
    plugin.send_on_nodes(UNKNOWN)
    assert register(kubelet.plugins, "raw.sock", RESOURCE) == ""
    eventually(lambda: kubelet.capacity(RESOURCE) == (3, 3))

    first, second, third = admitted_one_by_one(kubelet)

    plugin.stop()
    assert {first, second} == {"0", "1"}
    assert third == "TopologyAffinityError"


@pytest.mark.parametrize("policy", POLICIES)
def test_a_device_whose_node_is_unknown_is_allocated_whatever_the_policy(child_node, policy):
    """Others D5: it may be on each node with processors. The first pod gets one whose node is known."""
    child_node.kubelet.start(policy=policy, numa_nodes=[0, 1])
    child_node.serve(*(device(each, numa=nodes) for each, nodes in UNKNOWN.items()), processor_nodes=[0, 1])

    first, *others = admitted_one_by_one(child_node.kubelet)

    assert {first, *others} == set(UNKNOWN)
    assert first == "0"


@pytest.mark.parametrize("policy", ALIGNING)
def test_devices_are_aligned_beside_one_whose_node_is_unknown(child_node, policy):
    """Others D5: it took the topology of the whole resource away."""
    child_node.kubelet.start(policy=policy, numa_nodes=[0, 1])
    child_node.serve(*(device(each, numa=nodes) for each, nodes in UNKNOWN.items()), processor_nodes=[0, 1])
    child_node.serve(device("nic1", numa=[1]), name=NIC)

    main = child_node.kubelet.admit(pod("a", {RESOURCE: 1, NIC: 1})).main

    assert main.device_ids == {RESOURCE: ["1"], NIC: ["nic1"]}
