"""etcd, kube-apiserver, kube-scheduler and, where it is wanted, kube-controller-manager in a node's private machine."""

import json
import subprocess
from pathlib import Path

from private_machine import ADDRESS, NAME
from whole_node import WholeNode, pod

_TOKEN = "a-token"
_DEVHERDS_TOKEN = "devherds-token"
_NODES_TOKEN = "a-nodes-token"
NODES_USER = f"system:node:{NAME}"
_SERVER = "https://127.0.0.1:6443"
_ETCD = "http://127.0.0.1:2379"
PODS = "/api/v1/namespaces/default/pods"


class ControlPlane:
    """The kubelet of the node registers with it when it starts afterwards."""

    def __init__(self, node: WholeNode, *api_server_options: str, authorization: str = "RBAC") -> None:
        self.node = node
        self._authorization = authorization
        self._write_files(node.directory / "run")
        self.start(
            "etcd",
            "--data-dir=/run/etcd",
            f"--listen-client-urls={_ETCD}",
            f"--advertise-client-urls={_ETCD}",
            "--listen-peer-urls=http://127.0.0.1:2380",
            "--unsafe-no-fsync",
            "--log-level=error",
        )
        self._options = api_server_options or ("--disable-admission-plugins=ServiceAccount",)
        self.start_server()
        self.start("kube-scheduler", "--kubeconfig=/run/kubeconfig", "--leader-elect=false", "--secure-port=0")
        node.kubelet_options = ("--kubeconfig=/run/kubeconfig",)

    def start_server(self):
        """The API server; it is back when it is ready."""
        self.server = self.start(
            "kube-apiserver",
            f"--etcd-servers={_ETCD}",
            "--bind-address=127.0.0.1",
            f"--advertise-address={ADDRESS}",
            "--cert-dir=/run/apiserver",
            "--service-account-issuer=https://kubernetes.default.svc",
            "--service-account-key-file=/run/apiserver/apiserver.key",
            "--service-account-signing-key-file=/run/apiserver/apiserver.key",
            "--service-cluster-ip-range=10.98.0.0/24",
            "--token-auth-file=/run/tokens.csv",
            f"--authorization-mode={self._authorization}",
            "--enable-priority-and-fairness=false",
            *self._options,
        )
        self.node.eventually(lambda: self._ask("/readyz"), "the API server is ready", 60)

    def start_controllers(self, *names):
        """The controller manager with these of its controllers."""
        options = (f"--controllers={','.join(names)}", "--leader-elect=false", "--secure-port=0")
        return self.start("kube-controller-manager", "--kubeconfig=/run/kubeconfig", *options)

    def until_ready(self):
        """Wait until pods can be scheduled. There is no controller manager, who would lift a new node's taint."""
        self.node.eventually(lambda: self._conditions().get("Ready") == "True", "the node is ready")
        self._ask(f"/api/v1/nodes/{NAME}", "PATCH", {"spec": {"taints": None}})

    def numbers(self, resource):
        """Capacity and allocatable of the node's status."""
        status = self.get(f"/api/v1/nodes/{NAME}")["status"]
        return tuple(int(status[kind].get(resource, -1)) for kind in ("capacity", "allocatable"))

    def until_numbers(self, resource, capacity, allocatable):
        """Wait until the node's status shows these."""
        wanted = (capacity, allocatable)
        self.node.eventually(lambda: self.numbers(resource) == wanted, f"{resource} is {wanted} in the node's status")

    def let_devherd_in(self):
        """Give devherd what a pod finds at the place of its service account."""
        place = self.node.directory / "run/secrets/kubernetes.io/serviceaccount"
        place.mkdir(parents=True)
        (place / "token").write_text(_DEVHERDS_TOKEN)
        (place / "namespace").write_text("devherd")
        certificate = self.node.directory / "run/apiserver/apiserver.crt"
        (place / "ca.crt").write_bytes(certificate.read_bytes())

    @staticmethod
    def of_a_pod():
        """The environment in which devherd finds the API server."""
        return {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": "6443", "NODE_NAME": NAME}

    def make(self, collection, manifest):
        """Have an object."""
        self._ask(collection, "POST", manifest)

    def made(self, path, body, method="POST"):
        """What the API server answers."""
        return json.loads(self._ask(path, method, body))

    def label(self, name, value):
        """Put a label on the node; None removes it."""
        self._ask(f"/api/v1/nodes/{NAME}", "PATCH", {"metadata": {"labels": {name: value}}})

    def labels(self):
        """Of the node."""
        return self.get(f"/api/v1/nodes/{NAME}")["metadata"]["labels"]

    def create(self, name, limits):
        """Have a pod."""
        self._ask(PODS, "POST", pod(name, limits))

    def delete(self, name):
        """Have it no more; it is gone when its containers are."""
        self._ask(f"{PODS}/{name}", "DELETE")

    def pod(self, name):
        """What the API server says of a pod."""
        return self.get(f"{PODS}/{name}")

    def until_running(self, name):
        """Wait until a pod runs: its containers, as name, id and how often each was started again."""

        def running():
            status = self.pod(name)["status"]
            containers = status.get("containerStatuses", [])
            is_running = status["phase"] == "Running" and all("running" in each["state"] for each in containers)
            return is_running and [(each["name"], each["containerID"], each["restartCount"]) for each in containers]

        return self.node.eventually(running, f"{name} runs")

    def has_failed(self, name):
        """Whether the pod is over, and not well."""
        return self.pod(name)["status"]["phase"] == "Failed"

    def why_not_scheduled(self, name):
        """The scheduler's words; empty when it has none."""
        conditions = self.pod(name)["status"].get("conditions", [])
        return "".join(each.get("message", "") for each in conditions if each["type"] == "PodScheduled")

    def health(self, name):
        """`allocatedResourcesStatus` of a pod's only container: resource → id → health."""
        (container,) = self.pod(name)["status"]["containerStatuses"]
        return {
            each["name"]: {device["resourceID"]: device["health"] for device in each["resources"]}
            for each in container.get("allocatedResourcesStatus", [])
        }

    def until_health(self, name, wanted):
        """Wait until the pod's status says this of its devices."""
        self.node.eventually(lambda: self.health(name) == wanted, f"{name} has {wanted}")

    def get(self, path):
        """An object. Raises LookupError when there is none."""
        return json.loads(self._ask(path))

    def _conditions(self):
        found = self.get(f"/api/v1/nodes/{NAME}")["status"]
        return {each["type"]: each["status"] for each in found.get("conditions", [])}

    def _ask(self, path, method="GET", body=None):
        kind = "application/strategic-merge-patch+json" if method == "PATCH" else "application/json"
        headers = {"Authorization": f"Bearer {_TOKEN}", "Content-Type": kind}
        status, content = self.node.machine.ask(f"{_SERVER}{path}", method, json.dumps(body) if body else "", **headers)
        if status not in (200, 201):
            raise LookupError(content)
        return content

    def start(self, name, *options):
        """One more program of the control plane."""
        with (self.node.directory / f"{name}.log").open("ab") as log:
            return self.node.machine.start(self.node.program, name, *options, stdout=log, stderr=subprocess.STDOUT)

    @staticmethod
    def _write_files(run: Path):
        (run / "tokens.csv").write_text(
            f'{_TOKEN},admin,1,"system:masters"\n{_DEVHERDS_TOKEN},system:serviceaccount:devherd:devherd,2\n'
            f'{_NODES_TOKEN},{NODES_USER},3,"system:nodes"\n'
        )
        (run / "kubeconfig").write_text(kubeconfig(_TOKEN, {"insecure-skip-tls-verify": True}))
        authority = {"certificate-authority": "/run/apiserver/apiserver.crt"}
        (run / "kubelet.conf").write_text(kubeconfig(_NODES_TOKEN, authority))


def kubeconfig(token, trust):
    """A kubeconfig file for the API server in the private machine."""
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "it", "cluster": {"server": _SERVER, **trust}}],
        "users": [{"name": "me", "user": {"token": token}}],
        "contexts": [{"name": "it", "context": {"cluster": "it", "user": "me"}}],
        "current-context": "it",
    }
    return json.dumps(content)
