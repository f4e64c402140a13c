"""What the kubelet has given to pods, by PodResources and its checkpoint."""

import json

import pytest

from devherd.ledger.compare import Given, entries_of, given, names_of
from devherd.proto import spool_pb2

GPU = "nvidia.com/gpu"


def holder(pod, container="main"):
    return {"namespace": "default", "pod": pod, "container": container}


def entries(*allocations):
    """As read from a checkpoint of these (uid, container, device ids by NUMA node)."""
    made = [
        {"PodUID": uid, "ContainerName": container, "ResourceName": GPU, "DeviceIDs": ids, "AllocResp": ""}
        for uid, container, ids in allocations
    ]
    return entries_of(json.dumps({"Data": {"PodDeviceEntries": made, "RegisteredDevices": {}}, "Checksum": 1}).encode())


def offer(*devices):
    return spool_pb2.Offer(name=GPU, devices=devices)


def device(device_id, **fields):
    return spool_pb2.Device(vendor="nvidia", card=device_id, id=device_id, **fields)


def test_uids_are_of_the_entries_whose_device_podresources_still_has_in_that_container():
    """The checkpoint is written at allocations alone: an ended pod stays in it for a while."""
    kept = entries(("uid-a", "main", {"-1": ["GPU-1"]}), ("uid-old", "side", {"-1": ["GPU-1"]}))
    found = given([offer(device("GPU-1"), device("GPU-2"))], {(GPU, "GPU-1"): [holder("a")]}, kept)
    assert found == {("nvidia", "GPU-1", "GPU-1"): Given(frozenset({"default/a"}), frozenset({"uid-a"}))}
    assert names_of(found.values()) == {"uid-a": "default/a"}


def test_replicas_are_of_one_device_with_all_its_pods():
    """By ids with `::`; devices of several NUMA nodes are in the checkpoint once a node."""
    kept = entries(("uid-a", "main", {"0": ["GPU-1::0"], "1": ["GPU-1::0"]}), ("uid-b", "main", {"0": ["GPU-1::1"]}))
    allocations = {(GPU, "GPU-1::0"): [holder("a")], (GPU, "GPU-1::1"): [holder("b")]}
    (one,) = given([offer(device("GPU-1", replicas=2))], allocations, kept).values()
    assert one == Given(frozenset({"default/a", "default/b"}), frozenset({"uid-a", "uid-b"}))
    assert names_of([one]) == {}


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b'{"Data": {"PodDeviceEntries": [{}]}}', b'{"Data": null}'])
def test_what_is_no_checkpoint_is_refused(content):
    """The look fails then, and says so."""
    with pytest.raises(ValueError, match=r"."):
        entries_of(content)


def test_a_checkpoint_without_pods_has_no_entries():
    """As the kubelet writes it at its first start."""
    assert entries_of(b'{"Data":{"PodDeviceEntries":null,"RegisteredDevices":{}},"Checksum":1}') == []
