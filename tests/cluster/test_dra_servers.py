"""DRA at other API servers: with the rights of a pod that its drivers need and no other, and at an older release."""

import time

from dra_cluster import COUNTS, GPU, DraCluster, one_claim, render
from private_machine import NAME
from test_own_node import ACCOUNT, RBAC

from devherd_sim.node import faults

REST_SECONDS = 2.0

RULES = [
    {
        "apiGroups": ["resource.k8s.io"],
        "resources": ["resourceslices"],
        "verbs": ["list", "watch", "create", "update", "delete"],
    },
    {"apiGroups": ["resource.k8s.io"], "resources": ["resourceclaims"], "verbs": ["get"]},
    {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]},
]
GRANTED = {(verb, resource) for rule in RULES for verb in rule["verbs"] for resource in rule["resources"]}


class InAPod(DraCluster):
    """devherd has the token of a pod of its own account."""

    user = ACCOUNT

    def give_access(self):
        self.make("/api/v1/namespaces", {"metadata": {"name": "devherd"}})
        self.make("/api/v1/namespaces/devherd/serviceaccounts", {"metadata": {"name": "devherd"}})
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "devherd-dra"}
        subjects = [{"kind": "ServiceAccount", "name": "devherd", "namespace": "devherd"}]
        self.make(f"{RBAC}/clusterroles", {"metadata": {"name": "devherd-dra"}, "rules": RULES})
        binding = {"metadata": {"name": "devherd-dra"}, "roleRef": role, "subjects": subjects}
        self.make(f"{RBAC}/clusterrolebindings", binding)
        spec = {"nodeName": NAME, "serviceAccountName": "devherd", "containers": [{"name": "main", "image": "devherd"}]}
        self.make("/api/v1/namespaces/devherd/pods", {"metadata": {"name": "devherd-1"}, "spec": spec})
        self.let_devherd_in()
        bound = {"kind": "Pod", "apiVersion": "v1", "name": "devherd-1"}
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"boundObjectRef": bound}}
        answer = self.made("/api/v1/namespaces/devherd/serviceaccounts/devherd/token", request)
        place = self.node.directory / "run/secrets/kubernetes.io/serviceaccount/token"
        place.write_text(answer["status"]["token"])
        return self.of_a_pod()


def test_the_rights_of_its_drivers_are_enough_and_each_is_used(whole_node):
    """By the audit log: slices are written, changed and removed, and a claim is prepared."""
    dra = InAPod(whole_node)
    one_claim(dra)
    for verb in ("cordon", "uncordon"):
        dra.command(verb, dra.pci_address("gpu-0-128"))
        dra.node.eventually(lambda verb=verb: bool(dra.taints("gpu-0-128")) == (verb == "cordon"), verb)
    dra.configure(simulated=[])
    dra.node.eventually(lambda: set(dra.counts().values()) == {8, 0}, "the simulated devices are gone")
    dra.configure()
    dra.until_published()
    assert dra.counts()[GPU] == 8
    assert (dra.asked(), dra.refused()) == (GRANTED, set())


class OfAnOlderRelease(DraCluster):
    """With an API server that has what 1.34 had: no taints, no shares."""

    server_options = ("--emulated-version=1.34",)


def test_where_the_server_drops_taints_a_sick_device_is_withdrawn_until_it_is_well(whole_node):
    """Which devherd says once, with the feature gate; it does not write again and again what is dropped."""
    dra = OfAnOlderRelease(whole_node)
    device = next(iter(dra.devices()))
    faults.inject(whole_node.node, "node", render(device))
    dra.node.eventually(lambda: dra.counts()[GPU] == COUNTS[GPU] - 1, "it is withdrawn")
    assert device not in dra.devices()
    count = dra.call_count()
    time.sleep(REST_SECONDS)
    assert dra.call_count() == count
    assert whole_node.log.count("DRADeviceTaints") == 1
    faults.clear(whole_node.node, "node", render(device))
    dra.until_published()
