"""The node with everything beside the kubelet's own device manager: capacity, answers, preference, faults."""

import json
from collections import Counter

import pytest
from everything_node import CAMERA, CONFIG, GPU, NODE_OF, PARTITION, SERIAL, Absent, answer, in_order, scanned
from real_kubelet import container, pod
from resource_child import eventually

from devherd.config.resolved import NVML_ANSWER
from devherd_sim.node.presets import preset


def settled(herd_node, config=CONFIG, spec="everything", **kubelet_options):
    """What scan says, when the kubelet has all of it."""
    herd_node.start(spec, config, **kubelet_options)
    told = scanned(herd_node.node.root)
    for name, devices in told.items():
        herd_node.until_capacity(name, len(devices), len(devices))
    return told


def got(main):
    """What the runtime would get."""
    return in_order(main.devices, main.mounts, main.envs, main.annotations, main.cdi)


def near(told, main, name):
    """The NUMA nodes of what a container has of a resource."""
    return {node for each in main.device_ids[name] for node in told[name][each]["numa_nodes"]}


def test_every_resource_registers_once_with_the_devices_that_scan_tells(herd_node):
    """Capacity, allocatable and NUMA nodes, of every vendor and of no other resource."""
    told = settled(herd_node)
    sizes = {name: len(devices) for name, devices in told.items()}
    node = herd_node.kubelet.ask("capacity")
    assert (node["capacity"], node["allocatable"]) == (sizes, sizes)
    for name, devices in told.items():
        expected = {each: device["numa_nodes"] for each, device in devices.items()}
        assert herd_node.kubelet.devices(name) == expected
        assert herd_node.kubelet.registrations(name) == 1


def test_a_container_of_each_resource_gets_exactly_what_scan_tells(herd_node):
    """Nodes, mounts, environment, annotations and CDI names; and one container with all kinds gets all of it."""
    told = settled(herd_node)
    names = {f"c{number}": name for number, name in enumerate(told)}
    each = [container(name, {resource: 1}) for name, resource in names.items()]
    admitted = herd_node.kubelet.admit(pod("each", containers=each))
    assert admitted.admitted, admitted.message
    for name, resource in names.items():
        mine = admitted.containers[name]
        (device_id,) = mine.device_ids[resource]
        assert got(mine) == answer([told[resource][device_id]])

    herd_node.kubelet.ask("free", uid="each")
    kinds = {name: 1 for name in told if not name.startswith("nvidia.com/mig") and name not in {SERIAL, CAMERA}}
    main = herd_node.kubelet.admit(pod("all", kinds)).main
    assert got(main) == answer(told[name][device_id] for name, (device_id,) in main.device_ids.items())


@pytest.mark.parametrize("way", ["kubelet_socket", "plugins_registry"])
def test_every_resource_is_back_after_a_restart_of_the_kubelet(herd_node, way):
    """By both ways of registration, with a pod that keeps its devices."""
    watched = {"plugins_registry": way == "plugins_registry"}
    told = settled(herd_node, {**CONFIG, "registration": way}, **watched)
    held = herd_node.kubelet.admit(pod("a", {GPU: 2})).main.device_ids[GPU]
    running = [{"pod_uid": "a", "name": "main", "id": "a/main", "running": True}]
    herd_node.kubelet.restart(sources_ready=False, containers=running)
    for name, devices in told.items():
        herd_node.until_capacity(name, len(devices), len(devices))
    rest = herd_node.kubelet.admit(pod("b", {GPU: 4})).main.device_ids[GPU]
    assert sorted([*held, *rest]) == sorted(told[GPU])


def test_gpus_with_most_nvlinks_between_them_are_given_together(herd_node):
    """Two of a cube mesh, in which neighbours on one PCIe switch are not always the best pair."""
    spec = preset("everything").model_copy(update={"nvidia": preset("nvidia-8-nvlink").nvidia})
    told = settled(herd_node, spec=spec)
    facts = json.loads((herd_node.node.root / NVML_ANSWER).read_text())
    links = {gpu["uuid"]: gpu["nvlinks"] for gpu in facts["facts"]["gpus"]}
    first, second = herd_node.kubelet.admit(pod("a", {GPU: 2})).main.device_ids[GPU]
    address = told[GPU][second]["attributes"]["pci_address"]
    assert links[first][address] == max(count for counts in links.values() for count in counts.values())


@pytest.mark.parametrize("policy", ["none", "restricted", "single-numa-node"])
def test_devices_that_are_close_are_given_together(herd_node, policy):
    """GPUs of one switch and partitions of one GPU; a card of another vendor from the same NUMA node where aligned."""
    told = settled(herd_node, policy=policy, numa_nodes=[0, 1])
    for uid in "ab":
        main = herd_node.kubelet.admit(pod(uid, {GPU: 2, PARTITION: 8, "rdma/hca": 1})).main
        assert main.error == ""
        first, second = sorted(int(told[GPU][each]["attributes"]["index"]) for each in main.device_ids[GPU])
        assert (first % 2, second) == (0, first + 1)
        assert len({told[PARTITION][each]["attributes"]["pci_address"] for each in main.device_ids[PARTITION]}) == 1
        if policy != "none":
            assert len(near(told, main, GPU) | near(told, main, PARTITION) | near(told, main, "rdma/hca")) == 1


def test_one_numa_node_is_demanded_and_no_node_has_so_many(herd_node):
    """single-numa-node: four of six GPUs are on node 0; five are refused with the kubelet's words."""
    told = settled(herd_node, policy="single-numa-node", numa_nodes=[0, 1])
    on = Counter(device["numa_nodes"][0] for device in told[GPU].values())
    assert on == {0: 4, 1: 2}
    refused = herd_node.kubelet.admit(pod("five", {GPU: 5}))
    assert (refused.admitted, refused.reason) == (False, "TopologyAffinityError")
    assert near(told, herd_node.kubelet.admit(pod("four", {GPU: 4})).main, GPU) == {0}


def test_a_device_of_each_vendor_fails_and_recovers_and_no_other_resource_changes(herd_node):
    """All at once: each resource has one device less, the others all; then all are back, without a registration."""
    told = settled(herd_node)
    sizes = {name: len(devices) for name, devices in told.items()}
    absent = []
    for name, node in NODE_OF.items():
        absent.append(Absent(herd_node.node.root, node, f"absent-{len(absent)}"))
        sizes[name] -= 1
        eventually(lambda: herd_node.kubelet.ask("capacity")["allocatable"] == sizes)
    for each in absent:
        each.put_back()
    sizes = {name: len(devices) for name, devices in told.items()}
    eventually(lambda: herd_node.kubelet.ask("capacity")["allocatable"] == sizes)
    assert herd_node.kubelet.ask("registrations") == dict.fromkeys(told, 1)
