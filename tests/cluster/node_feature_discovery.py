"""Node Feature Discovery's own master and worker, unmodified, in the private machine of a node."""

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import yaml
from control_plane import ControlPlane
from private_machine import NAME

MODULE = "sigs.k8s.io/node-feature-discovery"
NAMESPACE = "node-feature-discovery"
FEATURES = "etc/kubernetes/node-feature-discovery/features.d"
_KINDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_CRDS = "deployment/base/nfd-crds/nfd-api-crds.yaml"

# As https://kubernetes-sigs.github.io/node-feature-discovery/stable/usage/custom-resources.html describes the kind.
NODE_FEATURE_KIND = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "nodefeatures.nfd.k8s-sigs.io", "annotations": {"api-approved.kubernetes.io": "unapproved"}},
    "spec": {
        "group": "nfd.k8s-sigs.io",
        "scope": "Namespaced",
        "names": {"kind": "NodeFeature", "plural": "nodefeatures", "singular": "nodefeature"},
        "versions": [
            {
                "name": "v1alpha1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "required": ["spec"],
                        "properties": {
                            "spec": {
                                "type": "object",
                                "properties": {
                                    "features": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                                    "labels": {"type": "object", "additionalProperties": {"type": "string"}},
                                },
                            }
                        },
                    }
                },
            }
        ],
    },
}

# What its pod mounts: nothing of devherd's service account, and the node's directory of feature files where the worker
# looks for them. /etc becomes a directory of links to what is in it, as there may be no place for a mount.
_IN_A_POD = """
set -e
[ ! -d /run/secrets ] || mount -t tmpfs none /run/secrets
mkdir "$0"
mount --rbind /etc "$0"
mount -t tmpfs none /etc
ln -s "$0"/* /etc/
rm -f /etc/kubernetes
mkdir -p "/$1"
mount --bind "$2" "/$1"
shift 2
exec "$@"
"""


@dataclass(frozen=True)
class NodeFeatureDiscovery:
    """Of a cluster; it has the kinds of the same release as its programs, and all settings as they are shipped."""

    control_plane: ControlPlane
    programs: Path
    kinds: Path
    """The CustomResourceDefinitions."""

    def install(self) -> None:
        """Have its kinds and its namespace."""
        for kind in yaml.safe_load_all(self.kinds.read_text()):
            self.control_plane.make(_KINDS, kind)
        self.control_plane.make("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})

    def start_master(self) -> None:
        """It watches NodeFeature objects of all namespaces."""
        self._start("nfd-master", "-port=8080")

    def start_worker(self) -> None:
        """It looks at feature files, when they change and once a minute, and at nothing of the machine it runs on."""
        self._start("nfd-worker", "-port=8081", "-feature-sources=local", "-label-sources=local")

    @property
    def features(self) -> Path:
        """The node's directory from which the worker takes labels; its pod makes it."""
        return self.control_plane.node.directory / "node" / FEATURES

    def _start(self, name: str, *options: str) -> None:
        node = self.control_plane.node
        self.features.mkdir(parents=True, exist_ok=True)
        command = [self.programs / name, "-kubeconfig=/run/kubeconfig", *options]
        in_a_pod = ["unshare", "--mount", "sh", "-c", _IN_A_POD, node.directory / f"etc-of-{name}"]
        environment = os.environ | {"NODE_NAME": NAME, "KUBERNETES_NAMESPACE": NAMESPACE}
        with (node.directory / f"{name}.log").open("ab") as log:
            node.machine.start(
                *in_a_pod, FEATURES, self.features, *command, stdout=log, stderr=subprocess.STDOUT, env=environment
            )


def kinds_of_the_release(go: str, sources: Path) -> Path:
    """The file with the kinds in the Go module that these sources require."""
    command = [go, "mod", "download", "-json", MODULE]
    done = subprocess.run(command, cwd=sources, check=True, capture_output=True, text=True)
    return Path(json.loads(done.stdout)["Dir"]) / _CRDS
