"""Labels by a NodeFeature object of Node Feature Discovery."""

import pytest
from objects_api import DAEMON_SET, FEATURE

from devherd.api_server import Api
from devherd.kubernetes.labels import CannotLabelError, NodeFeature


@pytest.fixture
def access(objects_api):
    return objects_api.access


@pytest.fixture
def way(access):
    api = Api(access)
    yield NodeFeature(api, access, "node-1")
    api.close()


def test_the_object_names_its_node_and_belongs_to_the_daemonset(way, objects_api, monkeypatch):
    """It is removed with the DaemonSet, not with a pod: labels outlive a restart."""
    monkeypatch.setenv("POD_NAME", "devherd-x")

    assert way.write({"nvidia.com/gpu.count": "8"}) == ""

    made = objects_api.objects[FEATURE]
    assert made["apiVersion"] == "nfd.k8s-sigs.io/v1alpha1"
    assert made["kind"] == "NodeFeature"
    assert made["metadata"]["labels"] == {"nfd.node.kubernetes.io/node-name": "node-1"}
    assert made["metadata"]["ownerReferences"] == [DAEMON_SET]
    assert made["spec"] == {
        "features": {"attributes": {}, "flags": {}, "instances": {}},
        "labels": {"nvidia.com/gpu.count": "8"},
    }


def test_labels_come_change_and_go(way, objects_api):
    """Nothing is written where nothing changes; what is gone already is removed."""
    way.write({"a/b": "1"})
    way.write({"a/b": "1"})
    assert len(objects_api.writes) == 1

    way.write({"a/c": "2"})
    assert objects_api.objects[FEATURE]["spec"]["labels"] == {"a/c": "2"}

    way.remove()
    way.remove()
    assert FEATURE not in objects_api.objects


def test_without_node_feature_discovery_it_says_what_to_do(way, objects_api):
    """The kind is unknown then."""
    objects_api.has_features = False

    with pytest.raises(CannotLabelError, match="install Node Feature Discovery, or use"):
        way.write({"a/b": "1"})


def test_without_a_namespace_it_says_so(way, objects_api):
    """A token of somebody's own making."""
    (objects_api.directory / "namespace").unlink()

    with pytest.raises(CannotLabelError, match="namespace is unknown"):
        way.write({"a/b": "1"})
