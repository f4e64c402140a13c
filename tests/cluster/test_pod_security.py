"""What Pod Security Admission has against devherd's pod, by a real API server: the reason for the namespace's label."""

import pytest
from control_plane import ControlPlane
from kustomizations import KUBERNETES, built, of_kind, with_components

PODS = "/api/v1/namespaces/{}/pods?dryRun=All"


@pytest.fixture
def ask(whole_node):
    """Have a DaemonSet's pod in a namespace of a level, by a dry run. Raises LookupError with what is refused."""
    control_plane = ControlPlane(whole_node, "--allow-privileged=true", "--disable-admission-plugins=ServiceAccount")
    for level in ("baseline", "privileged"):
        metadata = {"name": level, "labels": {"pod-security.kubernetes.io/enforce": level}}
        control_plane.make("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})

    def make(level, manifests):
        [daemon_set] = of_kind("DaemonSet", manifests)
        metadata = {"name": "devherd", "namespace": level}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": daemon_set["spec"]["template"]["spec"]}
        control_plane.make(PODS.format(level), pod)

    return make


def test_the_pod_needs_the_level_privileged_for_its_volumes_and_its_selinux_type_alone(ask, kubectl, tmp_path):
    """No component of its rights is privileged, but for those that say so, and they need no other level."""
    shipped = built(kubectl, KUBERNETES)
    privileged = with_components(kubectl, tmp_path / "more", "kernel-log", "host-network")

    with pytest.raises(LookupError) as refusal:
        ask("baseline", shipped)
    said = str(refusal.value)
    assert 'violates PodSecurity \\"baseline:latest\\"' in said
    assert "hostPath volumes" in said
    assert "seLinuxOptions" in said
    for other in ("privileged (", "host namespaces", "capabilities", "seccompProfile", "hostPort"):
        assert other not in said
    with pytest.raises(LookupError, match=r"host namespaces.*privileged"):
        ask("baseline", privileged)
    ask("privileged", shipped)
    ask("privileged", privileged)
