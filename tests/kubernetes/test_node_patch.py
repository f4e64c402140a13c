"""Labels on the Node itself: what is changed, what is left alone, what is taken back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from objects_api import NODE

from devherd.api_server import Api, ApiError
from devherd.kubernetes.labels import ANNOTATION, NodePatch, difference, patch

LABELS = st.dictionaries(st.sampled_from(["a/a", "a/b", "a/c", "a/d"]), st.sampled_from(["1", "2"]))


@given(LABELS, st.sets(st.sampled_from(["a/a", "a/b", "a/c", "a/d"])), LABELS)
def test_others_labels_are_never_touched_and_ones_own_become_what_is_wanted(there, owned, wanted):
    """Whatever stands on the node, and whoever wrote it; doing it twice changes nothing more."""
    change = difference(there, sorted(owned), wanted)

    after = {name: value for name, value in (there | change.labels).items() if value is not None}
    others = {name: value for name, value in there.items() if name not in owned}
    assert {name: after.get(name) for name in others} == others
    assert after == {**wanted, **others}
    assert set(change.owned) == wanted.keys() - others.keys()
    assert change.foreign == sorted(name for name in wanted if others.get(name, wanted[name]) != wanted[name])
    again = difference(after, change.owned, wanted)
    assert (again.labels, again.owned) == ({}, change.owned)


def test_a_patch_is_for_the_version_that_was_seen():
    """So another writer's change in between is not lost."""
    assert patch(difference({}, [], {"a/b": "1"}), "7") == {
        "metadata": {"resourceVersion": "7", "labels": {"a/b": "1"}, "annotations": {ANNOTATION: "a/b"}}
    }


@pytest.fixture
def way(objects_api):
    api = Api(objects_api.access)
    yield NodePatch(api, "node-1")
    api.close()


def labels_on(server) -> dict[str, str]:
    return server.objects[NODE]["metadata"]["labels"]


def test_labels_come_change_and_go(way, objects_api):
    """A person's stay, and nothing is written where nothing changes."""
    labels_on(objects_api)["zone"] = "a"

    assert way.write({"nvidia.com/gpu.count": "8", "nvidia.com/gpu.product": "H100"}) == ""
    assert way.write({"nvidia.com/gpu.count": "8", "nvidia.com/gpu.product": "H100"}) == ""
    assert labels_on(objects_api) == {"zone": "a", "nvidia.com/gpu.count": "8", "nvidia.com/gpu.product": "H100"}
    assert len(objects_api.writes) == 1

    way.write({"nvidia.com/gpu.count": "7"})
    assert labels_on(objects_api) == {"zone": "a", "nvidia.com/gpu.count": "7"}

    way.remove()
    assert labels_on(objects_api) == {"zone": "a"}
    assert objects_api.objects[NODE]["metadata"]["annotations"] == {}


def test_labels_of_another_labeller_are_left_and_said(way, objects_api):
    """Two that write one label would take turns for ever."""
    labels_on(objects_api)["nvidia.com/gpu.count"] = "4"

    left = way.write({"nvidia.com/gpu.count": "8", "nvidia.com/gpu.family": "hopper"})
    way.remove()

    assert left.startswith("nvidia.com/gpu.count: written by another program or a person, with other values")
    assert labels_on(objects_api) == {"nvidia.com/gpu.count": "4"}


def test_a_node_that_changed_in_between_is_an_error_and_not_overwritten(way, objects_api):
    """The next look sees the change."""
    ask = objects_api.answer

    def changed_in_between(method, path, body):
        if method == "PATCH":
            objects_api.objects[NODE]["metadata"]["resourceVersion"] = "99"
        return ask(method, path, body)

    objects_api.answer = changed_in_between
    with pytest.raises(ApiError, match="409"):
        way.write({"a/b": "1"})
    assert labels_on(objects_api) == {}
