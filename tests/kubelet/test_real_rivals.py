"""A stream that is cut while the kubelet lives on: by another plugin of the same resource, or by a list too long."""

import time

import pytest
from harness_program import KUBERNETES
from raw_plugin import RawPlugin, register
from real_kubelet import pod
from resource_child import RESOURCE, device, eventually

from devherd.kubelet.endpoint import traces_of_others


@pytest.fixture
def rival(child_node):
    """A vendor's own plugin, serving the same resource; not registered yet."""
    child_node.kubelet.start()
    plugin = RawPlugin(child_node.kubelet.plugins / "rival.sock", resource=RESOURCE)
    yield plugin
    plugin.stop()


def test_devherd_takes_a_resource_over_from_a_plugin_that_is_removed_afterwards(child_node, rival):
    """Up to 1.36 the kubelet cuts devherd's stream when the old one's ends; devherd registers anew. 1.37 keeps it."""
    assert register(child_node.kubelet.plugins, "rival.sock", RESOURCE) == ""
    rival.send("theirs")
    child_node.until_capacity(1, 1)
    child_node.serve(device("0"), device("1"))
    first = child_node.state().endpoint
    rival.stop()
    if KUBERNETES < (1, 37):
        eventually(lambda: child_node.state().registered and child_node.state().endpoint != first)
    else:
        eventually(lambda: "Device plugin disconnected" in child_node.kubelet.log.read_text())
        assert child_node.state().endpoint == first
    child_node.until_capacity(2, 2)
    assert child_node.kubelet.admit(pod("a", {RESOURCE: 2})).main.paths == ["/dev/0", "/dev/1"]


@pytest.mark.parametrize("way", ["kubelet_socket", "plugins_registry"])
def test_a_resource_comes_back_after_another_plugin_of_it_came_and_went(child_node, way):
    """The kubelet drops its devices and leaves the stream open: only PodResources shows it."""
    child_node.environment = {"DEVHERD_TEST_KUBELET_CHECK": "0.2", "DEVHERD_REGISTRATION": way}
    child_node.kubelet.start(plugins_registry=True)
    child_node.serve(device("0"), device("1"))
    eventually(lambda: child_node.state().registered)
    first = child_node.state().endpoint
    rival = RawPlugin(child_node.kubelet.plugins / "rival.sock", resource=RESOURCE)
    assert register(child_node.kubelet.plugins, "rival.sock", RESOURCE) == ""
    rival.send("theirs")
    child_node.until_capacity(1, 1)
    rival.stop()
    eventually(lambda: child_node.logged("the kubelet has lost our devices, although the stream is still open"))
    child_node.until_capacity(2, 2)
    eventually(lambda: child_node.state().registered)
    assert child_node.state().endpoint != first
    assert child_node.kubelet.admit(pod("a", {RESOURCE: 2})).main.paths == ["/dev/0", "/dev/1"]


def test_the_end_of_a_plugin_with_the_same_devices_is_noticed(child_node):
    """Up to 1.36 the kubelet drops the devices of both: no list has shown that there was another plugin."""
    child_node.environment = {"DEVHERD_TEST_KUBELET_CHECK": "0.2"}
    child_node.kubelet.start()
    child_node.serve(device("0"), device("1"))
    eventually(lambda: child_node.state().registered)
    rival = RawPlugin(child_node.kubelet.plugins / "rival.sock", resource=RESOURCE)
    assert register(child_node.kubelet.plugins, "rival.sock", RESOURCE) == ""
    rival.send("0", "1")
    time.sleep(1)  # it is asked in this time, and has the devices
    rival.stop()
    if KUBERNETES < (1, 37):
        eventually(lambda: child_node.logged("the kubelet has lost our devices, although the stream is still open"))
    child_node.until_capacity(2, 2)


def test_the_kubelet_leaves_a_trace_of_each_list(child_node, rival):
    """It replaces its checkpoint, also for a list that changes nothing: without a trace, there was none."""
    plugins = child_node.kubelet.plugins

    def traces():
        return traces_of_others([plugins], RESOURCE, [plugins / "rival.sock"])

    assert register(plugins, "rival.sock", RESOURCE) == ""
    rival.send("theirs")
    child_node.until_capacity(1, 1)
    for _ in range(3):
        eventually(traces)
        before = traces()
        rival.send("theirs")
        eventually(lambda: traces() not in (None, before))  # noqa: B023 - called at once


@pytest.mark.parametrize("devices", [[device("0")], [device("0", numa=[0, 1])], [device("0", "xid")], []])
def test_a_kubelet_that_has_the_devices_is_left_alone(child_node, devices):
    """Asked many times, nothing happens: one stream, one registration."""
    child_node.environment = {"DEVHERD_TEST_KUBELET_CHECK": "0.05"}
    child_node.kubelet.start(numa_nodes=[0, 1])
    child_node.write(*devices)
    child_node.run()
    eventually(lambda: child_node.state().registered)
    time.sleep(1)
    assert child_node.state().registered
    assert child_node.kubelet.registrations(RESOURCE) == 1


def test_a_list_that_the_kubelet_does_not_take_costs_the_stream_until_there_is_a_shorter_one(child_node):
    """It tries again ever later, not in a tight loop, and is back with the first list that fits."""
    child_node.kubelet.start()
    child_node.serve(device("0"))
    child_node.write(*(device(f"{number:064}") for number in range(60_000)))
    eventually(lambda: not child_node.state().registered)
    time.sleep(3)
    assert child_node.kubelet.registrations(RESOURCE) < 15
    child_node.write(device("0"), device("1"))
    child_node.until_capacity(2, 2)
    eventually(lambda: child_node.state().registered)
