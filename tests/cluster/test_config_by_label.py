"""A label of the node chooses the configuration, at a real API server and under the rights of the component."""

import json
import os
from pathlib import Path

import pytest
import yaml
from control_plane import ControlPlane
from private_machine import NAME
from whole_node import QUICK

RBAC = Path(__file__).parents[2] / "deploy/kubernetes/components/config-by-label/rbac.yaml"
ROLES = "/apis/rbac.authorization.k8s.io/v1"
LABEL = "nvidia.com/device-plugin.config"


class ConfigMap:
    """The directory of a ConfigMap, as the kubelet has it: files are links through `..data`, which is swapped."""

    def __init__(self, directory: Path, **resources: str) -> None:
        self.directory = directory
        self._version = 0
        directory.mkdir()
        self.hold(**resources)

    def hold(self, **resources: str) -> None:
        """One configuration for each, which offers three devices of the resource."""
        self._version += 1
        version = self.directory / f"..{self._version}"
        version.mkdir()
        for name, resource in resources.items():
            content = QUICK | {"simulated": [{"name": resource, "count": 3}] if "/" in resource else resource}
            (version / name).write_text(json.dumps(content))
            if not (self.directory / name).is_symlink():
                (self.directory / name).symlink_to(f"..data/{name}")
        (self.directory / "..new").symlink_to(version.name)
        (self.directory / "..new").rename(self.directory / "..data")


@pytest.fixture
def cluster(whole_node):
    control_plane = ControlPlane(whole_node)
    control_plane.let_devherd_in()
    return control_plane


def start(cluster) -> ConfigMap:
    configs = ConfigMap(
        cluster.node.directory / "configs", default="example.com/plain", mig="example.com/mig", bad="nonsense"
    )
    environment = cluster.of_a_pod() | {"DEVHERD_CONFIGS": str(configs.directory)}
    cluster.node.start("generic", **environment)
    cluster.until_ready()
    return configs


def grant(cluster) -> None:
    for right in yaml.safe_load_all(RBAC.read_text()):
        if right["metadata"]["name"] == "devherd-node-events" and "roleRef" in right:  # as the chart binds it
            right["kind"], right["metadata"]["namespace"] = "RoleBinding", "default"
            cluster.make(f"{ROLES}/namespaces/default/rolebindings", right)
        else:
            cluster.make(f"{ROLES}/{right['kind'].lower()}s", right)


def events(cluster) -> list[tuple[str, str]]:
    found = cluster.get("/api/v1/namespaces/default/events")["items"]
    mine = [each for each in found if each["reason"].startswith("Configuration")]
    mine.sort(key=lambda each: int(each["metadata"]["resourceVersion"]))
    return [(each["involvedObject"]["name"], each["reason"]) for each in mine]


def test_the_label_is_followed_and_a_wrong_one_leaves_the_last_good_in_force(cluster):
    """No restart; the kubelet's node has the one's devices and then the other's."""
    grant(cluster)
    configs = start(cluster)
    cluster.until_numbers("example.com/plain", 3, 3)
    supervisor = cluster.node.herd.pid

    cluster.label(LABEL, "mig")
    cluster.until_numbers("example.com/mig", 3, 3)

    cluster.label(LABEL, "absent")
    cluster.node.eventually(lambda: "no configuration `absent`" in cluster.node.log, "it says so")
    cluster.node.eventually(lambda: events(cluster) == [(NAME, "ConfigurationRefused")], "it is an Event")
    cluster.label(LABEL, "bad")
    cluster.node.eventually(lambda: "bad configuration in" in cluster.node.log, "it says what is wrong")
    cluster.until_numbers("example.com/mig", 3, 3)

    configs.hold(default="example.com/plain", mig="example.com/mig", bad="example.com/mended")
    cluster.until_numbers("example.com/mended", 3, 3)
    cluster.node.eventually(lambda: events(cluster)[-1] == (NAME, "ConfigurationLoaded"), "it is an Event")
    assert cluster.node.herd.pid == supervisor
    os.kill(supervisor, 0)


def test_without_the_rights_the_default_is_in_force_and_that_is_said(cluster):
    """Once they are given the label is followed."""
    start(cluster)
    cluster.label(LABEL, "mig")
    cluster.until_numbers("example.com/plain", 3, 3)
    cluster.node.eventually(lambda: "components/config-by-label" in cluster.node.log, "it says the cure")

    grant(cluster)

    cluster.node.eventually(lambda: cluster.numbers("example.com/mig") == (3, 3), "it follows the label", 90)
