"""A cordon at the kubelet's own device manager: no new pod gets the device, and its holder keeps it."""

import subprocess
import sys

from real_kubelet import pod

NAME = "example.com/gpu"
CONFIG = {"simulated": [{"name": NAME, "count": 2}], "health": {"poll": "100ms"}}


def command(herd_node, *words):
    options = ("--run-dir", herd_node.directory / "run")
    subprocess.run([sys.executable, "-m", "devherd", *words, *options], check=True, capture_output=True)


def test_a_cordoned_device_is_given_to_no_new_pod_and_stays_with_its_holder(herd_node):
    """Capacity stays, allocatable falls; uncordoned, it is given again. Registered once all the while."""
    herd_node.start("fpga-1", CONFIG)
    herd_node.until_capacity(NAME, 2, 2)
    (held,) = herd_node.kubelet.admit(pod("holder", {NAME: 1})).main.device_ids[NAME]
    (free,) = set(herd_node.kubelet.devices(NAME)) - {held}

    for device_id in (held, free):
        command(herd_node, "cordon", NAME, device_id)
    herd_node.until_capacity(NAME, 2, 0)
    refused = herd_node.kubelet.admit(pod("next", {NAME: 1}))
    command(herd_node, "uncordon", NAME, free)
    herd_node.until_capacity(NAME, 2, 1)
    admitted = herd_node.kubelet.admit(pod("after", {NAME: 1}))

    assert not refused.admitted
    assert admitted.main.device_ids[NAME] == [free]
    assert herd_node.kubelet.registrations(NAME) == 1
