"""The pytest fixture `devherd_kubelet`: its options by a marker, pods with manifests, devices with NUMA nodes."""

import subprocess
import sys

import pytest
from small_plugin import RESOURCE, device

from devherd.errors import DevherdError

TWO_NODES = pytest.mark.devherd_kubelet(topology_policy="single-numa-node", numa_nodes=2)


def on_two_nodes(plugin):
    """A device on each node."""
    plugin.devices = [device("a", numa_nodes=(0,)), device("b", numa_nodes=(1,))]


def pod(count):
    """A manifest of one container."""
    limits = {"limits": {RESOURCE: count}}
    return {
        "kind": "Pod",
        "metadata": {"name": "train"},
        "spec": {"containers": [{"name": "main", "resources": limits}]},
    }


@TWO_NODES
def test_the_marker_chooses_the_topology(devherd_kubelet, serving):
    """The devices of a pod are of one node, or the pod is rejected."""
    serving(on_two_nodes)
    devherd_kubelet.wait(RESOURCE)
    assert [(each["id"], each["numa_nodes"], each["pod"]) for each in devherd_kubelet.devices(RESOURCE)] == [
        ("a", [0], None),
        ("b", [1], None),
    ]
    with pytest.raises(DevherdError, match="cannot be allocated with Topology locality"):
        devherd_kubelet.admit(pod(2))
    [given] = devherd_kubelet.admit(pod(1))
    assert (given["container"], len(given["device_ids"])) == ("main", 1)
    assert {each["pod"] for each in devherd_kubelet.devices()} == {"train", None}


def test_without_the_marker_there_is_no_topology(devherd_kubelet, serving, tmp_path):
    """A manifest may be a file."""
    serving(on_two_nodes)
    devherd_kubelet.wait(RESOURCE)
    limits = f"resources: {{limits: {{{RESOURCE}: 2}}}}"
    manifest = tmp_path / "pod.yaml"
    manifest.write_text(f"kind: Pod\nmetadata: {{name: train}}\nspec: {{containers: [{{name: main, {limits}}}]}}\n")
    for path in (manifest, str(manifest)):
        assert devherd_kubelet.admit(path)[0]["device_ids"] == ["a", "b"]
        devherd_kubelet.free("train")


@pytest.mark.devherd_kubelet(numa_nodes=3)
class TestMarkersAreJoined:
    """Those of the class, and of the test."""

    @pytest.mark.devherd_kubelet(topology_policy="restricted")
    def test_the_options_of_both_count(self, devherd_kubelet, serving):
        """A node that is not there is a finding, which it is not where the number of nodes was not given."""
        serving(lambda plugin: setattr(plugin, "devices", [device("a", numa_nodes=(7,))]))
        devherd_kubelet.wait(RESOURCE)
        problems = [each["problem"] for each in devherd_kubelet.check(restart=False)]
        assert "NUMA node 7 of `a`, where there are 0 to 2" in problems


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("nodes=2", "marker devherd_kubelet: `nodes`; its options are kubernetes, topology_policy, numa_nodes, "),
        ("2", "marker devherd_kubelet: values without a name; its options are "),
        ("topology_policy='strict'", "the embedded kubelet did not start: devherd: bad value of --topology-policy"),
    ],
)
def test_a_wrong_option_fails_the_test_with_the_right_ones(tmp_path, words, said):
    """And pytest knows the marker, also with --strict-markers."""
    test = f"import pytest\n\n@pytest.mark.devherd_kubelet({words})\ndef test_it(devherd_kubelet): pass\n"
    (tmp_path / "test_it.py").write_text(test)
    command = [sys.executable, "-m", "pytest", "--strict-markers", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
    done = subprocess.run([*command, tmp_path], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, said in done.stdout) == (1, True), done.stdout


RELEASES = """
import pytest

def test_any(devherd_kubelet):
    print(f"any {devherd_kubelet.status()['kubernetes']}")

@pytest.mark.devherd_kubelet(kubernetes="1.36")
def test_one(devherd_kubelet):
    print(f"one {devherd_kubelet.status()['kubernetes']}")
"""


@pytest.mark.parametrize(
    ("ini", "said"),
    [
        ("[pytest]\n", ["any 1.37", "one 1.36"]),
        ("[pytest]\ndevherd_kubernetes = 1.36 1.37\n", ["any 1.36", "any 1.37", "one 1.36"]),
    ],
)
def test_a_list_of_releases_runs_each_test_with_each(tmp_path, ini, said):
    """But for the tests whose marker chooses one; without a list it is the newest."""
    (tmp_path / "pytest.ini").write_text(ini)
    (tmp_path / "test_it.py").write_text(RELEASES)
    command = [sys.executable, "-m", "pytest", "-sq", "-p", "no:cacheprovider", "-p", "no:xdist"]
    done = subprocess.run([*command, tmp_path], cwd=tmp_path, capture_output=True, text=True, check=False)
    words = done.stdout.replace(".", " ").replace("1 3", "1.3").split("\n")
    assert (done.returncode, sorted(each.strip() for each in words if each.strip()[:3] in {"any", "one"})) == (0, said)
