"""A release of the Helm chart, at a real API server: installed, changed, taken back, removed."""

import os
import re
import shutil
import subprocess

import pytest
import yaml
from charts import CHART
from control_plane import ControlPlane
from node_feature_discovery import NODE_FEATURE_KIND

NAMESPACE = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "tools"}}
DAEMON_SETS = "/apis/apps/v1/namespaces/tools/daemonsets"
CONFIG_MAPS = "/api/v1/namespaces/tools/configmaps"
JOBS = "/apis/batch/v1/namespaces/tools/jobs"
OF_A_RELEASE = (
    DAEMON_SETS,
    CONFIG_MAPS,
    "/api/v1/namespaces/tools/serviceaccounts",
    "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings",
    "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies",
    "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings",
    JOBS,
)

JOB = "devherd-clean-nodes"
_TIME = "2026-01-01T00:00:00Z"
ENDED_WELL = {
    "startTime": _TIME,
    "completionTime": _TIME,
    "succeeded": 1,
    "conditions": [
        {"type": kind, "status": "True", "lastTransitionTime": _TIME} for kind in ("SuccessCriteriaMet", "Complete")
    ],
}
"""A Job's status, as its controller would write it."""


class Release:
    """Helm in the private machine of a control plane; its release `devherd` is in the namespace `tools`."""

    def __init__(self, program, control_plane, directory):
        self._program, self.control_plane, self._directory = program, control_plane, directory

    def __call__(self, command, *options, values=None):
        """What Helm prints. Raises ValueError with its words when it fails."""
        return self.end(self.begin(command, *options, values=values))

    def begin(self, command, *options, values=None):
        """Helm, which goes on."""
        if values is not None:
            file = self._directory / "values.yaml"
            file.write_text(yaml.safe_dump(values))
            options = (*options, f"--values={file}")
        homes = {f"HELM_{each}_HOME": str(self._directory / each) for each in ("CACHE", "CONFIG", "DATA")}
        return self.control_plane.node.machine.start(
            *(self._program, "helm", command, "devherd", *options),
            *("--namespace=tools", "--kubeconfig=/run/kubeconfig"),
            env=os.environ | homes, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    @staticmethod
    def end(inside):
        """Wait for it: what it prints. Raises ValueError with its words when it fails."""
        out, errors = inside.popen.communicate(timeout=100)
        if inside.popen.returncode:
            raise ValueError(errors)
        return out

    def objects(self):
        """What of it the API server has: kind of object and name."""
        found = set()
        for collection in OF_A_RELEASE:
            for each in self.control_plane.get(collection)["items"]:
                if each["metadata"].get("labels", {}).get("app.kubernetes.io/instance") == "devherd":
                    found.add((collection.rpartition("/")[2], each["metadata"]["name"]))
        return found

    def template(self, pool=""):
        """The pods of a DaemonSet, as their hash sees them."""
        return self.control_plane.get(f"{DAEMON_SETS}/devherd{pool}")["spec"]["template"]

    def config(self):
        """The configuration that the ConfigMap has."""
        return yaml.safe_load(self.control_plane.get(f"{CONFIG_MAPS}/devherd")["data"]["config.yaml"])


@pytest.fixture
def chart(tmp_path):
    """The chart as a directory without links, and for any version: an API server that `go build` makes has none."""
    place = shutil.copytree(CHART, tmp_path / "devherd")
    description = (place / "Chart.yaml").read_text()
    (place / "Chart.yaml").write_text(re.sub(r"(?m)^kubeVersion: .*\n", "", description))
    return place


@pytest.fixture
def release(whole_node, helm_and_kubectl, tmp_path):
    control_plane = ControlPlane(whole_node, "--allow-privileged=true")
    control_plane.make("/api/v1/namespaces", NAMESPACE)
    return Release(helm_and_kubectl, control_plane, tmp_path)


def test_a_release_is_installed_changed_taken_back_and_removed(release, chart):
    """A changed configuration rolls the pods, and nothing else does; of the API server's objects nothing is left."""
    single = {"components": ["events"], "config": {"log_level": "debug"}}
    release("install", chart, values=single)
    first, installed = release.template(), release.objects()
    assert release.config() == {"log_level": "debug"}
    assert ("clusterrolebindings", "tools-devherd-events") in installed
    assert ("validatingadmissionpolicies", "tools-devherd-events") in installed

    release("upgrade", chart, values=single)
    assert release.template() == first

    release("upgrade", chart, values=single | {"config": {"log_level": "info"}})
    assert release.config() == {"log_level": "info"}
    assert release.template() != first

    release("rollback", "1")
    assert (release.template(), release.config()) == (first, {"log_level": "debug"})

    release("upgrade", chart, values={"pools": [{"name": "gpu"}, {"name": "other", "rest": True}]})
    pools = {name for kind, name in release.objects() if kind == "daemonsets"}
    assert pools == {"devherd-gpu", "devherd-other"}
    assert ("clusterroles", "tools-devherd-events") not in release.objects()

    with pytest.raises(ValueError, match="additional properties 'perod' not allowed"):
        release("upgrade", chart, values={"config": {"scan": {"perod": "5s"}}})
    assert {name for kind, name in release.objects() if kind == "daemonsets"} == pools

    release("uninstall")
    assert release.objects() == set()


def test_an_uninstallation_cleans_the_nodes_and_leaves_nothing(release, chart, whole_node):
    """The Job comes when devherd is gone, with an account and rights that go with it; nobody but the test runs it."""
    control_plane = release.control_plane
    release("install", chart, values={"components": ["events", "labels-node", "config-by-label"]})
    assert not {("jobs", JOB), ("clusterroles", f"tools-{JOB}")} & release.objects()
    assert ("rolebindings", "tools-devherd-node-events") in release.objects()

    helm = release.begin("uninstall")
    whole_node.eventually(lambda: ("jobs", JOB) in release.objects(), "the Job is there")
    rights = {(kind, f"tools-{JOB}") for kind in ("clusterroles", "clusterrolebindings")}
    assert release.objects() == {("jobs", JOB), ("serviceaccounts", JOB), *rights}
    assert control_plane.get(f"{JOBS}/{JOB}")["spec"]["template"]["spec"]["serviceAccountName"] == JOB
    control_plane.made(f"{JOBS}/{JOB}/status", {"status": ENDED_WELL}, "PATCH")

    release.end(helm)
    assert release.objects() == set()


def test_a_release_keeps_its_nodes_when_node_feature_discovery_comes_later(release, chart, whole_node):
    """By default it is on the nodes with a label where the cluster has NFD at the installation, else on all."""

    def nodes():
        return release.control_plane.get(f"{DAEMON_SETS}/devherd")["metadata"]["annotations"]["devherd.io/nodes"]

    release("install", chart, values={})
    assert nodes() == "all"
    release.control_plane.make("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", NODE_FEATURE_KIND)
    group = "/apis/nfd.k8s-sigs.io/v1alpha1"
    whole_node.eventually(lambda: release.control_plane.get(group)["resources"], "the API group of NFD is served")
    release("upgrade", chart, values={})
    assert nodes() == "all"
    release("uninstall", "--no-hooks")
    release("install", chart, values={})
    assert nodes() == "nfd"
    release("upgrade", chart, values={"config": {"log_level": "debug"}})
    assert nodes() == "nfd"
    release("upgrade", chart, values={"nodes": "all"})
    assert nodes() == "all"


NODES = "/api/v1/nodes"
RUNTIME_CLASS = {
    "apiVersion": "node.k8s.io/v1",
    "kind": "RuntimeClass",
    "metadata": {"name": "nvidia"},
    "handler": "nvidia",
}


def node(name):
    """A node that is ready, without a kubelet."""
    size = {"cpu": "4", "memory": "8Gi", "pods": "10"}
    labels = {"kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64", "kubernetes.io/hostname": name}
    ready = {"type": "Ready", "status": "True", "lastHeartbeatTime": _TIME, "lastTransitionTime": _TIME}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "status": {"capacity": size, "allocatable": size, "conditions": [ready]},
    }


def test_pods_with_nvidias_runtime_class_come_to_nodes_with_nvidias_devices_alone(release, chart, whole_node):
    """Of two nodes without Node Feature Discovery one is of NVIDIA's; without its label the nodes are asked for.

    Defect: the pod was on both, and on the other one it never started (FailedCreatePodSandBox).
    """
    control_plane = release.control_plane
    control_plane.start(
        "kube-controller-manager", "--kubeconfig=/run/kubeconfig", "--leader-elect=false", "--secure-port=0",
        "--controllers=daemonset-controller,serviceaccount-controller",
    )  # fmt: skip
    control_plane.make("/apis/node.k8s.io/v1/runtimeclasses", RUNTIME_CLASS)
    for name in ("gpu", "plain"):
        control_plane.make(NODES, node(name))
    with pytest.raises(ValueError, match="nodes: it is not set, and which nodes have nvidia is not known — "):
        release("install", chart, values={"vendors": ["nvidia"]})

    label = {"metadata": {"labels": {"nvidia.com/gpu.present": "true"}}}
    control_plane.made(f"{NODES}/gpu", label, "PATCH")
    release("install", chart, values={"vendors": ["nvidia"]})

    def places():
        pods = control_plane.get("/api/v1/namespaces/tools/pods")["items"]
        return sorted(each["spec"].get("nodeName", "none yet") for each in pods)

    def status():
        return control_plane.get(f"{DAEMON_SETS}/devherd")["status"]["desiredNumberScheduled"]

    whole_node.eventually(lambda: places() == ["gpu"], "the pod is on the node with a GPU", 60)
    whole_node.eventually(lambda: status() == 1, "it is wanted on one node")
    [pod] = control_plane.get("/api/v1/namespaces/tools/pods")["items"]
    assert pod["spec"]["runtimeClassName"] == "nvidia"

    release("upgrade", chart, values={"vendors": ["nvidia"], "nodes": "all"})
    whole_node.eventually(lambda: "plain" in places(), "`nodes: all` has it on the other one, too", 60)
