"""Who has a device open in a real cluster: the ledger's word of it, and what must hold before a container starts.

The levers are nodes that every container can open, and that no other process has open: of /dev/full and /dev/urandom.
"""

import json
import textwrap
import time
from pathlib import Path

import pytest
from figures import note
from real_cluster import pod_spec

from devherd_sim.kubelet import checkpoint

LEVER = "example.com/lever"
LEDGER = {"ledger": {"enabled": True}, "health": {"poll": "1s", "recover_after": 1}, "scan": {"period": "1s"}}
GENERIC = {"generic": [{"name": LEVER, "groups": [{"paths": [{"path": "/dev/lever*"}]}]}]}
CHECKPOINT = "kubelet/device-plugins/kubelet_internal_checkpoint"
PROGRAM = Path("/var/lib/devherd/prove")
PATIENCE_SECONDS = 120
"""The ledger looks each 10 s, twice; the kubelet starts a container that failed again after 10, 20 and 40 s."""


@pytest.fixture(scope="module")
def cluster(make_cluster):
    """With two levers, and with devherd, which sees the processes of the node."""
    made = make_cluster("generic")
    for number, minor in enumerate((7, 9)):
        made.run("mknod", "-m", "666", f"/dev/lever{number}", "c", "1", str(minor))
    made.deploy(LEDGER | GENERIC, "ledger")
    made.until_allocatable_in_status(LEVER, 2)
    return made


@pytest.fixture
def create(cluster):
    """`create(name)` makes a pod that wants the lever."""
    names = []

    def made(name):
        names.append(name)
        cluster.create({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": pod_spec({LEVER: 1})})
        return name

    yield made
    for name in names:
        cluster.kubectl("delete", "pod", name, "--force", "--wait=true", "--ignore-not-found")


def lever(cluster, pod):
    """The node of the lever that a pod's container has."""
    [name] = cluster.inside(pod, "cd /dev; ls -d lever*").split()
    return f"/dev/{name}"


def conflicts(cluster, device):
    """The ledger's findings of a lever: reason and detail."""
    explained = json.loads(cluster.devherd("explain", LEVER, device, "--output", "json"))
    return sorted((one["reason"], one["detail"]) for one in explained["findings"] if one["source"] == "ledger")


def give(cluster, devices):
    """The kubelet starts again with a checkpoint that gives its pods, by uid, these devices."""
    cluster.kubelet.stop()
    file = cluster.directory / CHECKPOINT
    content = json.loads(file.read_bytes())
    for entry in content["Data"]["PodDeviceEntries"]:
        entry["DeviceIDs"] = {"-1": [devices[entry["PodUID"]]]}
    content["Checksum"] = checkpoint.checksum(content["Data"])
    file.write_text(json.dumps(content))
    cluster.start_kubelet()
    cluster.until_allocatable_in_status(LEVER, 2)


def test_two_containers_that_an_edited_checkpoint_gives_one_device_are_both_named_while_they_have_it_open(
    cluster, create
):
    """By the checkpoint the first has the other lever: so the second gets the first one's, and both keep it."""
    first, second = "first", "second"
    create(first)
    cluster.control_plane.until_running(first)
    [device] = cluster.held(first)["main"][LEVER]
    data = json.loads((cluster.directory / CHECKPOINT).read_bytes())["Data"]
    [other] = {*data["RegisteredDevices"][LEVER]} - {device}
    uid = cluster.control_plane.pod(first)["metadata"]["uid"]
    give(cluster, {uid: other})
    create(second)
    cluster.control_plane.until_running(second)
    give(cluster, {uid: device, cluster.control_plane.pod(second)["metadata"]["uid"]: device})
    for pod in (first, second):
        cluster.eventually(
            lambda pod=pod: cluster.held(pod) == {"main": {LEVER: [device]}}, f"the kubelet knows what {pod} has"
        )
        cluster.inside(pod, f"sleep 100000 3<{lever(cluster, pod)} >/dev/null 2>&1 </dev/null &")
    began = time.monotonic()
    found = cluster.eventually(
        lambda: len(found := conflicts(cluster, device)) == 2 and found, "both are named", PATIENCE_SECONDS
    )
    note("one device opened by two containers to both named", f"{time.monotonic() - began:.1f} s")
    assert [reason for reason, _ in found] == ["held-elsewhere", "held-elsewhere"]
    given = f"has {lever(cluster, first)} open; the kubelet has given it to default/{first}, default/{second}"
    assert all("(sleep) of pod " in detail and detail.endswith(given) for _, detail in found)
    cluster.kubectl("delete", "pod", second, "--force", "--wait=true")
    cluster.eventually(lambda: conflicts(cluster, device) == [], "the other one may have it", PATIENCE_SECONDS)


@pytest.fixture
def program(cluster):
    """Writes the program of the rule; the state directory is the only one of the host that devherd's pod has."""

    def write(body):
        text = "#!/bin/sh\n" + textwrap.dedent(body)
        cluster.run("sh", "-ec", f"cat >{PROGRAM}.new; chmod 755 {PROGRAM}.new; mv {PROGRAM}.new {PROGRAM}", given=text)

    return write


@pytest.fixture
def rule(cluster, program):
    """`rule(**pre_start)` is in force, with a program that ends well."""

    def deploy(**pre_start):
        program("exit 0")
        rules = {"resources": [{"match": {"vendor": "generic"}, "pre_start": pre_start}]}
        cluster.deploy(LEDGER | GENERIC | rules, "ledger")
        cluster.until_allocatable_in_status(LEVER, 2)

    yield deploy
    cluster.deploy(LEDGER | GENERIC, "ledger")


def events_of(cluster, pod):
    """Reason and message of what the kubelet notes of a pod."""
    selector = f"--field-selector=involvedObject.name={pod}"
    events = json.loads(cluster.kubectl("get", "events", selector, "-o", "json"))["items"]
    return [(event["reason"], event["message"]) for event in events]


def until_refused(cluster, pod, words):
    """Wait until a start has failed with these words, in the pod's events; it has no container."""
    whole = f"device plugin PreStartContainer rpc failed with err: rpc error: code = FailedPrecondition desc = {words}"
    cluster.eventually(
        lambda: ("Failed", f"Error: {whole}") in events_of(cluster, pod), f"the pod's events have {whole}", 60
    )
    [container] = cluster.control_plane.pod(pod)["status"]["containerStatuses"]
    assert "running" not in container["state"]


def test_a_container_does_not_start_while_a_program_fails_or_hangs_and_waits_for_one_that_takes_its_time(
    cluster, create, program, rule
):
    """Each reason is an event of its pod, which stays; the kubelet tries again until the program ends with 0."""
    rule(program=[str(PROGRAM)], timeout="4s")
    program("echo no answer; exit 3")
    name = create("patient")
    until_refused(cluster, name, f"{PROGRAM}: exit status 3: no answer")
    program("echo tried; sleep 1000")
    until_refused(cluster, name, f"{PROGRAM} took longer than 4 s: tried")
    program("sleep 2; echo it answers")
    cluster.eventually(lambda: cluster.control_plane.until_running(name), "it runs", PATIENCE_SECONDS)
    cluster.eventually(
        lambda: f"before the start: {PROGRAM} ended with 0: it answers" in cluster.devherd("events"), "its line"
    )
    assert lever(cluster, name).startswith("/dev/lever")


def test_a_container_starts_as_soon_as_the_process_that_has_its_device_open_ends(cluster, create, rule):
    """`occupied: wait`: without an error and without a back-off of the kubelet; a pod of devherd's sees the process."""
    rule(occupied="wait")
    holder = cluster.machine.start("sh", "-c", "exec sleep 100000 </dev/lever0 3</dev/lever1")
    name = create("waiting")
    cluster.eventually(lambda: ("Pulled" in dict(events_of(cluster, name))) or None, "its container is to start", 30)
    time.sleep(2)
    assert "running" not in cluster.control_plane.pod(name)["status"]["containerStatuses"][0]["state"]
    holder.stop()
    cluster.control_plane.until_running(name)
    assert "Failed" not in dict(events_of(cluster, name))
    cluster.eventually(lambda: "before the start: waited " in cluster.devherd("events"), "its line")
