"""A pause by NVIDIA's managers at a real API server, under the rights of the component."""

from pathlib import Path

import pytest
import yaml
from control_plane import ControlPlane

from devherd import spool
from devherd.proto.spool_pb2 import NvidiaPause
from devherd_sim.node.nvidia import NvidiaSpec
from devherd_sim.node.spec import NodeSpec

RBAC = Path(__file__).parents[2] / "deploy/kubernetes/components/nvidia-pause/rbac.yaml"
ROLES = "/apis/rbac.authorization.k8s.io/v1"
CLIENT = "nvidia.com/gpu.deploy.client"


@pytest.fixture
def cluster(whole_node):
    control_plane = ControlPlane(whole_node)
    control_plane.let_devherd_in()
    return control_plane


def start(cluster) -> None:
    spec = NodeSpec(nvidia=NvidiaSpec(gpus=2))
    cluster.node.start(spec, {"kubernetes": {"nvidia_pause": True, "events": False}}, **cluster.of_a_pod())
    cluster.until_ready()
    cluster.until_numbers("nvidia.com/gpu", 2, 2)


def grant(cluster) -> None:
    for right in yaml.safe_load_all(RBAC.read_text()):
        cluster.make(f"{ROLES}/{right['kind'].lower()}s", right)


def paused(cluster) -> str:
    """What the label was set to, by the process that watches; empty without a pause."""
    return spool.read_or_empty(cluster.node.directory / "run/devherd/kubernetes/nvidia-pause.pb", NvidiaPause).value


def test_each_change_of_the_label_is_followed_at_once(cluster):
    """By a watch of the one node: what `source:nvml` reads is there and gone again. The GPUs stay as they are."""
    grant(cluster)
    start(cluster)
    for value in ("paused-for-driver-upgrade", "paused-for-mig-change"):
        cluster.label(CLIENT, value)
        cluster.node.eventually(lambda value=value: paused(cluster) == value, value)
        cluster.label(CLIENT, "true")
        cluster.node.eventually(lambda: not paused(cluster), "it is over")
    cluster.until_numbers("nvidia.com/gpu", 2, 2)


def test_without_the_right_to_watch_that_is_said_with_its_cure(cluster):
    """Once it is given a pause is seen."""
    start(cluster)
    cluster.label(CLIENT, "paused-for-mig-change")
    cluster.node.eventually(lambda: "components/nvidia-pause" in cluster.node.log, "it says the cure")
    assert not paused(cluster)
    grant(cluster)
    cluster.node.eventually(lambda: paused(cluster) == "paused-for-mig-change", "it is seen", 90)
