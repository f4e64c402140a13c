"""Hints and their merging: what holds for every device on every node."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devherd.errors import UsageError
from devherd.proto import deviceplugin_v1beta1_pb2 as api
from devherd_sim.kubelet.ledger import Devices
from devherd_sim.kubelet.pod import TopologyAffinityError
from devherd_sim.kubelet.topology import Hint, Topology, hints, mask_of

MACHINE = mask_of(range(3))
layouts = st.lists(st.lists(st.integers(0, 2), unique=True, max_size=3), min_size=1, max_size=6)


def devices_on(layout):
    """Devices 0, 1, … on the nodes of the list; all healthy."""
    known = Devices()
    known.replace(
        api.Device(ID=str(number), health="Healthy", topology={"nodes": [{"ID": node} for node in nodes]})
        for number, nodes in enumerate(layout)
    )
    return known


@given(layouts, st.integers(1, 6))
def test_a_hint_is_a_set_of_nodes_with_enough_devices(layout, count):
    """Every hint has them, and the narrowest of them is preferred when all devices are free."""
    devices = devices_on(layout)
    found = hints(devices, devices.healthy, frozenset(), count, MACHINE)
    for hint in found:
        assert sum(bool(mask_of(nodes) & hint.nodes) for nodes in layout) >= count
    if found:
        fewest = min(hint.nodes.bit_count() for hint in found)
        assert all(hint.preferred == (hint.nodes.bit_count() == fewest) for hint in found)


@given(layouts, st.integers(1, 6), st.sampled_from(["best-effort", "restricted", "single-numa-node"]))
def test_one_resource_alone_gets_its_narrowest_hint(layout, count, policy):
    """Or nothing, where the policy wants what there is not; best-effort always gets some nodes."""
    devices = devices_on(layout)
    found = hints(devices, devices.healthy, frozenset(), count, MACHINE)
    suits = [hint for hint in found if hint.preferred and (policy == "restricted" or hint.nodes.bit_count() == 1)]
    topology = Topology(policy, 3)
    if policy == "best-effort":
        assert topology.affinity({"r": found}) in {hint.nodes for hint in found} | {MACHINE}
    elif suits:
        nodes = topology.affinity({"r": found})
        assert nodes == min((hint.nodes for hint in suits), key=lambda mask: (mask.bit_count(), mask))
    else:
        with pytest.raises(TopologyAffinityError):
            topology.affinity({"r": found})


def test_between_two_equal_nodes_the_lower_is_taken():
    """As the kubelet compares its masks."""
    both = [Hint(0b01, preferred=True), Hint(0b10, preferred=True), Hint(0b11, preferred=False)]
    assert Topology("restricted", 2).affinity({"r": both}) == 0b01


def test_resources_without_nodes_follow_any_other():
    """And where there is no other, every node suits."""
    one = [Hint(0b10, preferred=True)]
    assert Topology("restricted", 2).affinity({"plain": None, "r": one}) == 0b10
    assert Topology("restricted", 2).affinity({"plain": None}) == 0b11
    assert Topology("single-numa-node", 2).affinity({}) is None
    assert Topology("none", 2).affinity({"r": []}) is None


def test_resources_that_share_no_node_are_not_aligned():
    """best-effort takes all nodes then; the others refuse the pod."""
    apart = {"a": [Hint(0b01, preferred=True)], "b": [Hint(0b10, preferred=True)]}
    assert Topology("best-effort", 2).affinity(apart) == 0b11
    for policy in ("restricted", "single-numa-node"):
        with pytest.raises(TopologyAffinityError, match="cannot be allocated with Topology locality"):
            Topology(policy, 2).affinity(apart)


def test_more_than_eight_nodes_need_no_policy():
    """The kubelet does not start with one."""
    with pytest.raises(UsageError, match="9 NUMA nodes are too many"):
        Topology("restricted", 9)
    assert Topology("none", 36).affinity({}) is None
