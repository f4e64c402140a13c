"""`devherd status`: what an instance's files say, as a table and as JSON, and that there is no instance."""

import json
import shutil
import socket

import pytest
import scratch
from command_line import devherd

from devherd import spool
from devherd.proto.spool_pb2 import Child, Children, Device, Problem, Resource, ResourceState, ScanSummary

GPU = Resource(
    name="example.com/gpu",
    vendor="simulated",
    devices=[Device(id="0"), Device(id="1", reasons=["xid"]), Device(id="2", warnings=["link-degraded"])],
)
NIC = Resource(name="example.com/nic", vendor="simulated", devices=[Device(id="a")])


@pytest.fixture
def run_dir():
    """The files of an instance with two resources, and a socket where its supervisor would listen."""
    directory = scratch.directory()
    for name in ("offers", "offers/device-plugin", "state"):
        (directory / name).mkdir()
    for resource in (GPU, NIC):
        spool.write(spool.path_of(directory / "offers/device-plugin", spool.key_of(resource.name)), resource)
    state = ResourceState(name=GPU.name, registered=True, streams=1)
    spool.write(spool.path_of(directory / "state", spool.key_of(GPU.name)), state)
    problem = Problem(vendor="simulated", path="/sys/x", error="unreadable", device="7")
    spool.write(directory / "scan.pb", ScanSummary(duration_seconds=0.25, problems=[problem]))
    children = [
        Child(name="scanner", state="RUNNING", pid=11, restarts={"signal": 2, "exit": 0}),
        Child(name="resource:example.com_gpu", state="RUNNING", pid=12),
        Child(name="resource:example.com_nic", state="BACKOFF", last_exit="signal 9"),
    ]
    spool.write(directory / "children.pb", Children(children=children))
    with socket.socket(socket.AF_UNIX) as supervisor:
        supervisor.bind(str(directory / "supervisor.sock"))
        supervisor.listen()
        yield directory
    shutil.rmtree(directory)


def options(run_dir):
    """The run directory, and a kubelet directory without a kubelet."""
    return "--run-dir", run_dir, "--kubelet-dir", run_dir / "kubelet"


def test_the_table_shows_resources_what_is_wrong_and_processes(run_dir):
    """Every fact where it is looked for, one line for each resource."""
    outcome = devherd("status", *options(run_dir))
    lines = [line.split("   ") for line in outcome.stdout.splitlines()]
    cells = [[cell.strip() for cell in line if cell.strip()] for line in lines]

    assert (outcome.code, outcome.stderr) == (0, "")
    assert cells == [
        ["RESOURCE", "HEALTHY", "TOTAL", "ALLOCATED", "REGISTERED", "PROCESS"],
        ["example.com/gpu", "2", "3", "unknown", "yes", "RUNNING 12"],
        ["example.com/nic", "1", "1", "unknown", "its process is BACKOFF, last exit: signal 9", "BACKOFF"],
        [],
        ["RESOURCE", "DEVICE", "HEALTH", "NUMA", "WHAT A CONTAINER GETS"],
        ["example.com/gpu", "1", "Unhealthy: xid"],
        ["example.com/gpu", "2", "Healthy (warning: link-degraded)"],
        ["why: devherd explain RESOURCE DEVICE"],
        [],
        ["PROBLEM OF", "DEVICE", "PATH", "ERROR"],
        ["simulated", "7", "/sys/x", "unreadable"],
        [],
        ["PROCESS", "STATE", "RESTARTS", "LAST EXIT"],
        ["resource:example.com_gpu", "RUNNING 12"],
        ["resource:example.com_nic", "BACKOFF", "signal 9"],
        ["scanner", "RUNNING 11", "2 by signal"],
    ]


def test_the_json_is_the_live_inventory_with_the_processes(run_dir):
    """Each resource says whether it is registered, or why not, and which process serves it."""
    status = json.loads(devherd("status", "--output", "json", *options(run_dir)).stdout)

    assert status["duration_seconds"] == 0.25
    assert [
        (resource["name"], resource["registered"], resource["detail"], resource["child"])
        for resource in status["resources"]
    ] == [
        ("example.com/gpu", True, "", "resource:example.com_gpu"),
        ("example.com/nic", False, "its process is BACKOFF, last exit: signal 9", "resource:example.com_nic"),
    ]
    assert status["children"][2] == {
        "name": "scanner",
        "state": "RUNNING",
        "pid": 11,
        "restarts": {"exit": 0, "signal": 2},
        "last_exit": None,
    }


def test_without_an_instance_it_exits_with_4():
    """No directory, and a directory that a dead instance left."""
    outcome = devherd("status", "--run-dir", "/tmp/devherd-that-never-ran")
    assert outcome.code == 4
    assert "no instance runs in /tmp/devherd-that-never-ran" in outcome.error_line


def test_a_dead_instances_socket_is_no_instance(run_dir):
    """A SIGKILLed supervisor leaves its socket behind; nobody listens on it."""
    (run_dir / "supervisor.sock").unlink()
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(run_dir / "supervisor.sock"))

    outcome = devherd("status", *options(run_dir))

    assert outcome.code == 4
    assert "Connection refused" in outcome.error_line


def test_the_run_directory_may_come_from_the_config_file(run_dir, tmp_path):
    """As every option may."""
    config = tmp_path / "config.yaml"
    config.write_text(f"run_dir: {run_dir}\nkubelet_dir: {run_dir}/kubelet\n")

    assert "example.com/gpu" in devherd("status", "--config", config).stdout
