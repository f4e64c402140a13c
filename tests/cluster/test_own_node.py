"""What a token of devherd may do at a real API server: what it needs, of its own node, and nothing else."""

import json
import signal
from pathlib import Path

import pytest
import yaml
from control_plane import ControlPlane
from node_feature_discovery import NODE_FEATURE_KIND
from private_machine import NAME

from devherd.kubernetes.condition import CONDITION
from devherd.kubernetes.labels import ANNOTATION
from devherd_sim.node import faults

COMPONENTS = Path(__file__).parents[2] / "deploy/kubernetes/components"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
ADMISSION = "/apis/admissionregistration.k8s.io/v1"
CRYPTO = "fpga.intel.com/af-695.d84.aVKNtusxV3qMNmj5-qCB9thCTcSko8QT-J5DNoP5BAs"
ACCOUNT = "system:serviceaccount:devherd:devherd"
NODE, OTHER = f"/api/v1/nodes/{NAME}", "/api/v1/nodes/node-2"
USED = ("events", "labels-node", "node-condition", "config-by-label")
COLLECTIONS = {
    "ClusterRole": f"{RBAC}/clusterroles",
    "ClusterRoleBinding": f"{RBAC}/clusterrolebindings",
    "Role": f"{RBAC}/namespaces/devherd/roles",
    "RoleBinding": f"{RBAC}/namespaces/devherd/rolebindings",
    "ValidatingAdmissionPolicy": f"{ADMISSION}/validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": f"{ADMISSION}/validatingadmissionpolicybindings",
}
AUDIT = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata"}],
}
FEATURES = "/apis/nfd.k8s-sigs.io/v1alpha1/namespaces/devherd/nodefeatures"


class Cluster(ControlPlane):
    """With two nodes, of which the second is a Node alone, and a pod of devherd's account on each."""

    def __init__(self, node) -> None:
        (node.directory / "run/audit.json").write_text(json.dumps(AUDIT))
        options = ("--audit-policy-file=/run/audit.json", "--audit-log-path=/run/audit.log")
        super().__init__(node, "--disable-admission-plugins=ServiceAccount", *options)
        self.let_devherd_in()
        self.make("/api/v1/namespaces", {"metadata": {"name": "devherd"}})
        self.make("/api/v1/namespaces/devherd/serviceaccounts", {"metadata": {"name": "devherd"}})
        self.make("/api/v1/nodes", {"metadata": {"name": "node-2"}})
        for number in (1, 2):
            self._make_pod(f"devherd-{number}", f"node-{number}")

    def _make_pod(self, name: str, node: str) -> None:
        container = {"name": "main", "image": "devherd"}
        spec = {"nodeName": node, "serviceAccountName": "devherd", "containers": [container]}
        self.make("/api/v1/namespaces/devherd/pods", {"metadata": {"name": name}, "spec": spec})

    def grant(self, *components: str) -> None:
        for component in components:
            for file in ("rbac.yaml", "policy.yaml"):
                for each in yaml.safe_load_all((COMPONENTS / component / file).read_text()):
                    self.make(COLLECTIONS[each["kind"]], each)

    def token_of(self, pod: str) -> str:
        """As the kubelet gives it to the pod: it names the node on which the pod is."""
        bound = {"kind": "Pod", "apiVersion": "v1", "name": pod}
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"boundObjectRef": bound}}
        answer = self.made("/api/v1/namespaces/devherd/serviceaccounts/devherd/token", request)
        return answer["status"]["token"]

    def as_devherd(self, token: str, method: str, path: str, body: dict) -> tuple[int, str]:
        """Status and message of what the API server answers."""
        kind = "application/strategic-merge-patch+json" if method == "PATCH" else "application/json"
        if method == "PATCH" and path.startswith(FEATURES):
            kind = "application/merge-patch+json"
        headers = {"Authorization": f"Bearer {token}", "Content-Type": kind}
        url = f"https://127.0.0.1:6443{path}"
        status, content = self.node.machine.ask(url, method, json.dumps(body), **headers)
        return status, json.loads(content).get("message", "")

    def delete_node(self) -> None:
        """As `kubectl delete node`."""
        self._ask(NODE, "DELETE")

    def calls(self) -> set[tuple[str, str]]:
        """Verb and resource of each call by devherd's account, from the audit log."""
        found = set()
        for line in (self.node.directory / "run/audit.log").read_text().splitlines():
            event = json.loads(line)
            if event["user"]["username"] == ACCOUNT:
                about = event["objectRef"]
                resource = "/".join(filter(None, (about["resource"], about.get("subresource"))))
                found.add((event["verb"], resource))
        return found


@pytest.fixture
def cluster(whole_node):
    return Cluster(whole_node)


def granted(*components: str) -> set[tuple[str, str]]:
    """Verb and resource of each right."""
    objects = [
        each for name in components for each in yaml.safe_load_all((COMPONENTS / name / "rbac.yaml").read_text())
    ]
    rules = [rule for each in objects for rule in each.get("rules", ())]
    return {(verb, resource) for rule in rules for verb in rule["verbs"] for resource in rule["resources"]}


def labels(**values: str | None) -> dict:
    return {"metadata": {"labels": {name.replace("__", "/"): value for name, value in values.items()}}}


def condition(kind: str, status: str = "True") -> dict:
    return {"status": {"conditions": [{"type": kind, "status": status}]}}


def event(node: str, component: str = "devherd", name: str = "") -> dict:
    about = {"kind": "Node", "name": node, "uid": node}
    source = {"component": component, "host": node}
    return {"metadata": {"name": name or f"{node}.1"}, "involvedObject": about, "source": source, "reason": "X"}


def feature(node: str, of: str = "") -> dict:
    metadata = {"name": f"devherd-features-for-{node}", "labels": {"nfd.node.kubernetes.io/node-name": of or node}}
    return {"apiVersion": "nfd.k8s-sigs.io/v1alpha1", "kind": "NodeFeature", "metadata": metadata, "spec": {}}


EVENTS = "/api/v1/namespaces/default/events"
OWN = [
    ("PATCH", NODE, labels(**{"nvidia.com/gpu.count": "8", "devherd.io/a_b.count": "1"})),
    ("PATCH", NODE, labels(**{"nvidia.com/gpu.count": None})),
    ("PATCH", NODE, {"metadata": {"annotations": {ANNOTATION: "nvidia.com/gpu.count"}}}),
    ("PATCH", f"{NODE}/status", condition(CONDITION)),
    ("PATCH", f"{NODE}/status", {"status": {"conditions": [{"type": CONDITION, "$patch": "delete"}]}}),
    ("POST", EVENTS, event(NAME)),
    ("PATCH", f"{EVENTS}/{NAME}.1", {"count": 2}),
    ("POST", FEATURES, feature(NAME)),
    ("DELETE", f"{FEATURES}/devherd-features-for-{NAME}", {}),
]
FOREIGN = [
    ("PATCH", OTHER, labels(**{"nvidia.com/gpu.count": "8"}), "own node alone"),
    ("PATCH", f"{OTHER}/status", condition(CONDITION), "own node alone"),
    ("PATCH", NODE, labels(**{"node-role.kubernetes.io/control-plane": ""}), "labels of devices alone"),
    ("PATCH", NODE, labels(**{"nvidia.com/gpu.deploy.client": "false"}), "labels of devices alone"),
    ("PATCH", NODE, labels(**{"nvidia.com/device-plugin.config": "mig"}), "labels of devices alone"),
    ("PATCH", NODE, labels(**{"kubernetes.io/os": None}), "labels of devices alone"),
    ("PATCH", NODE, {"metadata": {"annotations": {"example.com/x": "y"}}}, "annotation devherd.io/labels alone"),
    ("PATCH", NODE, {"metadata": {"finalizers": ["example.com/x"]}}, "labels and one annotation alone"),
    ("PATCH", NODE, {"spec": {"unschedulable": True}}, "no node's spec"),
    ("PATCH", NODE, {"spec": {"taints": [{"key": "x", "effect": "NoExecute"}]}}, "no node's spec"),
    ("PATCH", f"{NODE}/status", condition("Ready", "Unknown"), "condition DevicesUnhealthy alone"),
    ("PATCH", f"{NODE}/status", {"status": {"capacity": {"nvidia.com/gpu": "9"}}}, "status a condition alone"),
    ("PATCH", f"{NODE}/status", {"status": {"addresses": None}}, "status a condition alone"),
    ("PATCH", f"{NODE}/status", labels(**{"nvidia.com/gpu.count": "8"}), "nothing by its status"),
    ("POST", EVENTS, event("node-2"), "Events of its own node alone"),
    ("POST", EVENTS, event(NAME, "kubelet"), "no Events of others"),
    ("PATCH", f"{EVENTS}/of-the-kubelet", {"source": {"component": "devherd"}}, "no Events of others"),
    ("POST", FEATURES, feature("node-2"), "NodeFeature of its own node alone"),
    ("POST", FEATURES, feature(NAME, "node-2"), "NodeFeature is for its own node"),
    ("DELETE", f"{FEATURES}/devherd-features-for-node-2", {}, "NodeFeature of its own node alone"),
]


def test_a_token_changes_its_own_node_alone_and_there_what_is_devherds(cluster):
    """By the policies that come with the rights; a token that names no node changes nothing."""
    cluster.node.start("fpga-opae-2", {"kubernetes": {"events": False}})
    cluster.until_ready()
    cluster.make("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", NODE_FEATURE_KIND)
    cluster.grant("events", "labels-node", "node-condition", "labels-node-feature")
    cluster.make(EVENTS, event(NAME, "kubelet", "of-the-kubelet"))
    cluster.node.eventually(lambda: cluster.made(FEATURES, feature("node-2")), "NodeFeatures can be made")
    token = cluster.token_of("devherd-1")

    def denied(method, path, body, token=token):
        status, message = cluster.as_devherd(token, method, f"{path}?dryRun=All", body)
        return message if status in (403, 422) and "ValidatingAdmissionPolicy" in message else ""

    for method, path, body, why in FOREIGN:  # a policy is in force a moment after it was made
        message = cluster.node.eventually(lambda asked=(method, path, body): denied(*asked), f"{method} {path} {body}")
        assert why in message, (path, body)
    for method, path, body in OWN:
        status, message = cluster.as_devherd(token, method, path, body)
        assert status in (200, 201), (path, body, message)
    anonymous = "devherds-token"
    for method, path, body in OWN[:6]:
        assert denied(method, path, body, anonymous), (path, body)


def start_all(cluster) -> None:
    """An instance that does all that the components are for, with the token of its pod."""
    cluster.grant(*USED)
    place = cluster.node.directory / "run/secrets/kubernetes.io/serviceaccount"
    (place / "token").write_text(cluster.token_of("devherd-1"))
    configs = cluster.node.directory / "configs"
    configs.mkdir()
    config = {"health": {"poll": "100ms", "recover_after": 2}, "scan": {"period": "500ms"}}
    config |= {"node_labels": {"write": "node"}, "kubernetes": {"node_condition": True}}
    (configs / "default").write_text(json.dumps(config))
    cluster.node.start("fpga-opae-2", **cluster.of_a_pod(), DEVHERD_CONFIGS=str(configs))
    cluster.until_ready()
    cluster.until_numbers(CRYPTO, 1, 1)


def is_marked(cluster) -> bool:
    """Whether the node has devherd's labels and its condition."""
    there = cluster.get(NODE)
    return any(name.startswith("devherd.io/") for name in there["metadata"].get("labels", {})) and any(
        each["type"] == CONDITION for each in there["status"]["conditions"]
    )


def test_labels_and_condition_are_there_again_soon_after_the_node_was_made_anew(cluster):
    """`kubectl delete node`, and a kubelet that registers again: devherd goes on, and its watch tells it."""
    start_all(cluster)
    cluster.node.eventually(lambda: is_marked(cluster), "the node is marked", 60)
    before = cluster.get(NODE)["metadata"]["uid"]
    cluster.node.kubelet.stop()
    cluster.delete_node()
    cluster.node.start_kubelet()
    cluster.node.eventually(lambda: is_marked(cluster), "the node is marked again", 60)
    assert cluster.get(NODE)["metadata"]["uid"] != before


def test_an_api_server_that_was_away_is_found_again_and_hears_what_has_changed(cluster):
    """Meanwhile the kubelet is told of devices as ever."""
    start_all(cluster)
    cluster.node.eventually(lambda: is_marked(cluster), "the node is marked", 60)
    [port] = cluster.node.allocatable(CRYPTO)
    cluster.server.stop(signal.SIGKILL)
    faults.inject(cluster.node.node, "fpga-errors", port)
    cluster.node.eventually(lambda: cluster.node.allocatable(CRYPTO) == [], "the kubelet is told")
    cluster.start_server()

    def is_told():
        conditions = cluster.get(NODE)["status"]["conditions"]
        mine = [each for each in cluster.get(EVENTS)["items"] if each["source"].get("component") == "devherd"]
        return [each["reason"] for each in mine] == ["DeviceUnhealthy"] and any(
            (each["type"], each["status"]) == (CONDITION, "True") for each in conditions
        )

    cluster.node.eventually(is_told, "Event and condition are there", 120)


def test_each_right_is_used_and_nothing_else_is_asked_for(cluster):
    """By the API server's audit log, of an instance that does all that the components are for."""
    start_all(cluster)
    cluster.create("sick", {CRYPTO: 1})
    cluster.until_running("sick")
    [port] = cluster.node.held("sick")["main"][CRYPTO]
    for _ in range(2):
        faults.inject(cluster.node.node, "fpga-errors", port)
        cluster.until_numbers(CRYPTO, 1, 0)
        faults.clear(cluster.node.node, "fpga-errors", port)
        cluster.until_numbers(CRYPTO, 1, 1)

    cluster.node.eventually(lambda: cluster.calls() == granted(*USED), "each right is used, and no other", 60)

    def is_all_there():
        mine = [each for each in cluster.get(EVENTS)["items"] if each["source"].get("component") == "devherd"]
        return is_marked(cluster) and max(each["count"] for each in mine) >= 2

    cluster.node.eventually(is_all_there, "label, condition and a repeated Event are there", 60)


def test_the_api_server_finds_nothing_wrong_with_the_policies(cluster):
    """Its controller checks the types in each expression, by the kinds that it knows: a misspelt field is a warning."""
    cluster.make("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", NODE_FEATURE_KIND)
    policies = COLLECTIONS["ValidatingAdmissionPolicy"]
    cluster.node.start("fpga-opae-2", {"kubernetes": {"events": False}})
    cluster.grant(*USED, "labels-node-feature")
    wrong = yaml.safe_load((COMPONENTS / "events/policy.yaml").read_text().partition("---\n")[0])
    wrong["metadata"]["name"] = "wrong"
    wrong["spec"]["validations"][0]["expression"] = "object.misspelt == 'x'"
    cluster.make(policies, wrong)
    cluster.start_controllers("validatingadmissionpolicy-status-controller")

    def checked():
        found = {each["metadata"]["name"]: each.get("status", {}) for each in cluster.get(policies)["items"]}
        return found if all("typeChecking" in status for status in found.values()) else None

    found = cluster.node.eventually(checked, "each policy is checked", 60)
    warned = {name: status["typeChecking"] for name, status in found.items() if status["typeChecking"]}
    assert set(warned) == {"wrong"}, warned
