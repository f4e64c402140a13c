"""devherd does its work within the rights that the DaemonSet leaves it, beside an embedded kubelet."""

import json
import shutil
import sys
import tempfile
import time
from pathlib import Path

import pytest
from pod_node import PodNode, shipped_pod_spec
from unshared import skip_without_namespaces

CONFIG = {
    "simulated": [{"name": "example.com/gpu", "count": 4}],
    "generic": [{"name": "example.com/null", "groups": [{"paths": [{"path": "/dev/null"}]}]}],
}
HEAR_EVENT = """
import select, time
from pathlib import Path
from devherd._native import UeventSocket
events = UeventSocket()
Path("/sys/class/mem/null/uevent").write_text("change")
select.select([events], [], [], 30)
print(*(f"{event['ACTION']}@{event['DEVPATH']}" for event in events.drain()[0]), sep="\\n")
"""


@pytest.fixture
def node():
    """A node whose pod is ready; its directory is short because UNIX sockets are put in it."""
    skip_without_namespaces()
    directory = Path(tempfile.mkdtemp(prefix="dh", dir="/tmp"))
    running = PodNode(directory, shipped_pod_spec(), CONFIG)
    try:
        running.wait_until_ready()
        yield running
    finally:
        running.end()
        shutil.rmtree(directory)


def test_devherd_serves_the_kubelet_within_the_rights_of_its_pod(node):
    """Without a capability, on a read-only root, it finds the host's devices, registers them and hands them out."""
    assert node.pod.status()["CapEff"] == "0000000000000000"
    inventory = json.loads(node.http("/api/v1/inventory"))
    assert [resource["name"] for resource in inventory["resources"]] == ["example.com/gpu", "example.com/null"]
    [device] = inventory["resources"][1]["devices"]
    assert device["nodes"][0]["host_path"] == "/dev/null"
    allocated = node.kubelet("allocate", "example.com/null", "1", "--pod", "train")
    assert allocated.returncode == 0, allocated.stderr
    assert "/dev/null" in allocated.stdout


def test_no_file_system_of_the_host_can_be_written_from_the_pod(node):
    """Nor those below /sys and /dev, as cgroups and /dev/shm; it writes to its own volumes and the kubelet's."""
    mounts = node.pod.writable_mounts()
    written = {mount["mountPath"] for mount in shipped_pod_spec()["containers"][0]["volumeMounts"]} & mounts
    assert written == {"/host/var/run/cdi", "/run/devherd", "/var/lib/devherd", "/var/lib/kubelet/device-plugins"}
    assert [place for place in mounts if place.startswith(("/host/sys", "/host/dev", "/host/proc"))] == []


def test_who_holds_a_device_is_read_through_a_read_only_volume(node):
    """The PodResources socket can be connected to although its directory is mounted read-only."""
    node.kubelet("allocate", "example.com/gpu", "1", "--pod", "train")
    deadline = time.monotonic() + 60
    while 'pod="train"' not in node.http("/metrics"):
        assert time.monotonic() < deadline, node.pod.log()
        time.sleep(0.1)


def test_a_pod_hears_the_kernels_device_events_without_the_hosts_network(node):
    """The kernel sends them to every network namespace of the initial user namespace."""
    heard = node.pod.inside(sys.executable, "-c", HEAR_EVENT)
    assert "change@/devices/virtual/mem/null" in heard.stdout, heard.stderr
    assert "cannot listen for uevents" not in node.pod.log()


def test_the_pod_ends_cleanly(node):
    """SIGTERM to the first process of the container ends all of it, and leaves no socket in the kubelet's directory."""
    assert node.pod.end() == 0
    assert [path.name for path in (node.kubelet_dir / "device-plugins").glob("devherd-*")] == []
