"""A real API server knows each field that kustomize and Helm write, and the Prometheus operator's types theirs."""

import json
import subprocess

import pytest
import yaml
from charts import EXAMPLES
from control_plane import ControlPlane
from kustomizations import KUBERNETES, built, with_components

COLLECTIONS = {
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "ConfigMap": "/api/v1/namespaces/devherd/configmaps",
    "Job": "/apis/batch/v1/namespaces/devherd/jobs",
    "DaemonSet": "/apis/apps/v1/namespaces/devherd/daemonsets",
    "Namespace": "/api/v1/namespaces",
    "NetworkPolicy": "/apis/networking.k8s.io/v1/namespaces/devherd/networkpolicies",
    "ResourceQuota": "/api/v1/namespaces/devherd/resourcequotas",
    "Role": "/apis/rbac.authorization.k8s.io/v1/namespaces/devherd/roles",
    "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/devherd/rolebindings",
    "ServiceAccount": "/api/v1/namespaces/devherd/serviceaccounts",
    "ValidatingAdmissionPolicy": "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings",
}
OF_THE_OPERATOR = {"PodMonitor", "PrometheusRule"}


@pytest.fixture(scope="module")
def made(kubectl, helm, tmp_path_factory):
    """Every object that the directories, each component and each example make, once."""
    directories = [KUBERNETES, *KUBERNETES.glob("overlays/*")]
    directories += [KUBERNETES / name for name in ("clean-nodes", "network-policy", "podmonitor", "resource-quota")]
    manifests = [manifest for directory in directories for manifest in built(kubectl, directory)]
    for component in sorted((KUBERNETES / "components").iterdir()):
        manifests += with_components(kubectl, tmp_path_factory.mktemp("component"), component.name)
    manifests.append(yaml.safe_load((KUBERNETES / "network-policy/api-server.yaml").read_text()))
    for example in EXAMPLES:
        values = yaml.safe_load(example.read_text())
        manifests += helm.manifests(values) + helm.hooks(values)
    return list({json.dumps(manifest, sort_keys=True): manifest for manifest in manifests}.values())


def test_a_real_api_server_takes_every_object_and_knows_each_field(whole_node, made):
    """By a dry run with strict validation: nothing that it would drop or refuse."""
    control_plane = ControlPlane(whole_node, "--allow-privileged=true")
    [namespace] = [each for each in made if each["kind"] == "Namespace"]
    control_plane.make(COLLECTIONS["Namespace"], namespace)
    for manifest in made:
        if manifest is not namespace and manifest["kind"] not in OF_THE_OPERATOR:
            place = COLLECTIONS[manifest["kind"]].replace("/devherd/", f"/{manifest['metadata'].get('namespace')}/")
            control_plane.make(f"{place}?dryRun=All&fieldValidation=Strict", manifest)

    wrong = next(each for each in made if each["kind"] == "DaemonSet")
    wrong["spec"]["template"]["spec"]["priorityClasName"] = "x"
    with pytest.raises(LookupError, match=r"unknown field.*priorityClasName"):
        control_plane.make(f"{COLLECTIONS['DaemonSet']}?dryRun=All&fieldValidation=Strict", wrong)


def test_the_prometheus_operators_types_know_each_field(made, helm_and_kubectl):
    """And would not know another."""
    checked = [each for each in made if each["kind"] in OF_THE_OPERATOR]
    assert {each["kind"] for each in checked} == OF_THE_OPERATOR

    def check(manifest):
        command = [helm_and_kubectl, "check-monitoring"]
        return subprocess.run(command, input=json.dumps(manifest), capture_output=True, text=True, check=False)

    for manifest in checked:
        done = check(manifest)
        assert done.returncode == 0, done.stderr
        manifest["spec"]["misspelt"] = 1
        assert 'unknown field "misspelt"' in check(manifest).stderr
