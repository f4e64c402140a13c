"""Labels by Node Feature Discovery's own master and worker, with their settings as shipped: all arrive as they are."""

import json
import os
import signal
import subprocess
import sys

import pytest
from control_plane import ControlPlane
from node_feature_discovery import NodeFeatureDiscovery
from test_node_labels import grant

SECONDS = 40.0
"""Less than the minute after which the worker looks of its own accord: it is devherd that wakes it."""
OWN = "devherd.io/*"


@pytest.fixture
def discovery(whole_node, feature_discovery, feature_discovery_kinds):
    """Of a cluster in which devherd can talk to the API server, and nothing else runs yet."""
    control_plane = ControlPlane(whole_node)
    control_plane.make("/api/v1/namespaces", {"metadata": {"name": "devherd"}})
    made = NodeFeatureDiscovery(control_plane, feature_discovery, feature_discovery_kinds)
    made.install()
    return made


def configure(node, **node_labels):
    """Have devherd read another `node_labels`."""
    file = node.directory / "config.yaml"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"node_labels": node_labels}))
    os.kill(node.herd.pid, signal.SIGHUP)


def printed(node):
    """What `devherd labels` prints for the node and its configuration."""
    options = [f"--config={node.directory}/config.yaml", f"--host-root={node.directory}/node", "--output=json"]
    done = subprocess.run([sys.executable, "-m", "devherd", "labels", *options], capture_output=True, check=True)
    return json.loads(done.stdout)["labels"]


def come_and_go(discovery, way, own):
    """Play a change of what is written, and its end: at each step the node has what devherd prints, and no more."""
    control_plane, node = discovery.control_plane, discovery.control_plane.node
    control_plane.until_ready()
    before = control_plane.labels()
    discovery.start_master()

    def until(wanted, what):
        node.eventually(lambda: control_plane.labels() == before | wanted, f"{what}: {wanted}", SECONDS)

    written = printed(node)
    assert own <= {name.partition("/")[0] for name in written}
    until(written, "the node has all labels that devherd prints")

    configure(node, write=way, omit=[OWN])
    left = printed(node)
    assert left == {name: value for name, value in written.items() if not name.startswith("devherd.io/")} != written
    until(left, "what is left out is gone from the node, and no other")

    configure(node, write="none")
    until({}, "none of devherd's labels is left")


@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    ("preset", "namespaces"),
    [
        ("nvidia-8-nvswitch", {"nvidia.com"}),
        ("amd-8-spx", {"amd.com", "beta.amd.com"}),
        ("intel-gpu-2", {"gpu.intel.com", "intel.feature.node.kubernetes.io"}),
    ],
)
def test_what_the_feature_file_says_is_on_the_node_by_worker_and_master(discovery, preset, namespaces):
    """The worker reads the file, the master labels the node; a name that is in the file no more goes from the node."""
    discovery.control_plane.node.start(preset, {"node_labels": {"write": "feature_file"}})
    discovery.start_worker()
    come_and_go(discovery, "feature_file", {*namespaces, "devherd.io"})


@pytest.mark.timeout(240)
def test_what_the_object_says_is_on_the_node_by_the_master(discovery):
    """Of every vendor, from devherd's namespace, which is not the master's; no worker is needed, nor another object."""
    control_plane = discovery.control_plane
    control_plane.let_devherd_in()
    grant(control_plane, "labels-node-feature")
    config = {"node_labels": {"write": "node_feature"}, "vendors": {"nvidia": {"mig_strategy": "mixed"}}}
    control_plane.node.start("everything", config, **control_plane.of_a_pod())
    vendors = {"nvidia.com", "amd.com", "beta.amd.com", "gpu.intel.com", "intel.feature.node.kubernetes.io"}
    come_and_go(discovery, "node_feature", {*vendors, "devherd.io"})
