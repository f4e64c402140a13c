"""devherd on bare metal at a real API server: by the kubelet's own credential, and no right besides."""

import json
import shutil
import subprocess

import pytest
from control_plane import ControlPlane
from not_tested import not_tested
from private_machine import NAME

from devherd.kubernetes.condition import CONDITION
from devherd_sim.node import faults

CRYPTO = "fpga.intel.com/af-695.d84.aVKNtusxV3qMNmj5-qCB9thCTcSko8QT-J5DNoP5BAs"
CREDENTIAL = "/run/kubelet-client-current.pem"


class Cluster(ControlPlane):
    """Clients are known by certificates of an authority; a node may do what the Node authorizer lets it."""

    def __init__(self, node) -> None:
        self._run = node.directory / "run"
        self._make_certificates()
        options = ("--authorization-mode=Node", "--enable-admission-plugins=NodeRestriction")
        super().__init__(node, "--disable-admission-plugins=ServiceAccount", "--client-ca-file=/run/ca.crt", *options)
        kubeconfig = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "node",
            "clusters": [{"name": "it", "cluster": {"server": "https://127.0.0.1:6443"}}],
            "contexts": [{"name": "node", "context": {"cluster": "it", "user": "node"}}],
            "users": [{"name": "node", "user": {"client-certificate": CREDENTIAL, "client-key": CREDENTIAL}}],
        }
        kubeconfig["clusters"][0]["cluster"]["certificate-authority"] = "/run/apiserver/apiserver.crt"
        (self._run / "kubelet.conf").write_text(json.dumps(kubeconfig))

    def _make_certificates(self) -> None:
        openssl = shutil.which("openssl") or not_tested("no openssl on PATH")
        curve = ["-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-noenc", "-days", "1"]
        authority = ["-keyout", "ca.key", "-out", "ca.crt", "-subj", "/CN=ca"]
        client = ["-CA", "ca.crt", "-CAkey", "ca.key", "-keyout", "client.key", "-out", "client.crt"]
        client += ["-subj", f"/O=system:nodes/CN=system:node:{NAME}", "-addext", "basicConstraints=CA:FALSE"]
        for options in (authority, client):
            subprocess.run([openssl, "req", *curve, *options], check=True, capture_output=True, cwd=self._run)
        pem = (self._run / "client.crt").read_text() + (self._run / "client.key").read_text()
        (self._run / "kubelet-client-2026.pem").write_text(pem)
        (self._run / "kubelet-client-current.pem").symlink_to("kubelet-client-2026.pem")


@pytest.fixture
def cluster(whole_node):
    return Cluster(whole_node)


def test_a_node_outside_a_pod_gets_labels_condition_and_events_by_the_kubelets_credential(cluster):
    """The whole instance in its sandbox, which opens the directory of the certificates and nothing more."""
    node = cluster.node
    options = {"kubeconfig": "/run/kubelet.conf", "node_labels": {"write": "node"}}
    node.start("fpga-1", options | {"kubernetes": {"node_condition": True}}, NODE_NAME=NAME)
    cluster.until_ready()
    node.eventually(lambda: [name for name in cluster.labels() if "fpga.intel.com" in name], "a label is there", 90)
    [port] = node.allocatable(CRYPTO)

    faults.inject(node.node, "fpga-errors", port)

    def condition():
        found = cluster.get(f"/api/v1/nodes/{NAME}")["status"]["conditions"]
        return {each["type"]: each["status"] for each in found}.get(CONDITION)

    node.eventually(lambda: condition() == "True", "the condition says so")
    events = "/api/v1/namespaces/default/events"
    node.eventually(lambda: port in json.dumps(cluster.get(events)["items"]), "there is an Event of the device")
