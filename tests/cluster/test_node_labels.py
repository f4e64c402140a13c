"""Labels at a real API server, under the rights of the components: on the node, and by NodeFeature objects."""

import json
import os
import signal
from pathlib import Path

import pytest
import yaml
from control_plane import ControlPlane
from node_feature_discovery import NODE_FEATURE_KIND
from private_machine import NAME

from devherd.kubernetes.labels import ANNOTATION

COMPONENTS = Path(__file__).parents[2] / "deploy/kubernetes/components"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
NAMESPACE = f"{RBAC}/namespaces/devherd"
COLLECTIONS = {
    "ClusterRole": f"{RBAC}/clusterroles",
    "ClusterRoleBinding": f"{RBAC}/clusterrolebindings",
    "Role": f"{NAMESPACE}/roles",
    "RoleBinding": f"{NAMESPACE}/rolebindings",
}
GPU = "nvidia.com/gpu"
FEATURES = "/apis/nfd.k8s-sigs.io/v1alpha1/namespaces/devherd/nodefeatures"


@pytest.fixture
def control_plane(whole_node):
    """Where devherd is a pod with a service account, but for the pod."""
    made = ControlPlane(whole_node)
    made.let_devherd_in()
    made.make("/api/v1/namespaces", {"metadata": {"name": "devherd"}})
    return made


def start(control_plane, write: str) -> None:
    control_plane.node.start("nvidia-8-nvswitch", {"node_labels": {"write": write}}, **control_plane.of_a_pod())
    control_plane.until_ready()
    control_plane.until_numbers(GPU, 8, 8)


def grant(control_plane, component: str) -> None:
    for rights in yaml.safe_load_all((COMPONENTS / component / "rbac.yaml").read_text()):
        control_plane.make(COLLECTIONS[rights["kind"]], rights)


def reload(node, write: str) -> None:
    file = node.directory / "config.yaml"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"node_labels": {"write": write}}))
    os.kill(node.herd.pid, signal.SIGHUP)


def test_the_node_gets_its_labels_with_the_rights_and_loses_its_own_alone(control_plane):
    """Without the rights it is a problem with the cure; a pod that selects a GPU's product is sent there."""
    start(control_plane, "node")
    node = control_plane.node
    node.eventually(lambda: "components/labels-node" in node.log, "it says what is missing")
    before = control_plane.labels()
    assert not [name for name in before if name.startswith(("nvidia.com/", "devherd.io/"))]

    grant(control_plane, "labels-node")

    node.eventually(lambda: control_plane.labels().get(f"{GPU}.count") == "8", "the labels are there", 90)
    labels = control_plane.labels()
    assert labels[f"{GPU}.product"] == "NVIDIA-H100-80GB-HBM3"
    assert labels["devherd.io/nvidia.com_gpu.count"] == "8"
    owned = control_plane.get(f"/api/v1/nodes/{NAME}")["metadata"]["annotations"][ANNOTATION].split(",")
    assert {name: labels[name] for name in labels if name not in owned} == before

    reload(node, "none")
    node.eventually(lambda: control_plane.labels() == before, "its labels are gone, and no others")


def test_node_feature_discovery_gets_an_object_in_devherds_namespace(control_plane):
    """The rights end there. While the kind is unknown it says what to install."""
    grant(control_plane, "labels-node-feature")
    start(control_plane, "node_feature")
    node = control_plane.node
    node.eventually(lambda: "install Node Feature Discovery" in node.log, "it says what is missing")

    control_plane.make("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", NODE_FEATURE_KIND)

    def found():
        try:
            return control_plane.get(f"{FEATURES}/devherd-features-for-{NAME}")
        except LookupError:
            return None

    made = node.eventually(found, "the object is there", 90)
    assert made["metadata"]["labels"] == {"nfd.node.kubernetes.io/node-name": NAME}
    assert made["spec"]["labels"][f"{GPU}.count"] == "8"

    reload(node, "none")
    node.eventually(lambda: found() is None, "it is removed")
