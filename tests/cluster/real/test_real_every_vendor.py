"""A node with the hardware of every vendor: all is offered, and what it takes."""

import json
import time

from figures import Watched, note

GPU = "nvidia.com/gpu"


def test_a_node_of_every_vendor_offers_all_in_one_pod(make_cluster):
    """Each resource is in the node's status, and a pod of several has them all; in a roll-out none is away for long."""
    cluster = make_cluster("everything")
    cluster.deploy({})
    inventory = json.loads(cluster.devherd("status", "--output", "json"))
    offered = {each["name"]: len(each["devices"]) for each in inventory["resources"]}
    assert len(offered) > 5
    for name, count in offered.items():
        cluster.until_allocatable(name, count)
    cluster.until_allocatable_in_status(GPU, offered[GPU])
    cluster.create_pod("all", dict.fromkeys(offered, 1))
    time.sleep(10)  # each of its processes has done all that it does
    cluster.note_memory(f"{len(offered)} resources")
    with Watched(cluster, GPU) as watched:
        cluster.deploy({}, tag="2")
    note(f"roll-out of {len(offered)} resources: kubelet without devices of one", f"{watched.gap:.2f} s")
