"""Events at a real API server, under real rights: on the node, and on the pod that holds the device."""

from pathlib import Path

import pytest
import yaml
from control_plane import ControlPlane
from private_machine import NAME

from devherd_sim.node import faults

CRYPTO = "fpga.intel.com/af-695.d84.aVKNtusxV3qMNmj5-qCB9thCTcSko8QT-J5DNoP5BAs"
GPU = "nvidia.com/gpu"
RBAC = [
    Path(__file__).parents[2] / "deploy/kubernetes/components" / component / "rbac.yaml"
    for component in ("events", "node-condition")
]
BINDINGS = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
ROLES = "/apis/rbac.authorization.k8s.io/v1/clusterroles"


@pytest.fixture
def cluster(whole_node):
    """A cluster whose node has two FPGAs, and where devherd is a pod with a service account, but for the pod."""
    control_plane = ControlPlane(whole_node)
    control_plane.let_devherd_in()
    whole_node.start("fpga-opae-2", {"kubernetes": {"node_condition": True}}, **control_plane.of_a_pod())
    control_plane.until_ready()
    control_plane.until_numbers(CRYPTO, 1, 1)
    return control_plane


def grant(cluster) -> None:
    for file in RBAC:
        role, binding = yaml.safe_load_all(file.read_text())
        cluster.make(ROLES, role)
        cluster.make(BINDINGS, binding)


def events(cluster, namespace="default") -> list[tuple[str, str, str, str]]:
    """Kind and name of what devherd's are about, reason and message, as they came."""
    found = cluster.get(f"/api/v1/namespaces/{namespace}/events")["items"]
    mine = sorted(
        (each for each in found if each["source"].get("component") == "devherd"),
        key=lambda each: int(each["metadata"]["resourceVersion"]),
    )
    return [
        (each["involvedObject"]["kind"], each["involvedObject"]["name"], each["reason"], each["message"])
        for each in mine
    ]


def condition(cluster) -> str:
    conditions = cluster.get(f"/api/v1/nodes/{NAME}")["status"]["conditions"]
    return next((each["status"] for each in conditions if each["type"] == "DevicesUnhealthy"), "")


def test_a_device_that_fails_is_an_event_of_its_node_and_of_the_pod_that_holds_it(cluster):
    """And another when it is well again; the node's condition follows."""
    grant(cluster)
    cluster.create("sick", {CRYPTO: 1})
    cluster.until_running("sick")
    uid = cluster.pod("sick")["metadata"]["uid"]
    [port] = cluster.node.held("sick")["main"][CRYPTO]

    faults.inject(cluster.node.node, "fpga-errors", port)
    cluster.node.eventually(lambda: len(events(cluster)) == 2, "it is told that it fails")
    cluster.node.eventually(lambda: condition(cluster) == "True", "the condition is a problem")
    faults.clear(cluster.node.node, "fpga-errors", port)
    cluster.node.eventually(lambda: len(events(cluster)) == 4, "it is told that it is well")
    cluster.node.eventually(lambda: condition(cluster) == "False", "the condition is none")

    told = events(cluster)
    assert [(kind, name, reason) for kind, name, reason, _ in told] == [
        ("Node", NAME, "DeviceUnhealthy"),
        ("Pod", "sick", "DeviceUnhealthy"),
        ("Node", NAME, "DeviceHealthy"),
        ("Pod", "sick", "DeviceHealthy"),
    ]
    assert told[0][3].startswith(f"{CRYPTO}: Unhealthy: {port} (port-error")
    assert (
        "; PCI address 0000:01:00.0, slot 1; held by default/sick; ends when 2 polls in a row read none" in told[0][3]
    )
    found = cluster.get("/api/v1/namespaces/default/events?fieldSelector=involvedObject.uid=" + uid)
    assert len(found["items"]) >= 2


def test_without_the_rights_it_says_how_to_get_them_and_tells_when_it_has_them(cluster):
    """The kubelet hears of the device all the same."""
    (port,) = cluster.node.allocatable(CRYPTO)
    faults.inject(cluster.node.node, "fpga-errors", port)
    cluster.until_numbers(CRYPTO, 1, 0)
    cluster.node.eventually(lambda: "components/events" in cluster.node.log, "the log says what is missing")

    grant(cluster)

    cluster.node.eventually(lambda: len(events(cluster)) == 1, "it is told late")


def test_an_applications_own_xid_is_an_event_of_its_pod(whole_node):
    """Of the pod that holds the GPU, which stays Healthy; the process is named."""
    cluster = ControlPlane(whole_node)
    cluster.let_devherd_in()
    grant(cluster)
    whole_node.start("nvidia-8", **cluster.of_a_pod())
    cluster.until_ready()
    cluster.until_numbers(GPU, 8, 8)
    cluster.create("app", {GPU: 1})
    cluster.until_running("app")
    [gpu] = whole_node.held("app")["main"][GPU]

    gpus = (whole_node.directory / "node/proc/driver/nvidia/gpus").iterdir()
    [address] = [place.name for place in gpus if gpu in (place / "information").read_text()]

    faults.inject(whole_node.node, "xid", address, "13, pid=4711, name=python3, Graphics SM Warp Exception")
    whole_node.eventually(lambda: events(cluster), "the pod is told")

    said = f"{GPU} {gpu}: Xid 13: GR_EXCEPTION of process 4711, python3: Graphics SM Warp Exception"
    assert events(cluster) == [("Pod", "app", "ApplicationXid", said)]
    assert cluster.numbers(GPU) == (8, 8)
