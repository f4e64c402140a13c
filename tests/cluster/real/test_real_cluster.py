"""devherd's DaemonSet in a real cluster: what its users' pods have, and what they keep."""

import json
import re
import signal

import pytest

FPGA = "fpga.intel.com/af-695.d84.aVKNtusxV3qMNmj5-qCB9thCTcSko8QT-J5DNoP5BAs"
QUICK = {"scan": {"period": "1s"}, "health": {"recover_after": 1}}
NO_DRIVER = "No such device or address"
"""What a device says that a container may open, and that has no driver."""
FORBIDDEN = "Operation not permitted"


@pytest.fixture(scope="module")
def cluster(make_cluster):
    """With devherd, on a node with four ports of an accelerator function."""
    made = make_cluster("fpga-8")
    made.deploy(QUICK)
    made.until_allocatable_in_status(FPGA, 4)
    return made


@pytest.fixture
def pod(cluster):
    """`pod(limits)` is the name of a pod that runs with these."""
    names = []

    def create(limits):
        names.append(f"pod-{len(names)}")
        cluster.create_pod(names[-1], limits)
        return names[-1]

    yield create
    for name in names:
        cluster.kubectl("delete", "pod", name, "--force", "--wait=true")


def ports(cluster, pod):
    """The ports that a container sees."""
    return re.findall(r"dfl-port\.\d+", cluster.inside(pod, "ls /dev"))


def test_a_container_opens_its_device_and_no_other(cluster, pod):
    """Neither its neighbour's nor, by a node that it makes itself, one that it was not given."""
    first, second, without = pod({FPGA: 1}), pod({FPGA: 1}), pod({})
    [of_first], [of_second] = ports(cluster, first), ports(cluster, second)
    assert of_first != of_second
    assert ports(cluster, without) == []
    for name, own, other in ((first, of_first, of_second), (second, of_second, of_first), (without, None, of_first)):
        if own:
            assert NO_DRIVER in cluster.opening(name, f"/dev/{own}")
        major, minor = (int(number) for number in cluster.run("stat", "-c", "%Hr %Lr", f"/dev/{other}").split())
        cluster.inside(name, f"mknod /tmp/{other} c {major} {minor}")
        assert FORBIDDEN in cluster.opening(name, f"/tmp/{other}")
    inventory = json.loads(cluster.devherd("status", "--output", "json"))
    [resource] = [each for each in inventory["resources"] if each["name"] == FPGA]
    allocated = {device["id"] for device in resource["devices"] if device["allocated"]}
    assert allocated == {of_first, of_second}


def test_a_device_that_fails_and_recovers_is_seen_in_the_node_and_in_the_pod(cluster, pod):
    """`allocatedResourcesStatus`; the container is not touched."""
    name = pod({FPGA: 1})
    [port] = ports(cluster, name)
    [(_, container, _)] = cluster.control_plane.until_running(name)
    errors = cluster.run("sh", "-c", f"ls -d /sys/class/fpga_region/region*/{port}/errors/errors").split()[0]
    cluster.run("sh", "-c", f"echo 0x1 >{errors}")
    cluster.until_allocatable_in_status(FPGA, 3)
    cluster.control_plane.until_health(name, {FPGA: {port: "Unhealthy"}})
    assert "port-error" in cluster.devherd("explain", FPGA, port)
    cluster.run("sh", "-c", f"echo 0x0 >{errors}")
    cluster.until_allocatable_in_status(FPGA, 4)
    cluster.control_plane.until_health(name, {FPGA: {port: "Healthy"}})
    assert cluster.control_plane.until_running(name) == [("main", container, 0)]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("program", ["kubelet", "containerd"])
def test_pods_and_devherd_live_through_a_restart(cluster, pod, program, number):
    """Of the kubelet and of the container runtime, clean or not: no container is started again."""
    name = pod({FPGA: 1})
    [port] = ports(cluster, name)
    before = cluster.control_plane.until_running(name), cluster.devherds_pod()
    getattr(cluster, program).stop(number)
    getattr(cluster, f"start_{program}")()
    cluster.until_allocatable_in_status(FPGA, 4)
    after = cluster.eventually(lambda: pod({FPGA: 1}), "another pod gets a device")
    assert ports(cluster, after) != [port]
    assert (cluster.control_plane.until_running(name), cluster.devherds_pod()) == before
    assert NO_DRIVER in cluster.opening(name, f"/dev/{port}")


def test_the_containers_of_users_live_through_the_end_of_devherds(cluster, pod):
    """Its supervisor gets SIGKILL: the kubelet starts the container again, and devherd registers again."""
    name = pod({FPGA: 1})
    before = cluster.control_plane.until_running(name)
    _, container, restarts = cluster.devherds_pod()
    cluster.ctr("tasks", "kill", "--signal", "SIGKILL", container.removeprefix("containerd://"))
    cluster.eventually(lambda: cluster.devherds_pod()[2] == restarts + 1, "devherd's container is started again", 60)
    cluster.until_rolled_out()
    assert NO_DRIVER in cluster.opening(pod({FPGA: 1}), f"/dev/{ports(cluster, 'pod-1')[0]}")
    assert cluster.control_plane.until_running(name) == before


def test_the_containers_of_users_live_through_a_roll_out(cluster, pod):
    """Of another image: another pod of devherd, and the node's status never says that there are no devices."""
    name = pod({FPGA: 1})
    before = cluster.control_plane.until_running(name)
    old, _, _ = cluster.devherds_pod()
    cluster.deploy(QUICK, tag="2")
    new, _, _ = cluster.devherds_pod()
    assert new != old
    revision = "echo $DEVHERD_REVISION"
    assert cluster.kubectl("-n", "devherd", "exec", new, "--", "sh", "-c", revision) == "2\n"
    cluster.until_allocatable_in_status(FPGA, 4)
    assert cluster.control_plane.until_running(name) == before
    cluster.deploy(QUICK)


def test_a_job_ends_whose_pods_come_while_devherd_rolls_out(cluster):
    """A pod that the kubelet admits in the gap is refused, and the Job makes it again: forty run in the end."""
    main = {"name": "main", "image": "localhost/small:1", "command": ["true"], "resources": {"limits": {FPGA: "1"}}}
    pods = {"spec": {"restartPolicy": "Never", "containers": [main]}}
    job = {"completions": 40, "parallelism": 4, "backoffLimit": 40, "template": pods}
    manifest = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "forty"}, "spec": job}
    cluster.kubectl("create", "-f", "-", given=json.dumps(manifest))
    cluster.kubectl("-n", "devherd", "rollout", "restart", "daemonset/devherd")
    cluster.until_rolled_out()

    def status():
        return json.loads(cluster.kubectl("get", "job", "forty", "-o", "json"))["status"]

    cluster.eventually(lambda: status().get("succeeded") == 40, "forty pods have ended well", 180)
    print(f"pods refused while devherd rolled out: {status().get('failed', 0)} of 40 and these")
    cluster.kubectl("delete", "job", "forty")
