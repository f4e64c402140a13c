"""What the objects of the Helm chart are called, however long names are and however many installations there are."""

import pytest
from kustomizations import of_kind

ASKING = {"components": ["events", "labels-node-feature"]}
EVERYTHING = {
    **ASKING,
    "configs": {"default": {}},
    "podMonitor": {"enabled": True},
    "prometheusRule": {"enabled": True},
    "dashboard": {"enabled": True},
    "networkPolicy": {"enabled": True},
    "resourceQuota": {"enabled": True},
}
OF_CLUSTER = {"ClusterRole", "ClusterRoleBinding"}


def places_of(manifests):
    """Where the API server would have each object."""
    return {(each["kind"], each["metadata"].get("namespace"), each["metadata"]["name"]) for each in manifests}


def test_a_release_with_the_longest_name_has_names_and_labels_that_kubernetes_takes(helm):
    """53 characters, which Helm allows, with pools of the longest name; those of two that begin alike differ."""
    pools = [{"name": "a" * 20}, {"name": "b" * 20, "rest": True}]
    ours, theirs = (helm.manifests(EVERYTHING | {"pools": pools}, release="r" * 52 + last) for last in ("1", "2"))
    assert not places_of(ours) & places_of(theirs)
    for manifest in ours:
        assert len(manifest["metadata"]["name"]) <= 69
        assert max(map(len, manifest["metadata"]["labels"].values())) <= 63
    for daemon_set in of_kind("DaemonSet", ours):
        assert len(daemon_set["metadata"]["name"]) <= 63
        assert max(map(len, daemon_set["spec"]["template"]["metadata"]["labels"].values())) <= 63


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"release": "devherd", "namespace": "a"}, {"release": "devherd", "namespace": "b"}),
        ({"release": "gpu", "namespace": "a"}, {"release": "fpga", "namespace": "a"}),
        ({"release": "devherd", "namespace": "devherd"}, {"release": "devherd", "namespace": "b"}),
    ],
)
def test_two_installations_share_no_object_and_no_pod(helm, one, other):
    """In two namespaces or in one. Helm refuses another release's objects, and some are the whole cluster's."""
    ours, theirs = (helm.manifests(EVERYTHING, **which) for which in (one, other))
    assert not places_of(ours) & places_of(theirs)
    [selector], [labels] = (
        [each["spec"]["selector"]["matchLabels"].items() for each in of_kind("DaemonSet", ours)],
        [each["spec"]["template"]["metadata"]["labels"].items() for each in of_kind("DaemonSet", theirs)],
    )
    assert one["namespace"] != other["namespace"] or not selector <= labels


def test_a_right_of_the_cluster_is_bound_to_the_account_of_its_own_installation(helm):
    """By names that have the namespace in front, but where both are called alike."""
    manifests = helm.manifests(ASKING, namespace="tools")
    [binding] = of_kind("ClusterRoleBinding", manifests)
    [role] = of_kind("ClusterRole", manifests)
    assert binding["metadata"]["name"] == binding["roleRef"]["name"] == role["metadata"]["name"]
    assert role["metadata"]["name"] == "tools-devherd-events"
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "devherd", "namespace": "tools"}]
    [of_namespace] = of_kind("RoleBinding", manifests)
    assert of_namespace["metadata"]["name"] == of_namespace["roleRef"]["name"] == "devherd-node-features"


def test_a_namespace_of_ones_own_is_that_of_every_object(helm):
    """For a chart that has this one as a part."""
    manifests = helm.manifests(EVERYTHING | {"namespaceOverride": "tools"})
    assert places_of(manifests) == places_of(helm.manifests(EVERYTHING, namespace="tools"))
    assert "-n tools exec" in helm.notes({"namespaceOverride": "tools"})


def test_the_notes_warn_of_the_namespace_default(helm):
    """All of its pods would get the right to host paths."""
    assert "WARNING: it is in the namespace default" in helm.notes({}, namespace="default")
    assert "namespace default" not in helm.notes({})
