"""What devherd has written to its node is taken back at a real API server, under the rights of the Job that does it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from control_plane import ControlPlane
from private_machine import NAME

from devherd.kubernetes.condition import CONDITION
from devherd.kubernetes.labels import ANNOTATION

KUBERNETES = Path(__file__).parents[2] / "deploy/kubernetes"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
ACCOUNTS = "/api/v1/namespaces/devherd/serviceaccounts"
COLLECTIONS = {
    "ClusterRole": f"{RBAC}/clusterroles",
    "ClusterRoleBinding": f"{RBAC}/clusterrolebindings",
    "ServiceAccount": ACCOUNTS,
}
CONFIG = {"node_labels": {"write": "node"}, "kubernetes": {"node_condition": True}}


@pytest.fixture
def control_plane(whole_node):
    """A node with what devherd has written to it, which has ended."""
    made = ControlPlane(whole_node)
    made.let_devherd_in()
    made.make("/api/v1/namespaces", {"metadata": {"name": "devherd"}})
    for component in ("labels-node", "events", "node-condition"):
        grant(made, f"components/{component}")
    whole_node.start("fpga-opae-2", CONFIG, **made.of_a_pod())
    made.until_ready()
    made.label("example.com/mine", "yes")
    whole_node.eventually(lambda: written(made)[0] and written(made)[2], "labels and condition are there", 90)
    whole_node.herd.stop()
    return made


def grant(control_plane, place):
    for right in yaml.safe_load_all((KUBERNETES / place / "rbac.yaml").read_text()):
        control_plane.make(COLLECTIONS[right["kind"]], right)


def written(control_plane):
    """The node's labels that are of devices, whether it names those of devherd, and whether it has the condition."""
    node = control_plane.get(f"/api/v1/nodes/{NAME}")
    metadata = node["metadata"]
    conditions = {each["type"] for each in node["status"]["conditions"]}
    assert {"Ready", "MemoryPressure"} <= conditions
    assert metadata["labels"]["example.com/mine"] == "yes"
    ours = {name for name in metadata["labels"] if name.startswith(("devherd.io/", "intel.feature"))}
    return ours, ANNOTATION in metadata["annotations"], CONDITION in conditions


def as_the_job(control_plane):
    """Have its account, and leave the token of that where a pod finds it."""
    grant(control_plane, "clean-nodes")
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    answer = control_plane.made(f"{ACCOUNTS}/devherd-clean-nodes/token", request)
    place = control_plane.node.directory / "run/secrets/kubernetes.io/serviceaccount"
    (place / "token").write_text(answer["status"]["token"])


def clean(control_plane, *options):
    """What the Job's container does: exit code, and what it prints."""
    job = yaml.safe_load((KUBERNETES / "clean-nodes/job.yaml").read_text())
    [container] = job["spec"]["template"]["spec"]["containers"]
    inside = control_plane.node.machine.start(
        *(sys.executable, "-m", "devherd", *container["args"], *options),
        env=os.environ | control_plane.of_a_pod(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    out, errors = inside.popen.communicate(timeout=60)
    return inside.popen.returncode, out, errors


def test_labels_and_condition_are_taken_back_and_nothing_else(control_plane):
    """With a look before that changes nothing, and again, when there is nothing left."""
    before = written(control_plane)
    assert before[0]
    assert before[1:] == (True, True)
    as_the_job(control_plane)
    what = f"{len(before[0])} label{'s' * (len(before[0]) != 1)}, condition {CONDITION}"

    assert clean(control_plane, "--dry-run") == (0, f"{NAME}: would be removed: {what}\n", "")
    assert written(control_plane) == before
    assert clean(control_plane) == (0, f"{NAME}: removed: {what}\n", "")
    assert written(control_plane) == (set(), False, False)
    assert clean(control_plane) == (0, "", "")
    code, out, errors = clean(control_plane, "absent")
    assert (code, out) == (4, "")
    assert errors.startswith('devherd: cannot read the nodes — 404: nodes "absent" not found — see `kubectl get nodes`')


def test_without_the_rights_it_says_which_and_changes_nothing(control_plane):
    """Those of devherd itself are too few: it may list no nodes."""
    before = written(control_plane)

    code, out, errors = clean(control_plane)

    assert (code, out) == (4, "")
    assert errors.startswith("devherd: cannot read the nodes — 403: nodes is forbidden: ")
    assert errors.endswith(" — give the service account the rights of deploy/kubernetes/clean-nodes\n")
    assert written(control_plane) == before


def test_what_the_documentation_says_for_kubectl_takes_the_condition_back(control_plane):
    """Where no image is at hand: a patch of the status, by the condition's type."""
    page = (KUBERNETES.parents[1] / "docs/kubernetes.md").read_text()
    [patch] = [line.split("--patch ")[1].strip("'\n") for line in page.splitlines() if "--subresource status" in line]

    control_plane.made(f"/api/v1/nodes/{NAME}/status", json.loads(patch), "PATCH")

    assert written(control_plane)[1:] == (True, False)
