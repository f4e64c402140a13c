"""`devherd explain`: the evidence against a device of a running instance, as text and as JSON."""

import json
import shutil
import socket
import tempfile
from pathlib import Path

import offered
import pytest
from command_line import devherd

from devherd import spool
from devherd.proto import devices_pb2, health_pb2
from devherd.proto.spool_pb2 import Children, Device, Offer

CARD = "0000:3b:00.0"
GPU = Offer(
    name="example.com/gpu",
    vendor="nvidia",
    devices=[
        Device(id="GPU-0", vendor="nvidia", card=CARD, reasons=["node-missing"], warnings=["link-degraded"]),
        Device(id="GPU-1", vendor="nvidia", card="0000:5e:00.0", replicas=2),
    ],
)
MISSING = health_pb2.Held(
    source="node",
    reason="node-missing",
    detail="the device node is absent",
    file="/dev/nvidia0",
    value="absent",
    first_timestamp_seconds=1_763_800_000,
    last_timestamp_seconds=1_763_800_060,
    count=2,
    do="make the node",
    ends="when 3 polls in a row find it there",
    so_far="not there since 08:26:40Z",
)
NARROW = health_pb2.Held(
    source="pci-link",
    reason="link-degraded",
    action=health_pb2.WARN,
    count=1,
    ends="when 1 poll finds its best link",
    only_warned="already set at the first look",
    rule="health.rules[1]",
    is_waiting=True,
    so_far="counts at 07:58:23Z if it lasts",
)
PAST = health_pb2.Held(source="pci-aer-fatal", reason="pci-aer", count=1, is_over=True)


@pytest.fixture
def run_dir():
    """The files of an instance with one resource, and a socket where its supervisor would listen."""
    directory = Path(tempfile.mkdtemp(prefix="dh", dir="/tmp"))
    offered.put(directory, GPU)
    verdict = health_pb2.Verdict(vendor="nvidia", card=CARD, device="GPU-0", held=[NARROW, MISSING, PAST])
    failed = health_pb2.SourceState(source="nvml", failed="driver not loaded")
    spool.write(directory / "verdicts.pb", health_pb2.Verdicts(verdicts=[verdict], sources=[failed]))
    index = devices_pb2.Fact(number=0, source="/proc/driver/nvidia/gpus")
    facts = {"index": index, "uuid": devices_pb2.Fact(text="u")}
    known = devices_pb2.Device(vendor="nvidia", card=CARD, id="GPU-0", attributes=facts)
    entry = devices_pb2.KnownDevice(device=known, resource_name="nvidia.com/gpu")
    spool.write(directory / "devices.pb", devices_pb2.Inventory(devices=[entry]))
    spool.write(directory / "children.pb", Children())
    with socket.socket(socket.AF_UNIX) as supervisor:
        supervisor.bind(str(directory / "supervisor.sock"))
        supervisor.listen()
        yield directory
    shutil.rmtree(directory)


def options(run_dir):
    """The run directory, and a kubelet directory without a kubelet."""
    return "--run-dir", run_dir, "--kubelet-dir", run_dir / "kubelet"


def test_the_text_says_what_was_read_where_since_when_and_what_takes_it_back(run_dir):
    """All that an operator asks when a device is Unhealthy."""
    outcome = devherd("explain", "example.com/gpu", "GPU-0", *options(run_dir))

    assert (outcome.code, outcome.stderr) == (1, "")
    assert outcome.stdout.splitlines() == [
        "example.com/gpu GPU-0 is Unhealthy: node-missing",
        "  do:          make the node",
        "  warning:     link-degraded",
        "  vendor:      nvidia",
        "  card:        0000:3b:00.0",
        "  chosen by:   unknown",
        "  held by:     unknown, the kubelet cannot be asked, or pods have it by claims",
        "  source nvml cannot check devices: driver not loaded",
        "",
        "findings:",
        "  link-degraded (warn), by source pci-link: ",
        "    seen:       first 1970-01-01T00:00:00Z, last 1970-01-01T00:00:00Z, raised once",
        "    warning:    already set at the first look",
        "    judged by:  health.rules[1]",
        "    ends:       when 1 poll finds its best link",
        "    so far:     counts at 07:58:23Z if it lasts",
        "  node-missing (unhealthy), by source node: the device node is absent",
        "    read:       /dev/nvidia0: absent",
        "    seen:       first 2025-11-22T08:26:40Z, last 2025-11-22T08:27:40Z, raised 2 times",
        "    ends:       when 3 polls in a row find it there",
        "    so far:     not there since 08:26:40Z",
        "",
        "past events:",
        "  pci-aer (unhealthy), by source pci-aer-fatal: ",
        "    seen:       first 1970-01-01T00:00:00Z, last 1970-01-01T00:00:00Z, raised once",
        "",
        "facts:",
        "  index = 0  (/proc/driver/nvidia/gpus)",
        "  uuid = u",
    ]


def test_the_json_has_the_same_for_programs(run_dir):
    """Times in UTC, null for what is not known."""
    told = json.loads(devherd("explain", "example.com/gpu", "GPU-0", "--output", "json", *options(run_dir)).stdout)

    assert told["findings"][1] == {
        "reason": "node-missing",
        "action": "unhealthy",
        "source": "node",
        "detail": "the device node is absent",
        "file": "/dev/nvidia0",
        "value": "absent",
        "first_seen": "2025-11-22T08:26:40Z",
        "last_seen": "2025-11-22T08:27:40Z",
        "count": 2,
        "only_warned": None,
        "rule": None,
        "waiting": False,
        "do": "make the node",
        "ends": "when 3 polls in a row find it there",
        "so_far": "not there since 08:26:40Z",
    }
    assert (told["health"], told["reasons"], told["warnings"]) == ("Unhealthy", ["node-missing"], ["link-degraded"])
    assert (told["allocated"], told["failed_sources"]) == (None, {"nvml": "driver not loaded"})


@pytest.mark.parametrize("device", ["GPU-1", "GPU-1::0", "GPU-1::1"])
def test_a_shared_device_is_explained_by_its_own_id_and_by_each_of_the_kubelets(run_dir, device):
    """An operator has the one from `devherd status`, and the other from the vendor's tool."""
    outcome = devherd("explain", "example.com/gpu", device, *options(run_dir))

    assert outcome.stdout.splitlines()[0] == f"example.com/gpu {device} is Healthy"


@pytest.mark.parametrize(
    ("resource", "device", "complaint"),
    [
        ("example.com/gpus", "GPU-0", "did you mean `example.com/gpu`?"),
        ("example.com/gpu", "GPU-7", "choose from GPU-0, GPU-1::0, GPU-1::1"),
    ],
)
def test_a_name_that_is_not_there_is_an_error_with_those_that_are(run_dir, resource, device, complaint):
    """Names are long and copied by hand."""
    outcome = devherd("explain", resource, device, *options(run_dir))

    assert outcome.code == 2
    assert complaint in outcome.error_line


def test_without_an_instance_it_exits_with_4():
    """As every command that asks the running instance."""
    outcome = devherd("explain", "a.b/c", "d", "--run-dir", "/tmp/devherd-that-never-ran")
    assert outcome.code == 4
    assert "no instance runs in /tmp/devherd-that-never-ran" in outcome.error_line
