"""devherd registers with the kubelet's own device manager, and what the kubelet makes of the list."""

import pytest
from real_kubelet import pod
from resource_child import RESOURCE, device, eventually


def test_a_resource_is_registered_with_its_whole_list_in_the_first_message(child_node):
    """The kubelet knows each device with its NUMA node, the sick one too."""
    child_node.kubelet.start()
    child_node.serve(device("0", numa=[1]), device("1", "xid", numa=[0]), device("2", numa=[0, 1]))
    assert child_node.kubelet.devices(RESOURCE) == {"0": [1], "2": [0, 1]}
    assert child_node.kubelet.capacity(RESOURCE) == (3, 2)
    assert child_node.kubelet.registrations(RESOURCE) == 1
    eventually(lambda: child_node.state().registered)
    assert child_node.state().endpoint in child_node.sockets()


def test_a_child_that_was_there_first_registers_when_the_kubelet_comes(child_node):
    """Nothing has to be started in order."""
    child_node.write(device("0"))
    child_node.run()
    eventually(lambda: child_node.state().detail)
    child_node.kubelet.start()
    child_node.until_capacity(1, 1)


@pytest.mark.parametrize(
    "name",
    [
        "acme.example/x_y.Z-1",
        "acme/x",
        f"acme.example/{'n' * 63}",
        f"{'a' * 60}.{'b' * 60}.{'c' * 60}.{'d' * 61}/x",
        "fpga.intel.com/af-695.d84.aVKNtusxV3qMNmj5-qCB9thCTcSko8QT-J5DNoP5BAs",
    ],
)
def test_every_name_that_may_be_configured_is_one_that_the_kubelet_takes(child_node, name):
    """Long ones too: the prefix may have 244 characters."""
    child_node.kubelet.start()
    child_node.serve(device("0"), name=name)
    assert child_node.kubelet.admit(pod("a", {name: 1})).main.paths == ["/dev/0"]


def test_a_refused_name_is_told_in_the_kubelets_words(child_node):
    """The scanner lets no such name through; if one came all the same, the state says what is wrong with it."""
    child_node.kubelet.start()
    child_node.write(device("0"), name="x.kubernetes.io/y")
    child_node.run("x.kubernetes.io/y")
    refusal = 'the kubelet refused: the ResourceName "x.kubernetes.io/y" is invalid'
    eventually(lambda: refusal in child_node.state("x.kubernetes.io/y").detail)
    assert child_node.kubelet.capacity("x.kubernetes.io/y") is None
    assert child_node.kubelet.registrations("x.kubernetes.io/y") >= 1


def test_devices_come_go_fail_and_recover(child_node):
    """Capacity counts all, allocatable the healthy ones; each list replaces the one before."""
    child_node.kubelet.start()
    child_node.serve(device("0"), device("1"))
    for devices, capacity, allocatable in (
        ([device("0"), device("1", "fme-error")], 2, 1),
        ([device("0", "gone"), device("1", "fme-error")], 2, 0),
        ([device("0"), device("1")], 2, 2),
        ([device("0"), device("1"), device("2")], 3, 3),
        ([device("2")], 1, 1),
        ([], 0, 0),
        ([device("2"), device("0")], 2, 2),
    ):
        child_node.write(*devices)
        child_node.until_capacity(capacity, allocatable)
        healthy = {each.id for each in devices if not each.reasons}
        assert set(child_node.kubelet.devices(RESOURCE)) == healthy
    assert child_node.kubelet.registrations(RESOURCE) == 1


def test_devices_without_a_numa_node_are_told_without_topology(child_node):
    """An empty TopologyInfo would make PodResources forget them."""
    child_node.kubelet.start(policy="restricted", numa_nodes=[0, 1])
    child_node.serve(device("0"), device("1"))
    assert child_node.kubelet.devices(RESOURCE) == {"0": None, "1": None}
    assert child_node.kubelet.ask("hints", pod=pod("a", {RESOURCE: 1}))["main"][RESOURCE] is None


def test_a_device_of_an_unknown_numa_node_is_listed_on_the_nodes_of_the_others(child_node):
    """Listed on none, it would be allocatable and yet refused to every pod (test_real_topology.py)."""
    child_node.kubelet.start(policy="single-numa-node", numa_nodes=[0, 1])
    child_node.serve(device("0", numa=[0]), device("1"))
    assert child_node.kubelet.devices(RESOURCE) == {"0": [0], "1": [0]}
    assert child_node.kubelet.admit(pod("a", {RESOURCE: 2})).admitted


def test_an_orderly_end_takes_the_devices_away_and_a_new_child_brings_them_back(child_node):
    """Capacity stays for the kubelet's five minutes of grace, allocatable goes at once."""
    child_node.kubelet.start()
    child_node.serve(device("0"), device("1"))
    assert child_node.end() == 0
    child_node.until_capacity(2, 0)
    rejected = child_node.kubelet.admit(pod("a", {RESOURCE: 1}))
    assert (rejected.admitted, rejected.reason) == (False, "UnexpectedAdmissionError")
    assert f"no healthy devices present; cannot allocate unhealthy devices {RESOURCE}" in rejected.message
    assert child_node.sockets() == []
    child_node.run()
    child_node.until_capacity(2, 2)
    assert child_node.kubelet.admit(pod("b", {RESOURCE: 1})).admitted
