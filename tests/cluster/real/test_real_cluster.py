"""devherd's DaemonSet in a real cluster: what its users' pods have, and what they keep."""

import json
import re
import signal
import time

import pytest
from figures import PodsAllTheTime, Watched, note, timed
from real_cluster import pod_spec

FPGA = "fpga.intel.com/af-695.d84.aVKNtusxV3qMNmj5-qCB9thCTcSko8QT-J5DNoP5BAs"
QUICK = {"scan": {"period": "1s"}, "health": {"recover_after": 1, "forget_after": "10s"}}
NO_DRIVER = "No such device or address"
"""What a device says that a container may open, and that has no driver."""
FORBIDDEN = "Operation not permitted"


@pytest.fixture(scope="module")
def cluster(make_cluster):
    """With devherd, on a node with four ports of an accelerator function."""
    made = make_cluster("fpga-8")
    with timed("DaemonSet applied to everything registered"):
        made.deploy(QUICK)
    made.until_allocatable_in_status(FPGA, 4)
    made.note_memory("2 resources")
    return made


@pytest.fixture
def pod(cluster):
    """`pod(limits)` is the name of a pod that runs with these."""
    names = []

    def create(limits):
        names.append(f"pod-{len(names)}")
        with timed("pod created to running"):
            cluster.create_pod(names[-1], limits)
        return names[-1]

    yield create
    for name in names:
        cluster.kubectl("delete", "pod", name, "--force", "--wait=true", "--ignore-not-found")


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
    began = time.monotonic()
    in_node = in_pod = None
    while in_node is None or in_pod is None:
        passed = time.monotonic() - began
        assert passed < 60, (in_node, in_pod)
        if in_node is None and cluster.control_plane.numbers(FPGA)[1] == 3:
            in_node = passed
        if in_pod is None and cluster.control_plane.health(name) == {FPGA: {port: "Unhealthy"}}:
            in_pod = passed
        time.sleep(0.02)
    note("device failed to seen in the node's status", f"{in_node:.1f} s")
    note("device failed to seen in the pod's status", f"{in_pod:.1f} s")
    with pytest.raises(OSError, match="port-error"):  # its exit code is 1 while the device is ill
        cluster.devherd("explain", FPGA, port)
    cluster.run("sh", "-c", f"echo 0x0 >{errors}")
    cluster.until_allocatable_in_status(FPGA, 4)
    cluster.control_plane.until_health(name, {FPGA: {port: "Healthy"}})
    assert cluster.control_plane.until_running(name) == [("main", container, 0)]


LONGER_THAN_LISTED_SECONDS = 30
TAKE_OUT = """\
set -e
function=$(readlink -f /sys/class/fpga_region/region*/{port}/../../..)
address=${{function##*/}}
links=$(find /sys/class /sys/bus /sys/dev -lname "*$address*")
tar -cf /tmp/card.tar -C / "${{function#/}}" $(for link in $links; do echo "${{link#/}}"; done)
rm -rf $links "$function"
"""
"""Takes the card of a port off the bus, and keeps it in an archive."""


def test_a_card_that_is_lost_under_a_running_pod_is_unhealthy_in_its_status_for_as_long_as_it_runs(cluster, pod):
    """Defect: the kubelet called it Healthy as soon as it had left the list, after `forget_after`."""
    name = pod({FPGA: 1})
    [port] = ports(cluster, name)
    cluster.run("sh", "-c", TAKE_OUT.format(port=port))
    try:
        cluster.control_plane.until_health(name, {FPGA: {port: "Unhealthy"}})
        until = time.monotonic() + LONGER_THAN_LISTED_SECONDS
        while time.monotonic() < until:
            assert cluster.control_plane.health(name) == {FPGA: {port: "Unhealthy"}}
            time.sleep(0.5)
        [lost] = json.loads(cluster.devherd("status", "--output", "json"))["lost"]
        assert (lost["device"], lost["last_held_by"], lost["is_listed"]) == (port, [f"default/{name}"], True)
        cluster.kubectl("delete", "pod", name, "--force", "--wait=true")
        cluster.eventually(
            lambda: (
                [each["is_listed"] for each in json.loads(cluster.devherd("status", "--output", "json"))["lost"]]
                == [False]
            ),
            "it leaves the list, and is remembered",
            60,
        )
        assert port in cluster.devherd("status")
    finally:
        cluster.run("tar", "-xf", "/tmp/card.tar", "-C", "/")
    cluster.until_allocatable_in_status(FPGA, 4)
    assert json.loads(cluster.devherd("status", "--output", "json"))["lost"] == []


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
    """Of another image: another pod of devherd stands by, and takes over; nobody's container is touched.

    The node's status never says that there are no devices, and no probe of the new pod fails.
    """
    name = pod({FPGA: 1})
    before = cluster.control_plane.until_running(name)
    old, _, _ = cluster.devherds_pod()
    with Watched(cluster, FPGA) as watched:
        cluster.deploy(QUICK, tag="2")
    note("roll-out: kubelet without devices", f"{watched.gap:.2f} s")
    new, _, restarts = cluster.devherds_pod()
    assert new != old
    assert restarts == 0
    revision = "echo $DEVHERD_REVISION"
    assert cluster.kubectl("-n", "devherd", "exec", new, "--", "sh", "-c", revision) == "2\n"
    log = cluster.kubectl("-n", "devherd", "logs", new)
    assert log.index("standing by: ") < log.index("taking over after ")
    assert failed_probes(cluster, new) == []
    cluster.until_allocatable_in_status(FPGA, 4)
    assert cluster.control_plane.until_running(name) == before
    cluster.deploy(QUICK)


def test_no_pod_is_refused_over_ten_roll_outs(cluster):
    """One comes each tenth of a second, and the kubelet never has fewer devices than before."""
    shared = {"resources": [{"match": {"vendor": "intel-fpga"}, "sharing": {"replicas": 16}}]}
    cluster.deploy(QUICK | shared)
    cluster.until_allocatable_in_status(FPGA, 64)
    with Watched(cluster, FPGA) as watched, PodsAllTheTime(cluster, pod_spec({FPGA: 1})) as pods:
        for _ in range(10):
            cluster.kubectl("-n", "devherd", "rollout", "restart", "daemonset/devherd")
            cluster.until_rolled_out()
    note("ten roll-outs: pods admitted, refused", f"{pods.admitted}, {len(pods.refused)}")
    note("ten roll-outs: fewest devices that the kubelet had", str(watched.fewest))
    assert pods.refused == []
    assert watched.fewest == 64
    assert pods.admitted > 100
    cluster.deploy(QUICK)
    cluster.until_allocatable_in_status(FPGA, 4)


def test_devherd_registers_at_a_kubelets_directory_that_is_made_anew(cluster, pod):
    """As `kubeadm reset` and `join` do: its pod had the old one, where nobody listens; its container starts again."""
    _, _, restarts = cluster.devherds_pod()
    cluster.kubelet.stop()
    cluster.run("rm", "-rf", "/var/lib/kubelet/device-plugins")
    cluster.start_kubelet()
    cluster.eventually(lambda: cluster.devherds_pod()[2] > restarts, "devherd's container is started again", 60)
    cluster.until_rolled_out()
    cluster.until_allocatable_in_status(FPGA, 4)
    assert NO_DRIVER in cluster.opening(pod({FPGA: 1}), f"/dev/{ports(cluster, 'pod-0')[0]}")


def failed_probes(cluster, pod):
    """What the kubelet notes of probes of a pod of devherd."""
    events = json.loads(cluster.kubectl("-n", "devherd", "get", "events", "-o", "json"))["items"]
    return [
        event["message"]
        for event in events
        if event["reason"] == "Unhealthy" and event["involvedObject"]["name"] == pod
    ]


def test_an_image_that_cannot_start_leaves_the_old_one_in_place(cluster, pod):
    """The roll-out stops at the node, whose devices go on being served; undone, it was nothing."""
    old = cluster.devherds_pod()
    cluster.kubectl("-n", "devherd", "set", "env", "daemonset/devherd", "DEVHERD_LOG_LEVEL=lound")

    def is_refused():
        others = [each for each in cluster.devherds() if each["metadata"]["name"] != old[0]]
        return any(each["status"]["containerStatuses"][0]["restartCount"] for each in others)

    cluster.eventually(is_refused, "the new one has ended, and was started again", 60)
    pod({FPGA: 1})
    cluster.kubectl("-n", "devherd", "rollout", "undo", "daemonset/devherd")
    cluster.until_rolled_out()
    assert cluster.devherds_pod() == old


def test_a_job_ends_whose_pods_come_while_devherd_rolls_out(cluster):
    """A pod that the kubelet admits in the gap is refused, and the Job makes it again: forty run in the end."""
    template = {"spec": pod_spec({FPGA: 1}, "true") | {"restartPolicy": "Never"}}
    job = {"completions": 40, "parallelism": 4, "backoffLimit": 40, "template": template}
    cluster.create({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "forty"}, "spec": job})
    with Watched(cluster, FPGA) as watched:
        cluster.kubectl("-n", "devherd", "rollout", "restart", "daemonset/devherd")
        cluster.until_rolled_out()

    def status():
        return json.loads(cluster.kubectl("get", "job", "forty", "-o", "json"))["status"]

    cluster.eventually(lambda: status().get("succeeded") == 40, "forty pods have ended well", 180)
    note("roll-out beside a Job: kubelet without devices", f"{watched.gap:.2f} s")
    note("roll-out beside a Job: pods refused", f"{status().get('failed', 0)} of 40")
    cluster.kubectl("delete", "job", "forty")


def test_the_kubelet_finds_devherd_in_its_plugins_registry(cluster, pod):
    """The component; also after a restart of the kubelet. Back to calls, nothing is left there."""
    registry = ("sh", "-c", "ls /var/lib/kubelet/plugins_registry")
    cluster.deploy(QUICK, "plugins-registry")
    assert "devherd-" in cluster.run(*registry)
    pod({FPGA: 1})
    cluster.kubelet.stop()
    cluster.start_kubelet()
    cluster.eventually(lambda: cluster.says("/readyz") == "ok\n", "registered again", 60)
    cluster.until_allocatable(FPGA, 4)
    cluster.deploy(QUICK)
    assert "devherd-" not in cluster.run(*registry)
    assert NO_DRIVER in cluster.opening(pod({FPGA: 1}), f"/dev/{ports(cluster, 'pod-1')[0]}")


def test_a_comparison_says_what_differs_from_the_plugins_of_today_and_is_ready_where_nothing_does(
    cluster, sample_plugin
):
    """Beside devherd and a published plugin. It registers nothing; `rollout status` waits for the last difference."""
    places = ("sh", "-c", "ls /var/lib/kubelet/device-plugins")
    before = cluster.run(*places)
    sample = cluster.machine.start(sample_plugin)
    cluster.until_allocatable_in_status("example.com/resource", 2)
    cluster.compare(QUICK)
    newest = ("-n", "devherd", "logs", "daemonset/devherd-compare")

    def said():
        try:
            return cluster.kubectl(*newest)
        except OSError:  # its container does not run yet
            return ""

    cluster.eventually(lambda: "example.com/resource: 2 ≠ 0 ids, 1 difference\n" in said(), "it says what differs", 90)
    assert f"{FPGA}: 4 = 4 ids, 0 differences\n" in said()
    waiting = ("-n", "devherd", "rollout", "status", "daemonset/devherd-compare")
    with pytest.raises(OSError, match="timed out"):
        cluster.kubectl(*waiting, "--timeout=5s")
    sample.stop()
    cluster.kubectl(*waiting, "--timeout=180s")
    cluster.eventually(lambda: "Nothing differs" in said(), "it says that nothing differs", 90)
    cluster.kubectl("-n", "devherd", "delete", "daemonset/devherd-compare", "--wait=true")
    cluster.eventually(lambda: len(cluster.devherds()) == 1, "its pod is gone", 60)
    assert cluster.run(*places) == before


LISTEN = """
import socket
kernel = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 15)  # NETLINK_KOBJECT_UEVENT
kernel.bind((0, 1))
kernel.settimeout(30)
print("listening", flush=True)
while b"/devices/virtual/mem/null" not in kernel.recv(65536):
    pass
print("heard", flush=True)
"""


def test_devherd_hears_the_kernels_events_without_rights_and_without_the_hosts_network(cluster):
    """Its pod has a network of its own, no capability, and the runtime's filter of system calls."""
    pod, _, _ = cluster.devherds_pod()
    inside = ("-n", "devherd", "exec", pod, "--")
    status = dict(line.split(":\t", 1) for line in cluster.kubectl(*inside, "cat", "/proc/1/status").splitlines())
    assert {status[name].strip("0") for name in ("CapEff", "CapPrm", "CapBnd", "CapAmb")} == {""}
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
    listening = cluster.begin_kubectl(*inside, "python3", "-c", LISTEN)
    assert listening.stdout.readline() == "listening\n"
    cluster.run("sh", "-c", f"echo change >{cluster.directory}/lower-sys/devices/virtual/mem/null/uevent")
    assert listening.communicate()[0] == "heard\n"


def test_after_a_boot_controllers_make_their_pods_again_and_a_bare_one_stays_refused(cluster, pod):
    """All containers have ended and /run is empty: the kubelet admits pods before devherd's, one of them, is there."""
    bare = pod({FPGA: 1})
    labels = {"app": "kept"}
    template = {"metadata": {"labels": labels}, "spec": pod_spec({FPGA: 1})}
    deployment = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
    cluster.create({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "kept"}, "spec": deployment})
    cluster.kubectl("rollout", "status", "deployment/kept", "--timeout=60s")
    cluster.reboot()
    began = time.monotonic()
    cluster.eventually(lambda: cluster.control_plane.has_failed(bare), "the bare pod is refused", 120)
    assert cluster.control_plane.pod(bare)["status"]["reason"] == "UnexpectedAdmissionError"

    def runs_again():
        pods = json.loads(cluster.kubectl("get", "pods", "-l", "app=kept", "-o", "json"))["items"]
        return any(is_running(each) for each in pods)

    cluster.eventually(runs_again, "the Deployment's pod runs", 180)
    note("boot: kubelet's start to a Deployment's pod with its device", f"{time.monotonic() - began:.1f} s")
    cluster.until_rolled_out()
    assert cluster.control_plane.has_failed(bare)
    cluster.kubectl("delete", "deployment", "kept", "--wait=true")


def is_running(pod):
    """Whether a pod's container runs now, by what the kubelet wrote after the boot."""
    containers = pod["status"].get("containerStatuses", [])
    return "deletionTimestamp" not in pod["metadata"] and any("running" in each["state"] for each in containers)
