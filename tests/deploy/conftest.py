"""What kubectl builds of the Kubernetes manifests."""

import json
import subprocess

import pytest
from kustomizations import KUBERNETES, built, by_kind, of_kind, with_components


@pytest.fixture(scope="module")
def manifests(kubectl):
    """What `kubectl apply -k deploy/kubernetes` would send, by kind."""
    return by_kind(built(kubectl, KUBERNETES))


@pytest.fixture
def pod(manifests):
    """A copy of the DaemonSet's pod."""
    return json.loads(json.dumps(manifests["DaemonSet"]["spec"]["template"]["spec"]))


@pytest.fixture
def container(pod):
    """The one container of the pod."""
    [container] = pod["containers"]
    return container


@pytest.fixture
def through_the_types(kubectl, tmp_path):
    """`through_the_types(manifest)`: read into the API's own types and written again: what they do not know is dropped.

    kubectl does that for an edit without a server; the edit here is to another image, which is taken back.
    """

    def read_and_write(manifest):
        path = tmp_path / "manifest.json"
        path.write_text(json.dumps(manifest))
        written = subprocess.run(
            [*kubectl, "set", "image", "--local", "--output=json", f"--filename={path}", "*=another"],
            capture_output=True,
            text=True,
            check=False,
        )
        if written.returncode != 0:
            raise ValueError(written.stderr)
        result = json.loads(written.stdout)
        pod, shipped = (each["spec"]["template"]["spec"] for each in (result, manifest))
        for kind in ("containers", "initContainers"):
            for container, own in zip(pod.get(kind, []), shipped.get(kind, []), strict=True):
                container["image"] = own["image"]
        return result

    return read_and_write


@pytest.fixture
def daemon_set(manifests):
    """A copy of the DaemonSet."""
    return json.loads(json.dumps(manifests["DaemonSet"]))


@pytest.fixture
def pod_with(kubectl, tmp_path):
    """`pod_with("nvidia")`: the DaemonSet's pod with these components."""

    def build(*components):
        [daemon_set] = of_kind("DaemonSet", with_components(kubectl, tmp_path, *components))
        return daemon_set["spec"]["template"]["spec"]

    return build
