"""Kustomizations of users over deploy/kubernetes: pools together, another namespace or image, two in a cluster."""

import shutil

import pytest
import yaml
from kustomizations import KUBERNETES, built, of_kind

POOLS = ("amd", "nvidia", "other")
IMAGE = {"name": "registry.example.com/devherd", "newName": "registry.example.org/tools/devherd", "newTag": "1.2.3"}


@pytest.fixture
def own(kubectl, tmp_path):
    """What a kustomization beside a copy of deploy/ makes; `resources` and `components` are below kubernetes/."""
    shutil.copytree(KUBERNETES, tmp_path / "deploy/kubernetes")

    def made(name="mine", **fields):
        for key in ("resources", "components"):
            fields[key] = [f"../deploy/kubernetes/{each}" for each in fields.get(key, ())]
        (tmp_path / name).mkdir()
        (tmp_path / name / "kustomization.yaml").write_text(yaml.safe_dump(fields))
        return built(kubectl, tmp_path / name)

    return made


def test_all_pools_are_one_kustomization_in_a_namespace_of_ones_own(own):
    """With one image for all, and the namespace not among what `kubectl delete -k` would delete."""
    manifests = own(resources=[f"overlays/{pool}" for pool in POOLS], namespace="tools", images=[IMAGE])

    assert not of_kind("Namespace", manifests)
    assert {each["metadata"]["namespace"] for each in manifests} == {"tools"}
    daemon_sets = of_kind("DaemonSet", manifests)
    assert [each["metadata"]["name"] for each in daemon_sets] == [f"devherd-{pool}" for pool in POOLS]
    configured = {each["metadata"]["name"] for each in of_kind("ConfigMap", manifests)}
    for daemon_set in daemon_sets:
        pod = daemon_set["spec"]["template"]["spec"]
        assert [each["image"] for each in pod["containers"]] == ["registry.example.org/tools/devherd:1.2.3"]
        assert {each["configMap"]["name"] for each in pod["volumes"] if "configMap" in each} <= configured
        assert pod["serviceAccountName"] == daemon_set["metadata"]["name"]


def test_rights_in_another_namespace_are_for_the_account_there(own):
    """Kustomize moves roles, bindings and whom they are for together."""
    manifests = own(
        resources=["namespace", "base"], components=["components/events", "components/labels-node-feature"],
        namespace="tools",
    )  # fmt: skip
    assert [each["metadata"]["name"] for each in of_kind("Namespace", manifests)] == ["tools"]
    bindings = [each for each in manifests if "subjects" in each]
    assert len(bindings) == 2
    for binding in bindings:
        assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "devherd", "namespace": "tools"}]


def test_a_second_installation_with_a_suffix_shares_no_object_with_the_first(own):
    """Roles of the cluster have no namespace that would keep them apart."""
    parts = {"resources": ["base"], "components": ["components/events"]}
    first = own(**parts, namespace="devherd")
    second = own("second", **parts, namespace="tools", nameSuffix="-tools")

    def places(manifests):
        return {(each["kind"], each["metadata"].get("namespace"), each["metadata"]["name"]) for each in manifests}

    assert not places(first) & places(second)
    [binding] = of_kind("ClusterRoleBinding", second)
    assert binding["roleRef"]["name"] == "devherd-events-tools"
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "devherd-tools", "namespace": "tools"}]


def test_a_component_over_one_pool_is_that_pools_alone(own):
    """Named in a kustomization over an overlay, with its names."""
    [daemon_set] = of_kind("DaemonSet", own(resources=["overlays/nvidia"], components=["components/kernel-log"]))
    [container] = daemon_set["spec"]["template"]["spec"]["containers"]
    assert daemon_set["metadata"]["name"] == "devherd-nvidia"
    assert container["securityContext"]["privileged"] is True
